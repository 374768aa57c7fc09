"""The studio: programs and pages that make and check things for the benchmark.

`importing` makes a model of a mesh or a scan, and `checking` says whether a model is what its
family needs. The benchmark itself imports nothing from here.
"""
