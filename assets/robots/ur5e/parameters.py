"""Published parameters of the Universal Robots UR5e, in SI units, and those of our hand for it.

Frames are those of the standard Denavit-Hartenberg convention: the pose of frame F_i in F_{i-1} is
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

from fleet_tools.assets.robots.description import Vector3

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

# Our hand: a parallel gripper of solid boxes, whose sizes [m] and masses [kg] are our choice. Its
# fingers close along y, 30 mm apart. It is mounted with a quarter turn, so that the last joint is
# near the middle of its range when the hand is before the robot.
HAND_YAW = -pi / 2  # rad
HAND_MASS = 0.7
HAND_BOX = (0.052, 0.148, 0.064)
HAND_CENTRE = (0, 0, 0.032)
HAND_TCP = 0.1034  # p_HandTcp along z: as far from the flange as that of the Panda's hand
FINGER_MASS = 0.02
FINGER_BOX = (0.02, 0.016, 0.05)
FINGER_CENTRE = (0, 0.008, 0.025)  # left finger, mirrored for the right
FINGER_MOUNT = 0.062
FINGER_OPENING = 0.015
