"""Fleets of linear controllers, for `python benchmarks/linear_control.py`."""

import numpy as np

from fleet_tools.baselines.linear_control.alignment import balancing_transform
from fleet_tools.baselines.linear_control.learning import learn_by_gradient
from fleet_tools.baselines.linear_control.lqg import cost, optimal_controller, optimal_cost
from fleet_tools.baselines.linear_control.merging import (
    METHODS,
    merge_by_gradient,
    merge_by_permutation,
)
from fleet_tools.baselines.linear_control.rollouts import simulate
from fleet_tools.baselines.linear_control.systems import (
    STATE_WEIGHTS,
    Controller,
    LinearSystem,
    paper_system,
)

Fleet = tuple[list[LinearSystem], list[Controller]]
"""The plant and the controller of each robot."""


def relative_costs(fleet: Fleet) -> dict[str, float]:
    """Returns J / J* of the robots' own controllers, each on its own task, and of every method."""
    systems, controllers = fleet
    best = [optimal_cost(system) for system in systems]

    def mean(used: list[Controller]) -> float:
        costs = [cost(s, k) / b for s, k, b in zip(systems, used, best, strict=True)]
        return float(np.mean(costs))

    balanced = [k.transformed(balancing_transform(k)) for k in controllers]
    merges = {name: merge(controllers) for name, merge in METHODS.items()}
    merges["permutation, balanced first"] = merge_by_permutation(balanced)
    merges["gradient, not balanced"] = merge_by_gradient(controllers, balance=False)
    return {"single": mean(controllers)} | {
        name: mean([merge.controller] * len(systems)) for name, merge in merges.items()
    }


def one_task(seed: int) -> Fleet:
    """Returns ten controllers of one task."""
    rng = np.random.default_rng(seed)
    return _learned([paper_system(outputs=50, seed=seed)] * 10, rng)


def ten_tasks(seed: int) -> Fleet:
    """Returns the controllers of ten tasks."""
    rng = np.random.default_rng(seed)
    return _learned(
        [paper_system(outputs=50, alpha=alpha, seed=seed) for alpha in STATE_WEIGHTS], rng
    )


def unstable_plant(seed: int) -> Fleet:
    """Returns ten controllers of the unstable plant."""
    rng = np.random.default_rng(seed)
    return _learned([paper_system(unstable=True, outputs=50, seed=seed)] * 10, rng)


def two_components(seed: int) -> Fleet:
    """Returns the optimum of the unstable plant and its transform by -I, five times each."""
    system = paper_system(unstable=True, outputs=50, seed=seed)
    best = optimal_controller(system)
    return [system] * 10, [best] * 5 + [best.transformed(-np.eye(system.n))] * 5


def _learned(systems: list[LinearSystem], rng: np.random.Generator) -> Fleet:
    """Lets each robot imitate the expert of its task, from three episodes and a random start."""
    controllers = []
    for system in systems:
        data = simulate(system, optimal_controller(system), rng, episodes=3, steps=100)
        controllers.append(learn_by_gradient(data.y, data.u, system.n, rng, iterations=200))
    return systems, controllers


FLEETS = {
    "one task": one_task,
    "ten tasks": ten_tasks,
    "unstable plant": unstable_plant,
    "two components": two_components,
}
"""Functions that make a fleet from a seed, by title."""
