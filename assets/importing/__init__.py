"""From a foreign mesh to a model folder: `python -m fleet_tools.assets import --help`.

    read -> scale -> repair -> solid -> pieces -> polytope -> build -> write
                                     -> simplify (what is seen)

Each step is a pure function in a module of its own; what it had to change or guess it says in a
note, and what it cannot mend in a `ConfigError` that names the remedy.
"""
