"""What Drake writes as glTF, made to mean in glTF what Drake means by it."""

import copy
import math


def proper_gltf(scene: dict, roughness: float) -> dict:
    """Returns a scene of Drake's as glTF means it.

    Drake's z axis points up, glTF's y. Drake's colours are as displayed (sRGB), glTF's linear. And
    VTK, which writes the file, calls every surface perfectly matte.

    Args:
        scene: As Drake sends it.
        roughness: From 0 (a mirror) to 1 (matte), of every surface that is not a mesh's own.
    """
    scene = copy.deepcopy(scene)
    for material in scene.get("materials", []):
        surface = material.setdefault("pbrMetallicRoughness", {})
        *color, alpha = surface.get("baseColorFactor", [1.0, 1.0, 1.0, 1.0])
        surface["baseColorFactor"] = [*map(_linear, color), alpha]
        if surface.get("roughnessFactor", 1.0) == 1.0:
            surface["roughnessFactor"] = roughness
    for view in scene["scenes"]:
        half = math.sqrt(0.5)  # a quarter turn about x brings z to y
        scene["nodes"].append({"children": view["nodes"], "rotation": [-half, 0.0, 0.0, half]})
        view["nodes"] = [len(scene["nodes"]) - 1]
    return scene


def _linear(channel: float) -> float:
    """IEC 61966-2-1."""
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
