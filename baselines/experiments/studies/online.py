"""Online merging on CartPole: agents apart, averaged every M episodes, or learning jointly."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from fleet_tools.baselines.experiments.result_cache import Cells
from fleet_tools.baselines.experiments.studies.reinforce import (
    Reinforce,
    evaluate,
    learn_apart,
    learn_jointly,
)
from fleet_tools.baselines.experiments.studies.tables import Cell
from fleet_tools.baselines.merging.average import average

AGENTS = 5

ARMS: dict[str, int | None] = {
    "apart": None,
    "every 10": 10,
    "every 100": 100,
    "every 1000": 1000,
    "joint": None,
}
"""M, by the name of an arm."""


def online(folder: Path, episodes: int, seeds: int) -> Iterator[Cell]:
    """Computes, or reads, what each arm of each seed has learned.

    Values are mean returns: "learning" in all episodes of learning, "last" in the last fifth,
    "individual" of the agents' policies afterwards, and "average" of the policies' average.

    Args:
        folder: Of the study.
        episodes: Of each agent.
        seeds: How many runs.
    """
    cells, reinforce = Cells(folder), Reinforce()
    for seed, (arm, every) in ((seed, arm) for seed in range(seeds) for arm in ARMS.items()):

        def compute(arm=arm, every=every, seed=seed) -> dict[str, float]:
            if arm == "joint":
                learned = learn_jointly(AGENTS, episodes, reinforce, seed)
            else:
                learned = learn_apart(AGENTS, episodes, every, reinforce, seed)
            last = learned.returns[:, -max(1, episodes // 5) :]
            return {
                "learning": float(learned.returns.mean()),
                "last": float(last.mean()),
                "individual": float(np.mean([evaluate(state) for state in learned.policies])),
                "average": evaluate(average(learned.policies)),
            }

        settings = {
            "agents": AGENTS,
            "episodes": episodes,
            "every": every,
            "reinforce": asdict(reinforce),
        }
        value = cells.get(f"online-{arm.replace(' ', '_')}-{seed}", settings, compute)
        yield Cell(arm, "", seed, value)
