"""The expert that sees: tool and object are found in point clouds, and followed.

shapes         surfaces of models, and points on them
registration   a model's parameters from a cloud
freedom        which parameters are unknown, and what they stand for
finding        which tool and object there are, and where, when an episode begins
perceived      the state that follows from observations, and the experts that act on it
"""
