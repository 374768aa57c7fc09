"""The Panda's description in SI units: published parameters, joints, and geometry by link.

Frames follow the modified (Craig) Denavit-Hartenberg convention: the frame of link i turns
about its own z axis, and its pose in the frame of link i - 1 is
RotX(alpha) TransX(a) RotZ(q) TransZ(d).
"""

from math import pi

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
    craig_joint,
)

# Franka Control Interface documentation, "Robot and interface specifications":
# Denavit-Hartenberg parameters a [m], d [m], alpha [rad] of joints 1..7.
DH: tuple[Vector3, ...] = (
    (0, 0.333, 0),
    (0, 0, -pi / 2),
    (0, 0.316, pi / 2),
    (0.0825, 0, pi / 2),
    (-0.0825, 0.384, -pi / 2),
    (0, 0, pi / 2),
    (0.088, 0, pi / 2),
)
# The flange in the same table: position of link 8 along z of link 7 [m].
FLANGE = 0.107

# Ibid., "Joint space limits" (those of the Panda, not of the FR3).
POSITION_LOWER = (-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973)  # rad
POSITION_UPPER = (2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973)  # rad
VELOCITY = (2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61)  # rad/s
ACCELERATION = (15, 7.5, 10, 12.5, 15, 20, 20)  # rad/s^2
TORQUE = (87, 87, 87, 87, 12, 12, 12)  # Nm

# Reflected rotor inertia [kg m^2] of joints 1..7: Franka's values for the FR3, the Panda's
# successor, as cited (and used for the Panda) in the README of Drake's franka_description.
REFLECTED_INERTIA = (*[0.605721456] * 2, *[0.462474144] * 2, *[0.205544064] * 3)

# Gaz, Cognetti, Oliva, Robuffo Giordano, De Luca: "Dynamic Identification of the Franka Emika
# Panda Robot With Retrieval of Feasible Parameters Using Penalty-Based Optimization", IEEE RA-L
# 4(4), 2019; links 0..7 to the digits that franka_ros (common/inertial.yaml) gives:
# mass [kg], centre of mass [m], central moments xx yy zz and products xy xz yz [kg m^2].
INERTIALS = (
    Inertial(0.629769, (-0.041018, -0.00014, 0.049974),
     (0.00315, 0.00388, 0.004285, 8.2904e-07, 0.00015, 8.2299e-06)),
    Inertial(4.970684, (0.003875, 0.002081, -0.04762),
     (0.70337, 0.70661, 0.009117, -0.000139, 0.006772, 0.019169)),
    Inertial(0.646926, (-0.003141, -0.02872, 0.003495),
     (0.007962, 0.02811, 0.025995, -0.003925, 0.010254, 0.000704)),
    Inertial(3.228604, (0.027518, 0.039252, -0.066502),
     (0.037242, 0.036155, 0.01083, -0.004761, -0.011396, -0.012805)),
    Inertial(3.587895, (-0.05317, 0.104419, 0.027454),
     (0.025853, 0.019552, 0.028323, 0.007796, -0.001332, 0.008641)),
    Inertial(1.225946, (-0.011953, 0.041065, -0.038437),
     (0.035549, 0.029474, 0.008627, -0.002117, -0.004037, 0.000229)),
    Inertial(1.666555, (0.060149, -0.014117, -0.010517),
     (0.001964, 0.004354, 0.005433, 0.000109, -0.001158, 0.000341)),
    Inertial(0.735522, (0.010517, -0.004252, 0.061597),
     (0.012516, 0.010027, 0.004815, -0.000428, -0.001196, -0.000741)),
)  # fmt: skip

# Franka Hand, after franka_ros (inertial.yaml, franka_hand.xacro): masses [kg], the hand's centre
# of mass along z [m], mounting yaw on link 8 [rad], p_HandTcp and p_HandFinger along z [m].
# The moments given there are largest about y, the hand's long side, and so cannot be in the hand's
# own frame: those of solid boxes with the outer sizes [m] of hand and finger replace them.
HAND_MASS = 0.73
HAND_BOX = (0.041, 0.204, 0.066)
HAND_CENTRE = (0, 0, 0.03)
HAND_YAW = -pi / 4
HAND_TCP = 0.1034
FINGER_MASS = 0.015
FINGER_BOX = (0.021, 0.015, 0.054)
FINGER_CENTRE = (0, 0.0146, 0.0228)  # after Drake's model; left finger, mirrored for the right
FINGER_MOUNT = 0.0584
FINGER_OPENING = 0.015  # our choice: distance of each finger from the middle, for 30 mm handles


BESIDE: Vector3 = (-0.0825, 0, 0)
TURN_X, TURN_BACK_X, TURN_Z = (pi / 2, 0, 0), (-pi / 2, 0, 0), (0, 0, pi)


# Links 2 and 4 are links 1 and 3 turned over.
VISUALS: Visuals = {
    "link0": [Visual("link0_shell", "shell"), Visual("link0_trim", "trim")],
    "link1": [Visual("link1_shell", "shell")],
    "link2": [Visual("link1_shell", "shell", ORIGIN, TURN_BACK_X)],
    "link3": [Visual("link3_shell", "shell"), Visual("link3_trim", "trim")],
    "link4": [
        Visual("link3_shell", "shell", BESIDE, TURN_X),
        Visual("link3_trim", "trim", BESIDE, TURN_X),
    ],
    "link5": [Visual("link5_shell", "shell"), Visual("link5_trim", "trim")],
    "link6": [Visual("link6_shell", "shell"), Visual("link6_trim", "trim")],
    "link7": [Visual("link7_shell", "shell"), Visual("link7_trim", "trim")],
    "hand": [Visual("hand_shell", "shell"), Visual("hand_trim", "trim")],
    "leftfinger": [Visual("finger_shell", "grey"), Visual("finger_trim", "trim")],
    "rightfinger": [
        Visual("finger_shell", "grey", ORIGIN, TURN_Z),
        Visual("finger_trim", "trim", ORIGIN, TURN_Z),
    ],
}
FRANKA_VISUALS: Visuals = {
    **{name: [Visual(name)] for name in (*(f"link{i}" for i in range(8)), "hand")},
    "leftfinger": [Visual("finger", None, ORIGIN, TURN_X)],
    "rightfinger": [Visual("finger", None, ORIGIN, (pi / 2, 0, pi))],
}

