"""Queries to data holders: messages with models, losses and gradients."""
