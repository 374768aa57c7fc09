"""The arena of the paper's appendix: fleets of linear controllers imitate experts and are merged.

Each robot has a plant and an expert, the optimal controller of its task, and learns from three
episodes of it. The measure is J / J*, the cost of a controller relative to the optimum of a task,
as the mean over the robots' tasks. If a controller does not stabilize a plant, its cost is
infinite.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from fleet_tools.baselines.experiments.cells import Cells
from fleet_tools.baselines.experiments.form import Experiment, Run
from fleet_tools.baselines.linear_control.learning import learn_by_gradient, learn_static
from fleet_tools.baselines.linear_control.lqg import (
    cost,
    optimal_controller,
    optimal_cost,
    simulate,
)
from fleet_tools.baselines.linear_control.merging import METHODS
from fleet_tools.baselines.linear_control.systems import (
    STATE_WEIGHTS,
    Controller,
    LinearSystem,
    controller_from_vector,
    paper_system,
)
from fleet_tools.config.values import Count, Value
from fleet_tools.errors import require_name


class LinearFleetConfig(Value):
    """A fleet of linear controllers.

    Attributes:
        data: Not needed: robots learn from episodes of their experts.
        controllers: "static": laws u = K y of exact states (LQR). "dynamic": laws of 50 outputs
            (LQG). "opposite": optimal dynamic laws, half of them transformed by -I. If the plant is
            unstable and of odd dimension, no path of stabilizing controllers joins these.
        tasks: Number of different tasks, 1 or 10, of the ten robots.
        unstable: Whether the plant is the unstable one.
        iterations: Largest number of steps in each of the two phases of learning.
        method: Name of the merging method, see `merging.METHODS`.
    """

    data: tuple[str, ...] = ()
    controllers: Literal["static", "dynamic", "opposite"] = "dynamic"
    tasks: Literal[1, 10] = 1
    unstable: bool = False
    iterations: Count = 200
    method: str = "average"


Planned = tuple[LinearFleetConfig, int, str | None]
"""Configuration, seed, and name of the reference."""

_ROBOTS, _EPISODES, _STEPS, _OUTPUTS = 10, 3, 100, 50


class LinearControl:
    """Fleets of linear controllers; the keys of runs are in `LinearFleetConfig`.

    Args:
        experiment: The experiment.
    """

    references: ClassVar[tuple[str, ...]] = ("single", "joint")

    def __init__(self, experiment: Experiment) -> None:
        """Needs nothing of the experiment."""

    def plan(self, run: Run) -> Planned:
        """See `ExperimentArena`. "single" is each robot's own controller, "joint" learns all."""
        config = run.parsed(LinearFleetConfig)
        require_name("method that merges linear controllers", config.method, METHODS)
        return config, run.seed, run.arm if run.is_reference else None

    def learns(self, plan: Planned) -> str:
        """See `ExperimentArena`."""
        return f"{_fleet_settings(plan)}"

    def measure(self, plan: Planned, folder: Path) -> dict[str, Any]:
        """See `ExperimentArena`: the "cost" J / J*, where None is infinity."""
        config, seed, reference = plan
        cells, settings = Cells(folder / "cells"), _fleet_settings(plan)
        systems = _systems(config, seed)

        def controllers(joint: bool) -> list[Controller]:
            found = cells.get_or_compute(
                settings | {"joint": joint},
                lambda: _as_data(_learned(config, systems, seed, joint)),
            )
            return [
                controller_from_vector(np.array(vector), shape)
                for vector, shape in zip(found["vectors"], found["shapes"], strict=True)
            ]

        if reference is not None:
            return {"cost": _relative_cost(systems, controllers(reference == "joint"))}
        robots = controllers(joint=False)
        merged = METHODS[config.method](robots).controller
        return {"cost": _relative_cost(systems, [merged] * len(systems))}


def _fleet_settings(plan: Planned) -> dict[str, Any]:
    config, seed, _ = plan
    of_fleet = config.model_dump(include={"controllers", "tasks", "unstable", "iterations"})
    return {"arena": "linear_control", **of_fleet, "seed": seed}


def _systems(config: LinearFleetConfig, seed: int) -> list[LinearSystem]:
    """Returns the plant and task of each robot."""
    outputs = None if config.controllers == "static" else _OUTPUTS
    weights = STATE_WEIGHTS if config.tasks == 10 else [1.0] * _ROBOTS
    return [
        paper_system(unstable=config.unstable, outputs=outputs, alpha=float(alpha), seed=seed)
        for alpha in weights
    ]


def _learned(
    config: LinearFleetConfig, systems: Sequence[LinearSystem], seed: int, joint: bool
) -> list[Controller]:
    """Returns the controller of each robot; with `joint`, copies of one that learned from all."""
    experts = [optimal_controller(system) for system in systems]
    if config.controllers == "opposite":
        turned = [each.transformed(-np.eye(each.shape[0])) for each in experts[_ROBOTS // 2 :]]
        return experts if joint else [*experts[: _ROBOTS // 2], *turned]
    rng = np.random.default_rng(seed)
    own = [
        simulate(system, expert, rng, episodes=_EPISODES, steps=_STEPS)
        for system, expert in zip(systems, experts, strict=True)
    ]

    def learn(y: np.ndarray, u: np.ndarray) -> Controller:
        if config.controllers == "dynamic":
            return learn_by_gradient(y, u, systems[0].n, rng, iterations=config.iterations)
        return learn_static(y, u)

    if joint:
        all_y, all_u = (np.concatenate([getattr(each, name) for each in own]) for name in "yu")
        return [learn(all_y, all_u)] * len(systems)
    return [learn(each.y, each.u) for each in own]


def _as_data(controllers: Sequence[Controller]) -> dict[str, Any]:
    return {
        "vectors": [each.to_vector().tolist() for each in controllers],
        "shapes": [list(each.shape) for each in controllers],
    }


def _relative_cost(
    systems: Sequence[LinearSystem], controllers: Sequence[Controller]
) -> float | None:
    """Returns the mean over robots of J / J*; None if it is infinite."""
    pairs = zip(systems, controllers, strict=True)
    found = float(np.mean([cost(system, each) / optimal_cost(system) for system, each in pairs]))
    return found if np.isfinite(found) else None
