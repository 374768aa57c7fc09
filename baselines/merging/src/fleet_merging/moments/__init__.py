"""Second moments of the inputs of a model's affine maps: statistics that data holders send."""
