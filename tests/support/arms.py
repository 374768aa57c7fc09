"""Random states and payloads of the Panda, and arms that are not the package's."""

import shutil
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydrake.math import RotationMatrix
from pydrake.multibody.tree import SpatialInertia, UnitInertia

from fleet_tools.robot.arm import load_robot
from fleet_tools.robot.arm_model import ArmModel

ARM = ArmModel(load_robot())

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
    ET.register_namespace("drake", "http://drake.mit.edu")
    shutil.copytree(model.parent / "meshes", folder / "meshes", dirs_exist_ok=True)
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


def made_up(folder: Path, axes: Sequence[Sequence[float]], seed: int) -> Path:
    """Writes the file of an arm with random links; returns the file.

    Args:
        folder: Where file and model are written.
        axes: (n, 3), the axes of its joints.
        seed: Seed of all else: places, masses, and fixed joints between.
    """
    generator = np.random.default_rng(seed)

    def words(low: float, high: float) -> str:
        return " ".join(map(str, generator.uniform(low, high, 3)))

    def origin(metres: float = 0.3) -> str:
        return f'<origin xyz="{words(-metres, metres)}" rpy="{words(-3, 3)}"/>'

    def link(name: str) -> str:
        return (
            f'<link name="{name}"><inertial>{origin(0.1)}<mass value="{generator.uniform(1, 5)}"/>'
            '<inertia ixx="0.02" ixy="0.001" ixz="0" iyy="0.03" iyz="-0.002" izz="0.025"/>'
            "</inertial></link>"
        )

    def fixed(name: str, parent: str, child: str) -> str:
        return (
            f'<joint name="{name}" type="fixed">{origin()}<parent link="{parent}"/>'
            f'<child link="{child}"/></joint>{link(child)}'
        )

    names = [f"turn{i}" for i in range(len(axes))]
    parts, last = [link("foot"), fixed("weld", "foot", "base")], "base"
    for i, (name, axis) in enumerate(zip(names, axes, strict=True)):
        parts += [
            f'<joint name="{name}" type="revolute">{origin()}<parent link="{last}"/>'
            f'<child link="link{i}"/><axis xyz="{" ".join(map(str, axis))}"/>'
            f'<limit lower="-3" upper="3" velocity="{2 + i}" effort="{90 - i}"/></joint>',
            link(f"link{i}"),
            fixed(f"weld{i}", f"link{i}", f"ring{i}"),
            f'<transmission name="t{i}"><type>transmission_interface/SimpleTransmission</type>'
            f'<joint name="{name}"/><actuator name="{name}"><drake:gear_ratio value="100"/>'
            f'<drake:rotor_inertia value="{1e-5 * (i + 1)}"/></actuator></transmission>',
        ]
        last = f"ring{i}"
    parts.append(fixed("wrist", last, "hand"))
    root = '<robot xmlns:drake="http://drake.mit.edu" name="made_up">'
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "made_up.urdf").write_text(f"{root}{''.join(parts)}</robot>")
    data = {
        "name": "made_up",
        "description": "Links at random",
        "model": "made_up.urdf",
        "base_link": "foot",
        "base_pose": {"translation_m": [0.1, -0.2, 0.3], "rpy_deg": [10, 20, 30]},
        "end_effector": "hand",
        "joints": names,
        "postures": {"ready": [0.0] * len(names)},
        "camera_mount": {},
    }
    return write_arm(folder / "made_up.yaml", data)


def write_arm(file: Path, data: Mapping[str, Any]) -> Path:
    """Writes the file of an arm, without what is None."""
    said = {key: value for key, value in data.items() if value is not None}
    file.write_text(yaml.safe_dump(said, sort_keys=False))
    return file


def _without(values: Any) -> list:
    return [value for i, value in enumerate(values) if i != FIXED]


def random_configuration(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions and velocities of the arm that are not near a singularity."""
    while True:
        q, v = (
            rng.uniform(ARM.limits.lower, ARM.limits.upper),
            rng.uniform(-1.5, 1.5, ARM.num_joints),
        )
        if np.linalg.cond(ARM.dynamics(q, v)[0].J) < 50:
            return q, v


def random_payload(rng: np.random.Generator) -> SpatialInertia:
    """Returns the spatial inertia, about E, of a body with the central inertia of a solid box."""
    box = UnitInertia.SolidBox(*rng.uniform(0.02, 0.4, 3))
    R = RotationMatrix.MakeXRotation(rng.uniform(-3, 3))
    inertia = SpatialInertia.MakeFromCentralInertia(
        rng.uniform(0.1, 2.0), rng.uniform(-0.2, 0.2, 3), (rng.uniform(0.1, 2.0) * box)
    )
    return inertia.ReExpress(R)
