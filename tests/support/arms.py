"""Arms that are not the package's: the Panda with one joint fixed, and files that are wrong."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fleet_tools.robot.arm import load_robot

FIXED = 2
"""Index of the joint that is fixed, the one that makes the Panda redundant."""


def six_joints(folder: Path, **changes: Any) -> Path:
    """Writes the file of an arm of six joints, and its model; returns the file.

    Args:
        folder: Where they are written.
        changes: What its file is to say instead; None for what it is not to say.
    """
    panda = load_robot()
    model = panda.model_file()
    robot = ET.parse(model).getroot()
    fixed = panda.joints[FIXED]
    joint = robot.find(f"joint[@name='{fixed}']")
    assert joint is not None
    joint.set("type", "fixed")
    for transmission in robot.findall("transmission"):
        if transmission.find(f"joint[@name='{fixed}']") is not None:
            robot.remove(transmission)
    for mesh in robot.iter("mesh"):
        mesh.set("filename", str(model.parent / mesh.get("filename", "")))
    ET.register_namespace("drake", "http://drake.mit.edu")
    folder.mkdir(parents=True, exist_ok=True)
    ET.ElementTree(robot).write(folder / "six.urdf")
    data = panda.model_dump(mode="json") | {
        "name": "six",
        "model": "six.urdf",
        "visuals": {},
        "joints": _without(panda.joints),
        "postures": {
            name: _without(posture)
            for name, posture in panda.model_dump(mode="json")["postures"].items()
        },
    }
    return write_arm(folder / "six.yaml", data | changes)


def write_arm(file: Path, data: Mapping[str, Any]) -> Path:
    """Writes the file of an arm, without what is None."""
    said = {key: value for key, value in data.items() if value is not None}
    file.write_text(yaml.safe_dump(said, sort_keys=False))
    return file


def _without(values: Any) -> list:
    return [value for i, value in enumerate(values) if i != FIXED]
