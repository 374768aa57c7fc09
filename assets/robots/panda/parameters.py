"""Published parameters of the Franka Emika Panda, in SI units.

Frames are those of the modified (Craig) Denavit-Hartenberg convention: the frame of link i turns
about its own z axis, and its pose in the frame of link i - 1 is
RotX(alpha) TransX(a) RotZ(q) TransZ(d).
"""

from math import pi

from fleet_tools.assets.robots.description import Inertial, Vector3

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
REFLECTED_INERTIA = (
    0.605721456,
    0.605721456,
    0.462474144,
    0.462474144,
    0.205544064,
    0.205544064,
    0.205544064,
)

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
