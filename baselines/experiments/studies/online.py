"""Online merging on CartPole: agents that learn apart, are averaged, or learn jointly."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from fleet_tools.baselines.experiments.result_cache import ResultCache
from fleet_tools.baselines.experiments.studies.reinforce import (
    Reinforce,
    evaluate,
    learn_apart,
    learn_jointly,
)
from fleet_tools.baselines.experiments.studies.tables import TableEntry
from fleet_tools.baselines.merging.average import average

AGENTS = 5

ARMS: dict[str, int | None] = {
    "apart": None,
    "every 10": 10,
    "every 100": 100,
    "every 1000": 1000,
    "joint": None,
}
"""Number of episodes from one average to the next, the paper's M, by the name of an arm."""


def online_study(folder: Path, episodes: int, seeds: int) -> Iterator[TableEntry]:
    """Computes, or reads, the results of each arm and seed.

    The values are mean returns: "learning" in all episodes of learning, "last" in the last fifth of
    them, "individual" of the agents' policies after learning, "average" of the average of these.

    Args:
        folder: Folder of the results.
        episodes: Number of episodes of each agent.
        seeds: Number of seeds.
    """
    cache, reinforce = ResultCache(folder), Reinforce()
    for seed in range(seeds):
        for arm, every in ARMS.items():
            settings = {
                "agents": AGENTS,
                "episodes": episodes,
                "every": every,
                "reinforce": asdict(reinforce),
            }
            name = f"online-{arm.replace(' ', '_')}-{seed}"
            compute = partial(_mean_returns, arm, episodes, reinforce, seed)
            yield TableEntry(arm, "", seed, cache.get_or_compute(name, settings, compute))


def _mean_returns(arm: str, episodes: int, reinforce: Reinforce, seed: int) -> dict[str, float]:
    if arm == "joint":
        result = learn_jointly(AGENTS, episodes, reinforce, seed)
    else:
        result = learn_apart(AGENTS, episodes, ARMS[arm], reinforce, seed)
    last = result.returns[:, -max(1, episodes // 5) :]
    return {
        "learning": float(result.returns.mean()),
        "last": float(last.mean()),
        "individual": float(np.mean([evaluate(state) for state in result.policies])),
        "average": evaluate(average(result.policies)),
    }
