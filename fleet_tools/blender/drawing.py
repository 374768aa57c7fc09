"""One Blender that draws glTF scenes, as a program that `server.py` speaks to through pipes.

It needs nothing but `bpy`. Each line of its input is a job in JSON, each line of its output the
answer: {} once the picture is written, or {"error": "..."}. It ends when its input does.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

import bpy  # isort: skip  # it brings the others
import bmesh
import mathutils

# This file is run by its path, in an environment without our package.
from drake_gltf import proper_gltf

SMOOTH_BELOW_DEG = 35.0
"""Facets that meet at less than this angle are one curved surface."""

WALL = (0.80, 0.82, 0.85, 1.0)
LAMP_AT, LAMP_TOWARDS, LAMP_SIZE_M, LAMP_W = (0.9, 0.9, 2.0), (0.45, 0.0, 0.1), 0.8, 30.0
ROOM, ROOM_STRENGTH = "interior", 0.45
"""A panorama that comes with Blender; surfaces are lit by it and mirror it."""

VIEW, LOOK = "AgX", "AgX - Medium High Contrast"
"""How light becomes colour, much as in a photograph."""


def draw(job: dict, *, samples: int, roughness: float, threads: int) -> None:
    """Draws one picture.

    Args:
        job: `scene` and `picture` are paths, of a glTF file that Drake wrote and of a PNG to be
            written. The rest are the camera's numbers as Drake sends them: `width`, `height`,
            `focal_x`, `focal_y`, `center_x`, `center_y` in pixels, `near` and `far` in metres.
        samples: Light paths per pixel.
        roughness: Of surfaces, see `proper_gltf`.
        threads: How many of the machine's cores to use.
    """
    scene = Path(job["scene"])
    scene.write_text(json.dumps(proper_gltf(json.loads(scene.read_text()), roughness)))
    bpy.ops.wm.read_factory_settings(use_empty=True)
    bpy.ops.import_scene.gltf(filepath=str(scene))
    for mesh in bpy.data.meshes:
        smooth(mesh)
    aim(next(thing for thing in bpy.data.objects if thing.type == "CAMERA"), job)
    add_room()
    add_lamp()
    render(job["picture"], samples, threads)


def smooth(mesh: bpy.types.Mesh) -> None:
    """Gives a mesh the normals of curved surfaces; VTK exports none."""
    welded = bmesh.new()
    welded.from_mesh(mesh)
    bmesh.ops.remove_doubles(welded, verts=welded.verts, dist=1e-6)
    welded.to_mesh(mesh)
    welded.free()
    mesh.shade_smooth()
    mesh.set_sharp_from_angle(angle=math.radians(SMOOTH_BELOW_DEG))


def aim(camera: bpy.types.Object, job: dict) -> None:
    """Gives the scene's camera exactly the intrinsics of the job, of which glTF knows but one."""
    width, height = job["width"], job["height"]
    aspect = job["focal_x"] / job["focal_y"]
    lens, scene = camera.data, bpy.context.scene
    lens.sensor_fit = "HORIZONTAL"
    lens.lens = job["focal_x"] * lens.sensor_width / width
    # Drake's own renderers count from the corner of the first pixel; so must we, to match them.
    # Blender shifts in units of the picture's width.
    lens.shift_x = (width / 2 - job["center_x"]) / width
    lens.shift_y = (job["center_y"] - height / 2) / width * aspect
    lens.clip_start, lens.clip_end = job["near"], job["far"]
    scene.camera = camera
    scene.render.resolution_x, scene.render.resolution_y = width, height
    scene.render.resolution_percentage = 100
    # Their ratio counts; Blender wants both to be at least 1.
    scene.render.pixel_aspect_x = max(1.0, 1.0 / aspect)
    scene.render.pixel_aspect_y = max(1.0, aspect)


def add_room() -> None:
    """Surrounds the scene by a furnished room, of which the camera itself sees a plain wall."""
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
    """Hangs a large lamp over the table, for soft shadows."""
    lamp = bpy.data.lights.new("lamp", "AREA")
    lamp.energy, lamp.size, lamp.color = LAMP_W, LAMP_SIZE_M, (1.0, 0.95, 0.88)
    hung = bpy.data.objects.new("lamp", lamp)
    hung.location = LAMP_AT
    towards = mathutils.Vector(LAMP_TOWARDS) - mathutils.Vector(LAMP_AT)
    hung.rotation_euler = towards.to_track_quat("-Z", "Y").to_euler()
    bpy.context.scene.collection.objects.link(hung)


def render(picture: str, samples: int, threads: int) -> None:
    """Traces paths of light; the same scene gives the same picture."""
    scene = bpy.context.scene
    scene.render.engine = "CYCLES"
    scene.render.threads_mode, scene.render.threads = "FIXED", threads
    cycles = scene.cycles
    cycles.device, cycles.samples, cycles.seed, cycles.max_bounces = "CPU", samples, 0, 4
    cycles.use_denoising, cycles.denoiser = True, "OPENIMAGEDENOISE"
    # Prefiltering its guides would take longer than all the rest.
    cycles.denoising_quality, cycles.denoising_prefilter = "BALANCED", "NONE"
    scene.view_settings.view_transform = VIEW
    scene.view_settings.look = LOOK
    scene.render.image_settings.file_format = "PNG"
    scene.render.image_settings.color_mode = "RGB"
    scene.render.filepath = picture
    bpy.ops.render.render(write_still=True)


def main() -> None:
    """Answers jobs until there are no more."""
    parser = argparse.ArgumentParser(description="Draws glTF scenes; see server.py.")
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--roughness", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    # Blender talks on stdout; that goes where errors go, so that answers have it to themselves.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    print(json.dumps({"blender": bpy.app.version_string}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            draw(json.loads(line), **vars(options))
            answer = {}
        except Exception as error:  # whatever Blender says, the next job may be a better one
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
