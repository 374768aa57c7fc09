"""Corrects the glTF scenes that Drake writes, so that they follow the glTF standard."""

import copy
import math
from typing import Any


def proper_gltf(scene: dict[str, Any], roughness: float) -> dict[str, Any]:
    """Returns a scene of Drake as standard glTF.

    Drake's z axis points up, glTF's y axis does. Drake's colours are as displayed (sRGB), glTF's
    are linear. And VTK, which writes the file, declares every surface perfectly matte.

    Args:
        scene: The scene as Drake sends it.
        roughness: Roughness, from 0 (a mirror) to 1 (matte), of the surfaces to which VTK gives
            none.
    """
    scene = copy.deepcopy(scene)
    for material in scene.get("materials", []):
        surface = material.setdefault("pbrMetallicRoughness", {})
        *color, alpha = surface.get("baseColorFactor", [1.0, 1.0, 1.0, 1.0])
        surface["baseColorFactor"] = [*map(_linear, color), alpha]
        if surface.get("roughnessFactor", 1.0) == 1.0:
            surface["roughnessFactor"] = roughness
    for view in scene["scenes"]:
        half = math.sqrt(0.5)  # a quarter turn about x takes z to y
        scene["nodes"].append({"children": view["nodes"], "rotation": [-half, 0.0, 0.0, half]})
        view["nodes"] = [len(scene["nodes"]) - 1]
    return scene


def _linear(channel: float) -> float:
    """Returns the linear value of an sRGB channel (IEC 61966-2-1)."""
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
