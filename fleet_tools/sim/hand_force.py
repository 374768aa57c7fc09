"""The contact force on the hand, computed from the motion of the arm.

In every step of the dynamics it follows from the equation of motion of the arm, M vdot + bias =
tau + J^T F: the force that accelerates the arm beside motors and gravity is contact. Drake's
contact forces have the same impulses once its solver has converged (`benchmarks/exam/episodes.py`).
This way, metrics stay right also with a model on which it does not (`resting_faces`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex
from pydrake.systems.framework import Context, DiagramBuilder, TriggerType
from pydrake.systems.primitives import Multiplexer, VectorLogSink

from fleet_tools.config.control import TIME_STEP
from fleet_tools.robot.arm_model import ArmModel
from fleet_tools.robot.limits import JointLimits
from fleet_tools.robot.osc import external_wrench
from fleet_tools.robot.serial_arm import SerialArm, equation_of_motion
from fleet_tools.sim.part_motion import PartMotionMeter
from fleet_tools.utils.straight_line import BoundRoutine, straight_line
from fleet_tools.utils.symbols import zeros

BOTH_N = 0.5
"""Least force that is left beside that on the object, from which the hand touches both, N."""


class HandForces(NamedTuple):
    """Contact forces and work of the hand (arm and tool) in a control step.

    Its force counts as that on the table while it touches no moving link of an object, and as that
    on the object while it touches nothing else. Where a scene has several objects, it is that on
    any of them. While it touches both, the force on the object is what part-motion attribution
    reads every fourth step, and the rest is that on the table. What is fixed to the world, such as
    the block of a nail, counts as table. Where the task names no `tool_parts`, nobody reads what is
    touched, and all counts as force on the object.

    Attributes:
        object_peak_N, table_peak_N: Largest force, as the mean of a period of the controller
            (4 ms), which is a step of the dynamics unless the world has substeps, N.
        object_impulse_Ns, table_impulse_Ns: Time integral of the sizes of forces, N s.
        object_s, table_s: Time in contact, in whole periods, s.
        table_work_J: Work of the hand while it touches the table: what friction and impact take,
            since the table does not move. While it touches both, that on the object is part of it.
    """

    object_peak_N: float = 0.0
    object_impulse_Ns: float = 0.0
    object_s: float = 0.0
    table_peak_N: float = 0.0
    table_impulse_Ns: float = 0.0
    table_s: float = 0.0
    table_work_J: float = 0.0


NO_CONTACT = HandForces()
_ROUNDING = 1e-6  # of times, in steps


@dataclass(frozen=True, eq=False)
class HandForceLog:
    """Records each step of the dynamics in a control step, of which `HandForces` follow.

    The log is Drake's own, so that a step costs no call of Python, and nothing depends on it.

    Attributes:
        sink: Logs the state, the motors' torques and the contact torques of the arm, as Drake
            reports these, and the states of the part-motion meters, in rows.
        part_motions: Who reads what is touched, for each object; nobody if empty.
        model: Model of the arm with what its hand holds.
        time_step: Of the dynamics, s.
    """

    sink: VectorLogSink
    part_motions: Sequence[PartMotionMeter]
    model: ArmModel
    time_step: float

    @cached_property
    def _step(self) -> BoundRoutine:
        """`force_and_work`."""
        n, model = self.model.num_joints, self.model.packed
        return force_and_work.bind(
            model, np.zeros(2 * n), np.zeros(2 * n), np.zeros(n), np.zeros(3), self.time_step
        )

    def begin(self, root: Context) -> None:
        """Begins a control step, once its reference and external forces are set.

        Args:
            root: Context of the diagram.
        """
        self.sink.FindMutableLog(root).Clear()
        if _is_due(root.get_time() / self.time_step):  # else the dynamics make no step now
            self.sink.ForcedPublish(self.sink.GetMyContextFromRoot(root))

    def forces(
        self,
        root: Context,
        on_hand: Sequence[float] | np.ndarray,
        on_object: np.ndarray,
    ) -> HandForces:
        """Returns the forces and work of the finished control step.

        Args:
            root: Context of the diagram.
            on_hand: (3,), another force on the end effector in all of it, N, in the world.
            on_object: (3,), the sum of other forces on the object in all of it, likewise.
        """
        n, recorded = self.model.num_joints, self.sink.FindLog(root)
        log = recorded.data().T
        times = recorded.sample_times()
        is_step = _before_updates(times, log[:, : 2 * n], self.time_step)
        steps = np.flatnonzero(is_step & log[:-1, 3 * n : 4 * n].any(axis=1))
        if not steps.size:
            return NO_CONTACT
        step, did = self._step, np.empty((steps.size, 4))
        _, before, after, tau, pushed, _ = step.inputs
        step.put(0, self.model.packed)
        pushed[:] = on_hand
        for i, k in enumerate(steps):
            before[:], tau[:] = log[k, : 2 * n], log[k, 2 * n : 3 * n]
            after[:] = log[k + 1, : 2 * n]
            did[i] = step()
        force, work = did[:, :3], did[:, 3]
        # What was read of a step is known after it.
        read, is_new = self._read(log[steps + 1, 4 * n :], force, on_object)
        touched, rest = read.any(axis=1), np.linalg.norm(force - read, axis=1)
        both = touched & _as_read_last(rest > BOTH_N, is_new | ~touched)
        whole = np.linalg.norm(force, axis=1)
        on_table = both | ~touched
        object_sizes = np.where(both, np.linalg.norm(read, axis=1), whole)
        periods = np.floor(times[steps] / TIME_STEP + _ROUNDING)
        return HandForces(
            *self._sums(object_sizes[touched], periods[touched]),
            *self._sums(np.where(both, rest, whole)[on_table], periods[on_table]),
            table_work_J=float(work[on_table].sum()),
        )

    def _read(
        self, state: np.ndarray, force: np.ndarray, on_object: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the force on objects as read, (steps, 3), N, and whether in this step."""
        if not self.part_motions:
            return force, np.ones(len(force), bool)
        ends = np.cumsum([each.get_output_port().size() for each in self.part_motions])
        readings = [
            each.last_reading(of_object)
            for each, of_object in zip(
                self.part_motions, np.split(state, ends[:-1], axis=1), strict=True
            )
        ]
        is_new = [(age == 0.0) | ~(read - on_object).any(axis=1) for read, age in readings]
        return sum(read for read, _ in readings) - on_object, np.all(is_new, axis=0)

    def _sums(self, sizes: np.ndarray, periods: np.ndarray) -> tuple[float, float, float]:
        """Returns peak, impulse and time of forces of some steps, by periods of the controller."""
        _, inverse = np.unique(periods, return_inverse=True)
        means = np.bincount(inverse, sizes) / round(TIME_STEP / self.time_step)
        return float(means.max(initial=0.0)), float(means.sum()) * TIME_STEP, means.size * TIME_STEP


