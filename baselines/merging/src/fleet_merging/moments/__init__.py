"""Second moments of what the affine maps of a model read: statistics that data holders send."""
