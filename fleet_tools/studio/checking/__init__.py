"""Checks of a model: its family's rules on collision geometry, and a trial.

`general_rules` measures a model and holds what every model needs, `assets.families` what the models
of each family need, and `expert_trials` lets the expert use the model. The program is
`python -m fleet_tools.assets check FOLDER`.

`mending` lets upright sides lean: `python -m fleet_tools.assets mend FOLDER`.
"""
