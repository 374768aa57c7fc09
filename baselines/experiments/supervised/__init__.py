"""The arena of labelled images and texts: small networks, no simulator.

arena       training, merging and measurements of networks
training    training and evaluation
networks    the networks and their tables
labelled    labelled examples, and their partition
sources     sources of examples: files, read by `readers`, and generators
"""
