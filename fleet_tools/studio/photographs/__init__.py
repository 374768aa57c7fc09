"""Photographs: colour images by Blender's path tracer, depth and segmentation by VTK.

A Blender server renders what Drake's glTF client sends; `docs/environments/rendering.md` tells how
to install and start it. Blender is in an environment of its own, because its Python module `bpy`
needs one version of Python and of numpy. It is free software under the GPL, and no part of this
package. A photograph takes 4 to 16 s on two busy cores. One image uses all cores, so more workers
are faster only with more cores than one image can use, or with more machines.

Colours pass through Blender's AgX, surfaces are lit by a furnished room and a lamp, and the
background is a plain wall. Shapes are where VTK renders them, to the pixel, so that depth and
segmentation fit the colour image.

`render_requests` (HTTP) and `blender_pool` are the server, whose processes run `drawing` (one
image) with Blender's Python. `photographer` is the client, and does what `fleet_tools.photograph`
asks of it.
"""
