"""Merges fleets of linear controllers and prints what the merged ones cost.

    python benchmarks/linear_control.py --seeds 5

Each figure is J / J*, averaged over the tasks of the fleet: the median over seeds, then the lowest
and the highest. `inf` is a plant that is not stabilized.
"""

import argparse
import json

import numpy as np

from fleet_tools.baselines.linear_control.alignment import balancing
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


def learned(systems: list[LinearSystem], rng: np.random.Generator, episodes: int) -> Fleet:
    """Each robot imitates the expert of its own task, from its own data and its own start."""
    controllers = []
    for system in systems:
        data = simulate(system, optimal_controller(system), rng, episodes=episodes, steps=100)
        controllers.append(learn_by_gradient(data.y, data.u, system.n, rng, iterations=200))
    return systems, controllers


def one_task(seed: int) -> Fleet:
    rng = np.random.default_rng(seed)
    return learned([paper_system(outputs=50, seed=seed)] * 10, rng, episodes=3)


def ten_tasks(seed: int) -> Fleet:
    rng = np.random.default_rng(seed)
    systems = [paper_system(outputs=50, alpha=alpha, seed=seed) for alpha in STATE_WEIGHTS]
    return learned(systems, rng, episodes=3)


def unstable_plant(seed: int) -> Fleet:
    rng = np.random.default_rng(seed)
    return learned([paper_system(unstable=True, outputs=50, seed=seed)] * 10, rng, episodes=3)


def two_components(seed: int) -> Fleet:
    system = paper_system(unstable=True, outputs=50, seed=seed)
    best = optimal_controller(system)
    return [system] * 10, [best] * 5 + [best.transformed(-np.eye(system.n))] * 5


FLEETS = {
    "one task": one_task,
    "ten tasks": ten_tasks,
    "unstable plant": unstable_plant,
    "two components": two_components,
}
"""Learned from three episodes a robot, but for the last: the optimum and its opposite under -I."""


def relative_costs(fleet: Fleet) -> dict[str, float]:
    """Returns J / J* of the single robots, each on its own task, and of every method."""
    systems, controllers = fleet
    best = [optimal_cost(system) for system in systems]

    def mean(used: list[Controller]) -> float:
        costs = [cost(s, k) / b for s, k, b in zip(systems, used, best, strict=True)]
        return float(np.mean(costs))

    balanced = [k.transformed(balancing(k)) for k in controllers]
    merges = {name: merge(controllers) for name, merge in METHODS.items()}
    merges["permutation, balanced first"] = merge_by_permutation(balanced)
    merges["gradient, not balanced"] = merge_by_gradient(controllers, balance=False)
    return {"single": mean(controllers)} | {
        name: mean([merge.controller] * len(systems)) for name, merge in merges.items()
    }


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="a line per fleet and method")
    arguments = parser.parse_args()
    for title, make in FLEETS.items():
        if not arguments.json:
            print(title)
        table = [relative_costs(make(seed)) for seed in range(arguments.seeds)]
        for name in table[0]:
            values = sorted(row[name] for row in table)
            median = values[len(values) // 2]
            if arguments.json:
                print(json.dumps({"fleet": title, "method": name, "relative_costs": values}))
            else:
                span = f"({values[0]:.5f} to {values[-1]:.5f})"
                print(f"  {name:27s} {median:10.5f}  {span}", flush=True)


if __name__ == "__main__":
    main()
