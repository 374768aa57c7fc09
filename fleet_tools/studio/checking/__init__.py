"""The check of a model: what its family needs, measured on its collision geometry, and a trial.

`rule` says what a rule is, `families/` holds the rules of each family, and `trial` lets the expert
use the model. The program is `python -m fleet_tools.assets check FOLDER`.
"""
