"""Experiments on merging: their form, runner, results and pages.

    form           the YAML file of an experiment, and the runs that it plans
    arena          interface of arenas, in which policies learn, are merged and are evaluated
    running        runs all missing cells, and writes the result
    result         the stored result, and rows over its seeds
    page, figures  the page of a result, and its figures
    life           measures of fleets over months, and in life_figure their animation
    cells          computed values in files, by a hash of their inputs
    fleets         the arenas of robots, on Fleet-Tools and Meta-World
    lines          barriers between the policies of a fleet
    supervised/    the arena of labelled images and texts

`python -m fleet_tools.baselines.experiment FILE` is the program.
"""
