"""The arena of labelled images and texts: small networks, no simulator.

arena       what networks learn, how they are merged, and what is measured
training    training and evaluation
networks    the networks and their tables
labelled    labelled examples, and their partition
sources     where examples come from: `readers` read files, others are drawn
"""
