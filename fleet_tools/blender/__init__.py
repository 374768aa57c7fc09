"""Photographs: colour from Blender's path tracer, depth and labels from VTK.

A Blender *server* draws what Drake's glTF client sends it. It is started from an environment of its
own, for Blender's Python module `bpy` is bound to one version of Python and wants its own numpy:

    python3.11 -m venv bpy-env
    bpy-env/bin/pip install bpy==5.0.1
    python -m fleet_tools.blender --python bpy-env/bin/python --workers 2

On Debian and Ubuntu, `import bpy` also needs (no display, no GPU):

    apt-get install -y libx11-6 libxrender1 libxfixes3 libxi6 libxkbcommon0 libsm6 libice6 libgl1

Then, in another terminal:

    python -m fleet_tools.photograph DATASET --output PHOTOGRAPHS --camera overhead --every 6

Files: `server` (HTTP), `studio` (processes), `drake_gltf` and `drawing` (one picture) belong to the
server and import nothing of this package; `photographer` is the client.
"""
