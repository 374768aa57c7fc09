"""A Blender process that draws glTF scenes, driven by `blender_pool` over pipes.

It needs only `bpy`. Each line of its input is a job in JSON, and each line of its output the
answer: {} once the image is written, or {"error": "..."}. It ends with its input.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import bpy  # isort: skip  # pyright: ignore[reportMissingImports]  # it brings the next two
import bmesh  # pyright: ignore[reportMissingImports]
import mathutils  # pyright: ignore[reportMissingImports]

SMOOTH_BELOW_DEG = 35.0
"""Facets that meet at less than this angle belong to one curved surface."""

WALL = (0.80, 0.82, 0.85, 1.0)
LAMP_AT, LAMP_TOWARDS, LAMP_SIZE_M, LAMP_W = (0.9, 0.9, 2.0), (0.45, 0.0, 0.1), 0.8, 30.0
ROOM, ROOM_STRENGTH = "interior", 0.45
"""A panorama that is part of Blender; it lights surfaces, which reflect it."""

VIEW, LOOK = "AgX", "AgX - Medium High Contrast"
"""Conversion of light to colour, much as in a photograph."""


def draw(job: dict[str, Any], *, samples: int, threads: int) -> None:
    """Draws an image.

    Args:
        job: `scene` is the path of a glTF file, and `image` the path of the PNG
            that is to be written. The other entries are the camera's numbers as Drake sends them:
            `width`, `height`, `focal_x`, `focal_y`, `center_x`, `center_y` in pixels, `near` and
            `far` in m.
        samples: Light paths per pixel.
        threads: Number of the machine's cores to use.
    """
    bpy.ops.wm.read_factory_settings(use_empty=True)
    bpy.ops.import_scene.gltf(filepath=job["scene"])
    for mesh in bpy.data.meshes:
        smooth(mesh)
    camera = next(object for object in bpy.data.objects if object.type == "CAMERA")
    set_intrinsics(camera, job)
    add_room()
    add_lamp()
    render(job["image"], samples, threads)


def smooth(mesh: bpy.types.Mesh) -> None:
    """Gives a mesh the normals of curved surfaces, which VTK does not export."""
    welded = bmesh.new()
    welded.from_mesh(mesh)
    bmesh.ops.remove_doubles(welded, verts=welded.verts, dist=1e-6)
    welded.to_mesh(mesh)
    welded.free()
    mesh.shade_smooth()
    mesh.set_sharp_from_angle(angle=math.radians(SMOOTH_BELOW_DEG))


def set_intrinsics(camera: bpy.types.Object, job: dict[str, Any]) -> None:
    """Gives the scene's camera all intrinsics of a job; the glTF file holds only one of them."""
    width, height = job["width"], job["height"]
    aspect = job["focal_x"] / job["focal_y"]
    lens, scene = camera.data, bpy.context.scene
    lens.sensor_fit = "HORIZONTAL"
    lens.lens = job["focal_x"] * lens.sensor_width / width
    # Drake's own renderers count pixels from the corner of the first one, and so does this one.
    # Blender shifts in units of the image's width.
    lens.shift_x = (width / 2 - job["center_x"]) / width
    lens.shift_y = (job["center_y"] - height / 2) / width * aspect
    lens.clip_start, lens.clip_end = job["near"], job["far"]
    scene.camera = camera
    scene.render.resolution_x, scene.render.resolution_y = width, height
    scene.render.resolution_percentage = 100
    # Only their ratio matters; Blender requires both to be at least 1.
    scene.render.pixel_aspect_x = max(1.0, 1.0 / aspect)
    scene.render.pixel_aspect_y = max(1.0, aspect)


def add_room() -> None:
    """Surrounds the scene by a furnished room, instead of which the camera sees a plain wall."""
    world = bpy.data.worlds.new("room")
    bpy.context.scene.world = world
    world.use_nodes = True
    tree = world.node_tree
    tree.nodes.clear()

    def node(kind: str) -> bpy.types.Node:
        return tree.nodes.new(f"ShaderNode{kind}")

    panorama, room, wall = node("TexEnvironment"), node("Background"), node("Background")
    path, choice, output = node("LightPath"), node("MixShader"), node("OutputWorld")
    folder = Path(bpy.utils.resource_path("LOCAL")) / "datafiles" / "studiolights" / "world"
    panorama.image = bpy.data.images.load(str(folder / f"{ROOM}.exr"))
    room.inputs["Strength"].default_value = ROOM_STRENGTH
    wall.inputs["Color"].default_value = WALL
    tree.links.new(panorama.outputs["Color"], room.inputs["Color"])
    tree.links.new(path.outputs["Is Camera Ray"], choice.inputs[0])
    tree.links.new(room.outputs[0], choice.inputs[1])
    tree.links.new(wall.outputs[0], choice.inputs[2])
    tree.links.new(choice.outputs[0], output.inputs["Surface"])


def add_lamp() -> None:
    """Adds a large lamp above the table, for soft shadows."""
    light = bpy.data.lights.new("lamp", "AREA")
    light.energy, light.size, light.color = LAMP_W, LAMP_SIZE_M, (1.0, 0.95, 0.88)
    lamp = bpy.data.objects.new("lamp", light)
    lamp.location = LAMP_AT
    towards = mathutils.Vector(LAMP_TOWARDS) - mathutils.Vector(LAMP_AT)
    lamp.rotation_euler = towards.to_track_quat("-Z", "Y").to_euler()
    bpy.context.scene.collection.objects.link(lamp)


def render(image: str, samples: int, threads: int) -> None:
    """Renders by path tracing; the same scene gives the same image."""
    scene = bpy.context.scene
    scene.render.engine = "CYCLES"  # EEVEE needs a GPU, and is far slower without one
    scene.render.threads_mode, scene.render.threads = "FIXED", threads
    cycles = scene.cycles
    cycles.device, cycles.samples, cycles.seed, cycles.max_bounces = "CPU", samples, 0, 4
    cycles.use_denoising, cycles.denoiser = True, "OPENIMAGEDENOISE"
    # Prefiltering the denoiser's guides would take longer than all other steps together.
    cycles.denoising_quality, cycles.denoising_prefilter = "BALANCED", "NONE"
    scene.view_settings.view_transform = VIEW
    scene.view_settings.look = LOOK
    scene.render.image_settings.file_format = "PNG"
    scene.render.image_settings.color_mode = "RGB"
    scene.render.filepath = image
    bpy.ops.render.render(write_still=True)


def main() -> None:
    """Answers jobs until the input ends."""
    parser = argparse.ArgumentParser(description="Draws glTF scenes; see blender_pool.py.")
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    # Blender prints to stdout; this goes to stderr, so that stdout holds answers only.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    print(json.dumps({"blender": bpy.app.version_string}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            draw(json.loads(line), **vars(options))
            answer = {}
        except Exception as error:  # of any kind; the next job may succeed
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
