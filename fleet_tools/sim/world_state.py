"""What is so at one moment: values that predicates, rewards, observations and experts read."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydrake.math import RigidTransform


@dataclass(frozen=True)
class WorldState:
    """The world at one moment, as nobody in it could know it exactly: the privileged state.

    Forces are those of this very moment; a blow between two moments shows in the impulses alone.

    Attributes:
        time: Since the episode's start, s.
        q: (7,), the arm's joint positions, rad.
        v: (7,), their velocities, rad/s.
        tau_external: (7,), torque that contact with arm, hand and tool exerts on the arm's joints,
            N m, positive where it drives a joint towards greater angles. Gravity and inertia, the
            tool's too, are no part of it.
        X_WE: Pose of the end effector in the world.
        F_E: (6,), moment (N m), then force (N), that contact exerts on the end effector, tool
            included, at E's origin, expressed in E: a weight laid on the tool pulls down, a table
            pressed upon pushes up. Worked out from tau_external, as arms with torque sensors do
            (`fleet_tools.robot.osc.external_wrench`).
        p_W_tool: The tool's keypoints in the world, m.
        X_WO: Pose of the object's model frame in the world.
        p_W_object: The object's keypoints in the world, m.
        object_joints: Positions of the object's joints by name, m or rad.
        contacts: Pairs of parties that touch, each sorted: "robot", "tool", "table" and
            "object/<link>".
        F_W_tool: (6,), moment (N m), then force (N), that the object exerts on the tool by contact,
            at E's origin, expressed in the world; the tool exerts the opposite on the object.
        object_joint_forces: Generalized force that contact, with whatever touches the object,
            exerts on each of its joints now, by name: N along the axis of one that slides, N m
            about that of one that turns. Positive where it drives the joint towards greater
            positions; brakes, gravity and joint limits are no part of it.
        object_joint_impulses: Its integral over the last control step, N s or N m s: the sum of
            what every step of the dynamics applied. 0 at the episode's start.
        V_WE: (6,), angular (rad/s), then linear velocity (m/s) of the end effector.
        links: Position (m) and velocity (m/s) of the centre of mass of each link of the object, in
            the world, (3,) each.
    """

    time: float
    q: np.ndarray
    v: np.ndarray
    tau_external: np.ndarray
    X_WE: RigidTransform
    F_E: np.ndarray
    p_W_tool: dict[str, np.ndarray]
    X_WO: RigidTransform
    p_W_object: dict[str, np.ndarray]
    object_joints: dict[str, float]
    contacts: frozenset[tuple[str, str]]
    F_W_tool: np.ndarray
    object_joint_forces: dict[str, float]
    object_joint_impulses: dict[str, float]
    V_WE: np.ndarray
    links: dict[str, tuple[np.ndarray, np.ndarray]]

    def touch(self, one: str, other: str) -> bool:
        """Whether two parties touch; "object" stands for any of its links."""

        def is_one_of(party: str, name: str) -> bool:
            return party == name or (name == "object" and party.startswith("object/"))

        return any(
            (is_one_of(a, one) and is_one_of(b, other))
            or (is_one_of(a, other) and is_one_of(b, one))
            for a, b in self.contacts
        )

    def in_end_effector(self, p_W: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns points of the world as seen from the end effector, m."""
        X_EW = self.X_WE.inverse()
        return {name: X_EW @ p for name, p in p_W.items()}

    def forces(self) -> dict[str, Any]:
        """Returns what contact does to tool and object, as `info` reports it.

        Returns:
            `tool_force_N` and `tool_moment_Nm`, (3,) each, the halves of F_W_tool, and
            `object_joint_force` (N or N m) and `object_joint_impulse` (N s or N m s), by name.
        """
        return {
            "tool_force_N": self.F_W_tool[3:].copy(),
            "tool_moment_Nm": self.F_W_tool[:3].copy(),
            "object_joint_force": dict(self.object_joint_forces),
            "object_joint_impulse": dict(self.object_joint_impulses),
        }
