"""Episodes of random and of extreme actions, in which the joints are watched at every step."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydrake.systems.framework import Context, EventStatus

from fleet_tools.envs.outcomes import RUNNING
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.sim.simulation import Simulation

ActionKind = Literal["uniform", "corners", "held", "constant"]
"""Drawn from the box of actions; from its corners; corners held for 3 to 11 steps, or always."""

_HELD = {"corners": (1, 2), "held": (3, 12), "constant": (10_000, 10_001)}


@dataclass(frozen=True, eq=False)
class JointHistory:
    """What the joints did in every simulation step.

    Attributes:
        speed: (N, 7), over the declared limits.
        torque: (N, 7), over the declared limits.
        beyond: (N,), how far the furthest joint is beyond its range, rad; negative within it.
        touched: (N,), whether anything touches the arm, the hand or the tool.
    """

    speed: np.ndarray
    torque: np.ndarray
    beyond: np.ndarray
    touched: np.ndarray


def random_actions(kind: ActionKind, seed: int) -> Iterator[np.ndarray]:
    """Yields actions without end, (6,) float32."""
    rng = np.random.default_rng(seed)
    while True:
        if kind == "uniform":
            yield rng.uniform(-1.0, 1.0, 6).astype(np.float32)
        else:
            corner = rng.choice([-1.0, 1.0], 6).astype(np.float32)
            for _ in range(rng.integers(*_HELD[kind])):
                yield corner


def joint_history(env: ToolUseEnv, kind: ActionKind, seed: int) -> JointHistory:
    """Runs an episode, and returns what the joints did."""
    env.reset(seed=seed)
    simulation = env.simulation
    assert simulation is not None  # during an episode
    watched: list[tuple[np.ndarray, np.ndarray, float, bool]] = []
    simulation._simulator.set_monitor(_watch(simulation, watched))
    for action in random_actions(kind, seed):
        env.step(action)
        if env.get_state().outcome != RUNNING:
            break
    simulation._simulator.clear_monitor()
    return JointHistory(*(np.array(values) for values in zip(*watched, strict=True)))


def _watch(simulation: Simulation, watched: list):
    world = simulation.world
    plant, limits = world.plant, world.adjustable.arm_model.limits
    actuation = plant.get_net_actuation_output_port(world.arm)
    contact = plant.get_generalized_contact_forces_output_port(world.arm)

    def watch(root: Context) -> EventStatus:
        context = plant.GetMyContextFromRoot(root)
        q, v = plant.GetPositions(context, world.arm), plant.GetVelocities(context, world.arm)
        watched.append(
            (
                np.abs(v) / limits.speed,
                np.abs(actuation.Eval(context)) / limits.effort,
                float(np.maximum(q - limits.upper, limits.lower - q).max()),
                bool(np.any(contact.Eval(context))),
            )
        )
        return EventStatus.Succeeded()

    return watch
