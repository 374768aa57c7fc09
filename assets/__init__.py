"""Tools and objects: SDFormat model folders, and the generators that write them.

`robots/`, `tools/<family>/<name>/` and `objects/<family>/<name>/` hold what a scene is built from.
A model folder is `model.sdf`, its meshes, and `keypoints.yaml`, which names the points that tasks
and experts speak about. The families here write such folders (`python -m fleet_tools.assets`); one
made by hand or by another program is as good.
"""

if __name__ != "fleet_tools.assets":  # a checkout's root on sys.path would import it twice
    raise ImportError(f"Import fleet_tools.assets instead of {__name__}.")