# Collision geometry by link. Capsules extend over the seams into the next link, with which they do
# not collide: the arm's links ignore each other.
CAPSULES = {
    "link0": [Capsule((-0.02, 0, 0.06), (0, 0, 0.12), 0.058)],
    "link1": [
        Capsule((0, 0, -0.18), (0, -0.035, -0.075), 0.055),
        Capsule((0, -0.073, 0), (0, 0, 0), 0.055),
    ],
    "link2": [
        Capsule((0, -0.18, 0), (0, -0.075, 0.035), 0.055),
        Capsule((0, 0, 0.073), (0, 0, 0), 0.055),
    ],
    "link3": [
        Capsule((0, 0, -0.115), (0, 0, -0.05), 0.055),
        Capsule((0.0825, 0, 0), (0.0825, 0.057, 0), 0.056),
    ],
    "link4": [
        Capsule((-0.0825, 0.115, 0), (-0.0825, 0.05, 0), 0.055),
        Capsule((0, 0, 0), (0, 0, 0.057), 0.056),
    ],
    "link5": [
        Capsule((0, 0, -0.25), (0, 0.03, -0.175), 0.055),
        Capsule((0, 0.06, -0.16), (0, 0.08, -0.07), 0.045),
        Capsule((0, 0, 0), (0, 0.07, 0), 0.056),
    ],
    "link6": [
        Capsule((0.088, -0.03, 0), (0.088, 0.038, 0), 0.046),
        Capsule((0, 0, 0.008), (0.06, 0, 0), 0.05),
    ],
    "link7": [
        Capsule((0, 0, 0.055), (0, 0, 0.07), 0.046),
        Capsule((0.03, 0.03, 0.076), (0.06, 0.06, 0.076), 0.026),
    ],
}
BOXES = {
    "link0": [Box((-0.04, 0, 0.03), (0.222, 0.17, 0.06))],
    "hand": [Box((0, 0, 0.033), HAND_BOX)],
    "leftfinger": [
        Box((0, 0.0185, 0.014), (0.021, 0.015, 0.028)),
        Box((0, 0.0076, 0.0415), (0.0176, 0.0152, 0.024)),
    ],
}
BOXES["rightfinger"] = [Box((x, -y, z), size) for (x, y, z), size in BOXES["leftfinger"]]

HEADER = """
Franka Emika Panda with hand. Generated by assets/robots/panda/build.py: edit that, not this.
Kinematics and joint limits: Franka Control Interface documentation (modified DH parameters).
Inertias of links 0 to 7: Gaz, Cognetti, Oliva, Robuffo Giordano, De Luca, "Dynamic Identification
of the Franka Emika Panda Robot With Retrieval of Feasible Parameters Using Penalty-Based
Optimization", IEEE RA-L 4(4), 2019. Reflected rotor inertias: Franka's for the FR3.
Hand and fingers: Franka's masses, as solid boxes. Units: m, kg, s, rad, N.
"""


def description() -> RobotDescription:
    """Returns the arm with its hand; link 8 is a frame without mass."""
    mass, size = FINGER_MASS, FINGER_BOX
    x, y, z = FINGER_CENTRE
    return RobotDescription(
        name="panda",
        header=HEADER,
        colours={
            "shell": "0.93 0.935 0.94 1",
            "trim": "0.07 0.075 0.08 1",
            "grey": "0.55 0.56 0.57 1",
        },
        links=(*(f"link{i}" for i in range(9)), "hand", "leftfinger", "rightfinger"),
        joints=_joints(),
        hand_frame=("hand_tcp", "hand", (0, 0, HAND_TCP)),
        inertials={
            **{f"link{i}": inertial for i, inertial in enumerate(INERTIALS)},
            "hand": box_inertial(HAND_MASS, HAND_BOX, HAND_CENTRE),
            "leftfinger": box_inertial(mass, size, (x, y, z)),
            "rightfinger": box_inertial(mass, size, (x, -y, z)),
        },
        capsules=CAPSULES,
        boxes=BOXES,
        rigid=("link7", "hand", "leftfinger", "rightfinger"),
        friction={"leftfinger": 0.9, "rightfinger": 0.9},  # rubber pads
        default_friction=0.4,  # painted metal
    )


def _joints() -> list[Joint]:
    """Returns the seven joints, and the fixed ones of flange, hand and fingers."""
    columns = (POSITION_LOWER, POSITION_UPPER, VELOCITY, TORQUE, REFLECTED_INERTIA, ACCELERATION)
    rows = zip(DH, zip(*columns, strict=True), strict=True)
    joints = [craig_joint(i, row, Motor(*motor)) for i, (row, motor) in enumerate(rows, start=1)]
    joints.append(Joint("joint8", "link7", "link8", (0, 0, FLANGE)))
    joints.append(Joint("hand_joint", "link8", "hand", ORIGIN, (0, 0, HAND_YAW)))
    for i, (side, y) in enumerate((("left", 1), ("right", -1)), start=1):
        xyz = (0, y * FINGER_OPENING, FINGER_MOUNT)
        joints.append(Joint(f"finger_joint{i}", "hand", f"{side}finger", xyz))
    return joints
