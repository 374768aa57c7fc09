"""Robots, tools and objects: model folders, and the programs that generate and import them.

`robots/`, `tools/<family>/<name>/` and `objects/<family>/<name>/` hold what a scene is built from.
A model folder holds `model.sdf`, its meshes, and `keypoints.yaml`, which names the points that
tasks and experts refer to. `python -m fleet_tools.assets generate` writes the models of
`families/`, `python -m fleet_tools.assets import` makes one of a mesh, and
`python -m fleet_tools.assets check` says whether one has what its family needs, and
`python -m fleet_tools.assets mend` lets its upright sides lean. A folder that was made by hand
or by another program can be used in the same way.
"""

if __name__ != "fleet_tools.assets":  # a checkout's root on sys.path would import it twice
    raise ImportError(f"Import fleet_tools.assets instead of {__name__}.")
