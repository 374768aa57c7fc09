"""Robots: one folder each, with the model files and the code that writes them."""
