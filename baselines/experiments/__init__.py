"""Experiments on merging: one form, one runner, one stored result, one generator of pages.

    form           the YAML file of an experiment, and the runs that it plans
    arena          where policies learn, are merged and are judged
    running        runs all that is missing, and writes the result
    result         the stored result, and rows over its seeds
    page, figures  what is made of a result
    cells          computed values in files, by what they depend on
    fleets         the arenas of robots, on Fleet-Tools and Meta-World
    lines          barriers between the policies of a fleet
    supervised/    the arena of labelled images and texts

`python -m fleet_tools.baselines.experiment FILE` is the program.
"""
