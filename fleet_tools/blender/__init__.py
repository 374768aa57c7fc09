"""Photographs: colour from Blender's path tracer, depth and labels from VTK.

A Blender *server* draws what Drake's glTF client sends it. It is started from an environment of its
own, for Blender's Python module `bpy` is bound to one version of Python and wants its own numpy:

    python3.11 -m venv bpy-env
    bpy-env/bin/pip install bpy==5.0.1
    python -m fleet_tools.blender --python bpy-env/bin/python --workers 2

On Debian and Ubuntu, `import bpy` also needs (no display, no GPU):

    apt-get install -y libx11-6 libxrender1 libxfixes3 libxi6 libxkbcommon0 libsm6 libice6 libgl1

Blender is free software under the GPL; none of it is part of this package. Then, in another
terminal:

    python -m fleet_tools.photograph DATASET --output PHOTOGRAPHS --camera overhead --every 6

Seconds a photograph, all included, of an episode of the hammer on two cores of a machine that was
also busy with other things (load 2.4 to 4.2; bpy 5.0.1, 16 light paths per pixel):

    size     camera    --workers 1  --workers 2
    320x240  third             4.0          5.2
    320x240  overhead          5.7          6.5
    640x480  third            11.3         11.6
    640x480  overhead         12.0         15.6

One picture keeps all cores busy, so more workers pay only where there are more cores than one
picture can use, or more machines. `--samples` trades noise for time. Blender's other engine, EEVEE,
wants a GPU: with OpenGL in software the 640x480 third view took it 67 s, Cycles 9.

Colours pass through Blender's AgX, surfaces are lit by a furnished room and a lamp, and the
background is a plain wall. What is where is VTK's to the pixel, so that depth and labels fit.

Files: `server` (HTTP), `studio` (processes), `drake_gltf` and `drawing` (one picture) belong to the
server and import nothing of this package; `photographer` is the client.
"""
