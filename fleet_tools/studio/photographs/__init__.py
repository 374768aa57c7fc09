"""Photographs: colour images by Blender's path tracer, depth and segmentation by VTK.

A Blender server renders what Drake's glTF client sends. Blender is in an environment of its own,
because its Python module `bpy` needs one version of Python and of numpy:

    python3.11 -m venv bpy-env
    bpy-env/bin/pip install bpy==5.0.1
    python -m fleet_tools.blender --python bpy-env/bin/python --workers 2

On Debian and Ubuntu, `import bpy` also needs (no display, no GPU):

    apt-get install -y libx11-6 libxrender1 libxfixes3 libxi6 libxkbcommon0 libsm6 libice6 libgl1

Blender is free software under the GPL; none of it is part of this package. Then, in another
terminal:

    python -m fleet_tools.photograph DATASET --output PHOTOGRAPHS --camera overhead --every 6

Seconds per photograph, overhead included, of an episode of the hammer on two cores of a machine
with other work to do (load 2.4 to 4.2; bpy 5.0.1, 16 light paths per pixel):

    size     camera    --workers 1  --workers 2
    320x240  third             4.0          5.2
    320x240  overhead          5.7          6.5
    640x480  third            11.3         11.6
    640x480  overhead         12.0         15.6

One image uses all cores, so more workers are faster only with more cores than one image can use, or
with more machines. `--samples` trades noise for time. Blender's other engine, EEVEE, needs a GPU:
with OpenGL in software it took 67 s for the 640x480 third-person view, Cycles 9 s.

Colours pass through Blender's AgX, surfaces are lit by a furnished room and a lamp, and the
background is a plain wall. Shapes are where VTK renders them, to the pixel, so that depth and
segmentation fit the colour image.

`render_requests` (HTTP) and `blender_pool` are the server, whose processes run `drawing` (one
image) with Blender's Python. `photographer` is the client, and does what `fleet_tools.photograph`
asks of it.
"""
