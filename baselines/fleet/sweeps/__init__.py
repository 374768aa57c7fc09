"""Fleets side by side: `python -m fleet_tools.baselines.sweep`.

    sweep       which fleets there are, and what those of one arm and value say together
    figure      the pictures
    page        tables, as Markdown

A fleet is the same, and is run once, in all sweeps that share an output folder.
"""