def add_hand_force_log(
    builder: DiagramBuilder,
    plant: MultibodyPlant,
    arm: ModelInstanceIndex,
    model: ArmModel,
    part_motions: Sequence[PartMotionMeter],
) -> HandForceLog:
    """Adds a `HandForceLog` to a diagram.

    Args:
        builder: Builder of the diagram.
        plant: The finalized plant.
        arm: Model instance of the arm.
        model: Model of the arm with what its hand holds.
        part_motions: Who reads what is touched, for each object; nobody if empty.
    """
    ports = [
        plant.get_state_output_port(arm),
        plant.get_net_actuation_output_port(arm),
        plant.get_generalized_contact_forces_output_port(arm),
        *(each.get_output_port() for each in part_motions),
    ]
    joined = builder.AddSystem(Multiplexer([port.size() for port in ports]))
    for k, port in enumerate(ports):
        builder.Connect(port, joined.get_input_port(k))
    size = joined.get_output_port().size()
    triggers = {TriggerType.kPerStep, TriggerType.kForced}
    sink = builder.AddSystem(VectorLogSink(size, triggers, 0.0))
    builder.Connect(joined.get_output_port(), sink.get_input_port())
    return HandForceLog(sink, tuple(part_motions), model, plant.time_step())


def _before_updates(times: np.ndarray, states: np.ndarray, h: float) -> np.ndarray:
    """Returns after which rows of a log, but the last, the dynamics made a step.

    A row may also be of the end of a control step, where they make none.

    Args:
        times: (rows,), s.
        states: (rows, 2 n), states of the arm.
        h: Time step, s.
    """
    due = _is_due(times[:-1] / h)
    passed = np.diff(times) > _ROUNDING * h
    return due & (passed | (states[1:] != states[:-1]).any(axis=1))


def _is_due(steps: Any) -> Any:
    """Returns whether the dynamics make a step at a time, given in time steps; or for an array."""
    return np.abs(steps - np.round(steps)) < _ROUNDING


def _as_read_last(values: np.ndarray, is_new: np.ndarray) -> np.ndarray:
    """Returns for each step the last value that is new, or the first one before there is any."""
    new = np.flatnonzero(is_new)
    if not new.size:
        return np.zeros(len(values), bool)
    last = np.searchsorted(new, np.arange(len(values)), "right") - 1
    return values[new[np.maximum(last, 0)]]


@straight_line
def force_and_work(
    model: tuple[SerialArm, JointLimits],
    before: np.ndarray,
    after: np.ndarray,
    tau: np.ndarray,
    external: np.ndarray,
    h: float,
) -> np.ndarray:
    """Returns the contact forces of the hand in a step of the dynamics.

    Args:
        model: The arm, and the limits of its joints.
        before: (2 n,), joint positions and velocities at the beginning, rad and rad/s.
        after: (2 n,), those at the end.
        tau: (n,), torques of the motors, N m.
        external: (3,), another force on the hand, N.
        h: Time step, s.

    Returns:
        (4,), its force on what it touches, in W, N; and its work, J.
    """
    (arm, _), n = model, tau.size
    M, bias, J, _, _ = equation_of_motion(arm, before[:n], before[n:])
    contact, result = zeros(n), zeros(4)
    for i in range(n):
        contact[i] = bias[i] - tau[i]
        for j in range(n):
            contact[i] += M[i, j] * (after[n + j] - before[n + j]) / h
        for k in range(3):
            contact[i] -= J[3 + k, i] * external[k]
        # With the mean velocity of the step, work changes energy by as much.
        result[3] -= contact[i] * (before[n + i] + after[n + i]) / 2.0 * h
    F = external_wrench(J, contact)
    for k in range(3):
        result[k] = -F[3 + k]
    return result
