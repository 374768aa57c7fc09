"""The UR5e's description in SI units: published parameters, joints, geometry by link, and a hand.

The first link is a stand, which carries the arm's base. The tubes of the upper arm and of the
forearm lie beside the plane of the joints' axes, by the offsets that [ROS] gives.

Frames follow the standard Denavit-Hartenberg convention: the pose of frame F_i in F_{i-1} is
RotZ(q_i) TransZ(d_i) TransX(a_i) RotX(alpha_i), and F_6 is the flange. The frame of link i in the
model file is F_{i-1} RotZ(q_i), so that the link turns about its own z axis.

Sources:

[DH] Universal Robots, "DH Parameters for calculations of kinematics and dynamics", support article,
    table UR5e: kinematics, masses and centres of mass. At q = 0 the arm lies along -x.
    https://www.universal-robots.com/articles/ur/application-installation/dh-parameters-for-calculations-of-kinematics-and-dynamics/
[ROS] Universal Robots, Universal_Robots_ROS2_Description, config/ur5e/physical_parameters.yaml:
    inertia tensors and the mass of the base; the article calls the tensors negligible.
[manual] Universal Robots e-Series User Manual, UR5e, and the support article "Max. joint torques",
    both as cited in config/ur5e/joint_limits.yaml of [ROS].
"""

from math import pi, radians

from fleet_tools.assets.robots import parallel_hand
from fleet_tools.assets.robots.arm_files import (
    ORIGIN,
    Box,
    Capsule,
    Inertial,
    Joint,
    Motor,
    RobotDescription,
    Vector3,
    Visual,
    Visuals,
    box_inertial,
    quarter_turn,
)

# [DH]: a [m], d [m], alpha [rad] of joints 1..6.
DH: tuple[Vector3, ...] = (
    (0, 0.1625, pi / 2),
    (-0.425, 0, 0),
    (-0.3922, 0, 0),
    (0, 0.1333, pi / 2),
    (0, 0.0997, -pi / 2),
    (0, 0.0996, 0),
)

# [manual]. The elbow's working range is 360 degrees either way too, but the upper arm is in its way
# beyond half a turn, which is the limit in [ROS] as well.
POSITION = tuple(radians(limit) for limit in (360, 360, 180, 360, 360, 360))  # rad, either way
VELOCITY = (radians(180),) * 6  # rad/s
TORQUE = (150, 150, 150, 28, 28, 28)  # N m

# Not published by the manufacturer; 0.1 kg m^2 is the armature of every joint in the UR5e of
# DeepMind's MuJoCo Menagerie.
REFLECTED_INERTIA = 0.1

# [DH], links 1..6: mass [kg], and centre of mass [m] in F_i.
MASS = (3.761, 8.058, 2.846, 1.37, 1.3, 0.365)
CENTRE: tuple[Vector3, ...] = (
    (0, -0.02561, 0.00193),
    (0.2125, 0, 0.11336),
    (0.15, 0, 0.0265),
    (0, -0.0018, 0.01634),
    (0, 0.0018, 0.01634),
    (0, 0, -0.001159),
)

# [ROS], links 1..6: moments xx yy zz and products xy xz yz about the centre of mass [kg m^2], along
# the axes of F_i.
INERTIA = (
    (0.00700210, 0.00648091, 0.00657286, 0.00000073, -0.00001053, 0.00049994),
    (0.01505885, 0.33388086, 0.33247207, -0.00005400, 0.00000563, -0.00000181),
    (0.00399632, 0.07879254, 0.07848510, -0.00001365, 0.00137272, -0.00000660),
    (0.00165491, 0.00135962, 0.00126279, -0.00000282, -0.00000438, 0.00010157),
    (0.00135617, 0.00127827, 0.00096614, -0.00000274, 0.00000444, -0.00005048),
    (0.00018694, 0.00018908, 0.00025756, 0.00000006, -0.00000017, -0.00000092),
)

# [ROS] says that the base's mass might be incorrect. The base is fixed, so nothing depends on it.
BASE_MASS = 4.0
BASE_SIZE = (0.15, 0.15, 0.09)

# Our stand, a column from the table's top to the base. The base is turned by half a turn on it, so
# that the arm lies along +x of the stand at q = 0. The height [m], the radius of the column [m] and
# its mass [kg], on which nothing depends, are our choice.
STAND_HEIGHT = 0.25
STAND_RADIUS = 0.07
STAND_MASS = 10.0

# Our hand is mounted with a quarter turn, so that the last joint is near the middle of its range
# when the hand is before the robot.
HAND_YAW = -pi / 2  # rad

UPPER_ARM, FOREARM = 0.425, 0.3922
SHOULDER, WRIST_1, WRIST_2 = 0.1625, 0.1333, 0.0997
UPPER_ARM_OFFSET, FOREARM_OFFSET = 0.138, 0.007

_LINKS = ("stand", *(f"link{i}" for i in range(7)))

VISUALS: Visuals = {
    **{name: [Visual(f"{name}_shell", "shell"), Visual(f"{name}_trim", "trim")] for name in _LINKS},
    **{name: [Visual(f"{name}_trim", "trim")] for name in ("stand", "link0", "link6")},
    **parallel_hand.VISUALS,
}

