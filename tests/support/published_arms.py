"""Published figures of the package's arms, typed anew from their sources."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fleet_tools.config.file_access import assets_root

ROBOTS = assets_root() / "robots"


def craig(a: float, d: float, alpha: float, q: float) -> np.ndarray:
    """Returns RotX(alpha) TransX(a) RotZ(q) TransZ(d), the modified convention."""
    (ca, sa), (cq, sq) = ((np.cos(t), np.sin(t)) for t in (alpha, q))
    rotation = [[cq, -sq, 0], [sq * ca, cq * ca, -sa], [sq * sa, cq * sa, ca]]
    return _transform(rotation, [a, -sa * d, ca * d])


def standard(a: float, d: float, alpha: float, q: float) -> np.ndarray:
    """Returns RotZ(q) TransZ(d) TransX(a) RotX(alpha), the standard convention."""
    (ca, sa), (cq, sq) = ((np.cos(t), np.sin(t)) for t in (alpha, q))
    rotation = [[cq, -sq * ca, sq * sa], [sq, cq * ca, -cq * sa], [0, sa, ca]]
    return _transform(rotation, [a * cq, a * sq, d])


def _transform(rotation: list[list[float]], translation: list[float]) -> np.ndarray:
    return np.vstack([np.column_stack([rotation, translation]), [0, 0, 0, 1]])


class Published(NamedTuple):
    """What the test knows of an arm, typed anew from the sources that `description` names.

    Attributes:
        name: Name of the arm.
        base: Link that is fixed to the world.
        urdfs: Its model files; the first has our own visual meshes.
        X_WB: Pose of the first Denavit-Hartenberg frame at rest.
        dh: a, d, alpha of the joints and, in the modified convention, of the flange.
        transform: Pose of a frame in the one before it.
        flange: Link with the flange's frame.
        hand_yaw: Yaw of the hand on the flange, rad.
        finger: Position of the fingers along z of the hand, m.
        lower, upper, speed, torque, rotor: Limits and reflected inertias of the joints.
        masses: Masses of the links that move, and of the hand with its fingers, kg.
        ready: A posture in which the hand is before the robot, rad.
    """

    name: str
    base: str
    urdfs: tuple[str, ...]
    X_WB: np.ndarray
    dh: np.ndarray
    transform: Callable[[float, float, float, float], np.ndarray]
    flange: str
    hand_yaw: float
    finger: float
    lower: np.ndarray
    upper: np.ndarray
    speed: np.ndarray
    torque: np.ndarray
    rotor: np.ndarray
    masses: tuple[float, ...]
    ready: tuple[float, ...]

    @property
    def folder(self) -> Path:
        """Folder of its files."""
        return ROBOTS / self.name


QUARTER = np.pi / 2
PANDA = Published(  # Franka Control Interface documentation
    name="panda",
    base="panda_link0",
    urdfs=("panda.urdf", "panda_franka_visuals.urdf"),
    X_WB=np.eye(4),
    dh=np.array(
        [
            *((0, 0.333, 0), (0, 0, -QUARTER), (0, 0.316, QUARTER), (0.0825, 0, QUARTER)),
            *((-0.0825, 0.384, -QUARTER), (0, 0, QUARTER), (0.088, 0, QUARTER), (0, 0.107, 0)),
        ]
    ),
    transform=craig,
    flange="panda_link8",
    hand_yaw=-np.pi / 4,
    finger=0.0584,
    lower=np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973]),
    upper=np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973]),
    speed=np.array([2.175] * 4 + [2.61] * 3),
    torque=np.array([87] * 4 + [12] * 3),
    rotor=np.array([0.605721456] * 2 + [0.462474144] * 2 + [0.205544064] * 3),
    masses=(4.970684, 0.646926, 3.228604, 3.587895, 1.225946, 1.666555, 0.735522, 0.76),
    ready=(0, -0.2, 0, -2.2, 0, 2.0, 0.8),
)
UR5E = Published(  # Universal Robots, "DH Parameters for calculations of kinematics and dynamics"
    name="ur5e",
    base="ur5e_stand",
    urdfs=("ur5e.urdf",),
    X_WB=np.array([[-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 1, 0.25], [0, 0, 0, 1.0]]),
    dh=np.array(
        [
            *((0, 0.1625, QUARTER), (-0.425, 0, 0), (-0.3922, 0, 0)),
            *((0, 0.1333, QUARTER), (0, 0.0997, -QUARTER), (0, 0.0996, 0)),
        ]
    ),
    transform=standard,
    flange="ur5e_flange",
    hand_yaw=-QUARTER,
    finger=0.062,
    lower=np.radians([-360, -360, -180, -360, -360, -360]),
    upper=np.radians([360, 360, 180, 360, 360, 360]),
    speed=np.radians([180] * 6),
    torque=np.array([150] * 3 + [28] * 3),
    rotor=np.array([0.1] * 6),
    masses=(3.761, 8.058, 2.846, 1.37, 1.3, 0.365, 0.74),
    ready=(-0.28, -1.38, 2.12, -2.31, -1.57, -0.26),
)

# The same table: centres of mass of links 1 to 6 in the frames behind the joints' rows.
UR5E_CENTRES = [
    *((0, -0.02561, 0.00193), (0.2125, 0, 0.11336), (0.15, 0, 0.0265)),
    *((0, -0.0018, 0.01634), (0, 0.0018, 0.01634), (0, 0, -0.001159)),
]

IIWA14 = Published(  # KUKA, "LBR iiwa 7 R800, LBR iiwa 14 R820, Specification"
    name="iiwa14",
    base="iiwa14_link0",
    urdfs=("iiwa14.urdf",),
    X_WB=np.eye(4),
    dh=np.array(
        [
            *((0, 0.36, 0), (0, 0, -QUARTER), (0, 0.42, QUARTER), (0, 0, QUARTER)),
            *((0, 0.4, -QUARTER), (0, 0, -QUARTER), (0, 0, QUARTER), (0, 0.126, 0)),
        ]
    ),
    transform=craig,
    flange="iiwa14_link8",
    hand_yaw=1.5 * QUARTER,
    finger=0.062,
    lower=-np.radians([170, 120, 170, 120, 170, 120, 175]),
    upper=np.radians([170, 120, 170, 120, 170, 120, 175]),
    speed=np.radians([85, 85, 100, 75, 130, 135, 135]),
    torque=np.array([320, 320, 176, 176, 110, 40, 40]),
    rotor=np.array([0.1] * 7),
    masses=(6.404, 7.89, 2.54, 4.82, 1.76, 2.5, 0.42, 0.74),
    ready=(0, 0.53, 0, -1.37, 0, 1.24, 0.8),
)

# Documentation of Exp[licit]: centres of mass of links 1 to 7, of the arm that points straight up.
IIWA14_CENTRES = [
    *((0, -0.014, 0.2545), (0, 0.003, 0.424), (0, 0.019, 0.6905), (0, -0.009, 0.866)),
    *((0, -0.013, 1.0585), (0, -0.002, 1.196), (0, 0, 1.2706)),
]
