"""Robots: a folder each, with the model files and the program that writes them."""
