"""The privileged state of the world, for success and rewards, and snapshots of it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.robot.controller import Reference
from fleet_tools.sim.attribution import PartMotion
from fleet_tools.sim.hand_force import NO_CONTACT, HandForces

OTHER = "other"
"""Name in contacts of all links of objects that are not the one in use."""


@dataclass(frozen=True)
class WorldState:
    """The exact state of the world at one moment; its object is the one that is in use.

    Forces are this moment's; an impact between two moments shows in the impulses alone.

    Attributes:
        time: Time since the start of the episode, s.
        q: (n,), joint positions of the arm, rad.
        v: (n,), joint velocities, rad/s.
        tau_external: (n,), torques on the arm's joints from contact with arm, hand and tool, N m,
            positive where they drive a joint towards greater angles. Gravity and inertia, the
            tool's included, are not part of them.
        X_WE: Pose of the end effector in the world.
        F_E: (6,), moment (N m), then force (N), on the end effector (tool included) from contact,
            at E's origin, expressed in E. A weight laid on the tool pulls down, a table pressed
            upon pushes up. It is computed from tau_external, as on arms with torque sensors
            (`fleet_tools.robot.osc.external_wrench`).
        p_W_tool: Keypoints of the tool in the world, m.
        X_WO: Pose of the object's model frame in the world.
        p_W_object: Keypoints of the object in the world, m.
        p_W_place: (3,), the marked place on the table, m; None in tasks without one.
        object_joints: Positions of the object's joints by name, m or rad.
        contacts: Pairs of bodies in contact, each sorted: "robot", "tool", "table",
            "object/<link>", and `OTHER`.
        F_W_tool: (6,), moment (N m), then force (N), on the tool from contact with the object, at
            E's origin, expressed in the world; the object receives the opposite.
        object_joint_forces: Generalized contact force on each of the object's joints, by name: N
            along a prismatic joint's axis, N m about a revolute joint's. Positive where it drives
            the joint towards greater positions; brakes, gravity and joint limits are not part of
            it.
        object_joint_impulses: Time integral of these forces over the last control step, N s or
            N m s; 0 at the start of the episode.
        V_WE: (6,), angular (rad/s), then linear velocity (m/s) of the end effector.
        links: Position (m) and velocity (m/s) of the centre of mass of each link of the object, in
            the world, (3,) each.
        motion_scale: Part of the action's motion that the arm was to make in the last control
            step, at most 1; less where the motion was too fast for a joint, or led beyond its
            range.
        hand_forces: What the hand did by contact in the last control step.
        limit_times: (n,) each, time of the last control step in which a limit of "position",
            "velocity" or "torque" of a joint slowed the arm, s; where several would, the one that
            slows it most counts.
        part_motion: Motion of the object, since it is in use, that each of the task's `tool_parts`
            caused, by the name of the part.
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
    motion_scale: float
    limit_times: dict[str, np.ndarray]
    part_motion: dict[str, PartMotion] = field(default_factory=dict)
    p_W_place: np.ndarray | None = None
    hand_forces: HandForces = NO_CONTACT

    def in_contact(self, one: str, other: str) -> bool:
        """Whether two bodies are in contact; "object" stands for any of its links."""

        def matches(body: str, name: str) -> bool:
            return body == name or (name == "object" and body.startswith("object/"))

        return any(
            (matches(a, one) and matches(b, other)) or (matches(a, other) and matches(b, one))
            for a, b in self.contacts
        )

    def in_end_effector(self, p_W: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns points of the world in the frame of the end effector, m."""
        X_EW = self.X_WE.inverse()
        return {name: X_EW @ p for name, p in p_W.items()}

    def forces(self) -> dict[str, Any]:
        """Returns the contact forces on tool and object, as `info` reports them.

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

    def limits(self) -> dict[str, Any]:
        """Returns the effect of the arm's limits in the last control step, as in `info`.

        Returns:
            `motion_scale`, and `position_s`, `velocity_s` and `torque_s`, (n,) each.
        """
        times = {f"{kind}_s": seconds.copy() for kind, seconds in self.limit_times.items()}
        return {"motion_scale": self.motion_scale} | times


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The simulation at one moment; restored in the same scene, it continues bit for bit.

    Attributes:
        step: Control steps since the start of the episode.
        x: Positions and velocities of the plant.
        reference: The controller's reference.
        impulse: Contact impulse on the object's degrees of freedom during the last control step.
        attribution: What `fleet_tools.sim.part_motion` knows of who moved each object.
        hand_forces: What the hand did by contact in the last control step.
        limit_times: (21,), time for which each limit of the arm bound during it, s.
        objects_done: Number of objects before the one that is in use, whose the impulse is.
    """

    step: int
    x: np.ndarray
    reference: Reference
    impulse: np.ndarray
    attribution: np.ndarray
    hand_forces: HandForces
    limit_times: np.ndarray
    objects_done: int = 0

    def digest(self) -> int:
        """Returns a 64-bit hash of the exact bits on which the next step depends.

        These are step, x, the end of the reference, attribution and objects done.
        """
        content = self.step.to_bytes(8, "little") + self.x.tobytes() + self.attribution.tobytes()
        content += self.reference.end.GetAsMatrix34().tobytes()
        content += bytes(self.objects_done)  # nothing for the first
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
