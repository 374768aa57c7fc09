"""Readers of the files in which public datasets are distributed.

idx       IDX, of MNIST and Fashion-MNIST
leaf      texts of LEAF, by user
cifar10   the batches of CIFAR-10, in Python's or in the binary version
"""