STAND = STAND_HEIGHT

CAPSULES = {
    "stand": [Capsule((0, 0, 0.075), (0, 0, STAND - 0.07), STAND_RADIUS)],
    "link0": [Capsule((0, 0, 0.08), (0, 0, 0.09), 0.075)],
    "link1": [
        Capsule((0, 0, 0.12), (0, 0, SHOULDER), 0.06),
        Capsule((0, 0, SHOULDER), (0, -0.03, SHOULDER), 0.06),
    ],
    "link2": [
        Capsule((0, 0, 0.1), (0, 0, UPPER_ARM_OFFSET), 0.06),
        Capsule((0, 0, UPPER_ARM_OFFSET), (-UPPER_ARM, 0, UPPER_ARM_OFFSET), 0.05),
        Capsule((-UPPER_ARM, 0, 0.1), (-UPPER_ARM, 0, UPPER_ARM_OFFSET), 0.055),
    ],
    "link3": [
        Capsule((0, 0, FOREARM_OFFSET), (0, 0, 0.04), 0.055),
        Capsule((0, 0, FOREARM_OFFSET), (-FOREARM, 0, FOREARM_OFFSET), 0.043),
    ],
    "link4": [
        Capsule((0, 0, 0.055), (0, 0, WRIST_1), 0.043),
        Capsule((0, 0, WRIST_1), (0, -0.015, WRIST_1), 0.043),
    ],
    "link5": [
        Capsule((0, 0, 0.055), (0, 0, WRIST_2), 0.043),
        Capsule((0, 0, WRIST_2), (0, 0.015, WRIST_2), 0.043),
    ],
    "link6": [Capsule((0, 0, 0.062), (0, 0, 0.064), 0.0355)],
}
BOXES = {
    "stand": [
        Box((0, 0, 0.0075), (0.2, 0.2, 0.015)),
        Box((0, 0, STAND - 0.0075), (0.16, 0.16, 0.015)),
    ],
    "link0": [Box((0, 0, 0.0075), (0.15, 0.15, 0.015))],
    **parallel_hand.BOXES,
}

HEADER = """
Universal Robots UR5e with a parallel hand of ours. Generated by assets/robots/ur5e/build.py: edit
that, not this. Kinematics, masses and centres of mass: Universal Robots, "DH Parameters for
calculations of kinematics and dynamics". Inertia tensors: Universal_Robots_ROS2_Description. Joint
limits: UR5e User Manual and "Max. joint torques". Reflected rotor inertias: not published; those of
MuJoCo Menagerie. Units: m, kg, s, rad, N.
"""


def description() -> RobotDescription:
    """Returns the arm with its hand; the flange is a frame without mass."""
    base_centre = (0, 0, BASE_SIZE[2] / 2)
    return RobotDescription(
        name="ur5e",
        header=HEADER,
        colours={"shell": "0.80 0.81 0.83 1", "trim": "0.24 0.26 0.29 1"},
        links=(*_LINKS, "flange", *parallel_hand.LINKS),
        joints=_joints(),
        hand_frame=parallel_hand.TCP,
        inertials={
            "stand": box_inertial(STAND_MASS, (0.2, 0.2, STAND), (0, 0, STAND / 2)),
            "link0": box_inertial(BASE_MASS, BASE_SIZE, base_centre),
            **{f"link{i}": _inertial(i) for i in range(1, 7)},
            **parallel_hand.INERTIALS,
        },
        capsules=CAPSULES,
        boxes=BOXES,
        rigid=("link6", *parallel_hand.LINKS),
        friction=parallel_hand.FRICTION,
        default_friction=0.4,  # painted metal
    )


def _end(i: int) -> tuple[Vector3, Vector3]:
    """Returns xyz and rpy of F_i in the frame of link i, which differ by the DH row without q."""
    a, d, alpha = DH[i - 1]
    return (a, 0, d), (alpha, 0, 0)


def _inertial(i: int) -> Inertial:
    """Returns the mass properties of link i in its frame; the tensor keeps the axes of F_i."""
    (a, _, d), rpy = _end(i)
    c, s = quarter_turn(rpy[0])
    x, y, z = CENTRE[i - 1]
    centre = (round(a + x, 9), round(c * y - s * z, 9), round(d + s * y + c * z, 9))
    return Inertial(MASS[i - 1], centre, INERTIA[i - 1], rpy)


def _joints() -> list[Joint]:
    """Returns the six joints, and the fixed ones of stand, flange, hand and fingers."""
    ends = [(ORIGIN, ORIGIN), *(_end(i) for i in range(1, 7))]
    joints = [Joint("stand_joint", "stand", "link0", (0, 0, STAND), (0, 0, pi))]
    for i, (limit, speed, torque) in enumerate(zip(POSITION, VELOCITY, TORQUE, strict=True)):
        xyz, rpy = ends[i]
        motor = Motor(-limit, limit, speed, torque, REFLECTED_INERTIA)
        joints.append(Joint(f"joint{i + 1}", f"link{i}", f"link{i + 1}", xyz, rpy, motor))
    joints.append(Joint("flange_joint", "link6", "flange", *ends[6]))
    return [*joints, *parallel_hand.joints("flange", HAND_YAW)]
