"""Second moments of what the affine maps of a model read: statistics that data holders send.

affine_maps   the affine maps of a model as values: linear, recurrent, convolutional, attention
rows          the inputs of affine maps while a model runs
gate          weights of models side by side, by densities
measurement   moments of inputs and targets over a data holder's batches
least_squares the matrix that moments determine
"""
