"""An arena of one's own: agents on CartPole that learn apart, are averaged, or learn jointly."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from examples.cartpole.reinforce import Reinforce, evaluate, learn_apart, learn_jointly
from fleet_merging.average import average
from fleet_tools.baselines.experiments.cells import Cells
from fleet_tools.baselines.experiments.form import Experiment, Run
from fleet_tools.config.values import Count, Value


class AgentsConfig(Value):
    """Agents that learn.

    Attributes:
        data: None is needed.
        agents: Number of agents.
        episodes: Number of episodes of each.
        every: Number of episodes from one average to the next, the paper's M; None for none.
    """

    data: tuple[str, ...] = ()
    agents: Count = 5
    episodes: Count = 2000
    every: Count | None = None


class CartPole:
    """Agents that learn by REINFORCE; the keys of runs are those of `AgentsConfig`.

    Measures are mean returns: "learning" in all episodes of learning, "last" in the last fifth of
    them, "individual" of the agents' policies after learning, "average" of the average of these.

    Args:
        experiment: The experiment.
    """

    references: ClassVar[tuple[str, ...]] = ("joint",)

    def __init__(self, experiment: Experiment) -> None:
        self._reinforce = Reinforce()

    def plan(self, run: Run) -> tuple[AgentsConfig, int, bool]:
        """Returns the configuration, the seed, and whether all learn one policy."""
        return run.parsed(AgentsConfig), run.seed, run.is_reference

    def learns(self, plan: tuple[AgentsConfig, int, bool]) -> str:
        """See `ExperimentArena`: no run shares what another one learns."""
        return f"{plan}"

    def measure(self, plan: tuple[AgentsConfig, int, bool], folder: Path) -> dict[str, Any]:
        """See `ExperimentArena`."""
        config, seed, is_joint = plan
        settings: Mapping[str, Any] = {
            **config.model_dump(),
            "reinforce": asdict(self._reinforce),
            "seed": seed,
            "joint": is_joint,
        }
        return Cells(folder / "cells").get_or_compute(settings, partial(self._returns, *plan))

    def _returns(self, config: AgentsConfig, seed: int, is_joint: bool) -> dict[str, float]:
        agents, episodes = config.agents, config.episodes
        if is_joint:
            result = learn_jointly(agents, episodes, self._reinforce, seed)
        else:
            result = learn_apart(agents, episodes, config.every, self._reinforce, seed)
        last = result.returns[:, -max(1, episodes // 5) :]
        return {
            "learning": float(result.returns.mean()),
            "last": float(last.mean()),
            "individual": float(np.mean([evaluate(state) for state in result.policies])),
            "average": evaluate(average(result.policies)),
        }
