"""A search for actions with a high return, by the cross-entropy method.

R. Y. Rubinstein, "The cross-entropy method for combinatorial and continuous optimization",
Methodology and Computing in Applied Probability, 1999.
"""

import numpy as np

from cheats.trial import Attacked, attacked_scene, run_trial
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.policies.policy import StoredActions

_KNOTS = 10
_POPULATION = 12
_ELITE = 3
_SPREAD = 0.6
"""Initial standard deviation of the entries of actions."""
_LEAST_SPREAD = 0.05


class OpenLoop(StoredActions):
    """Actions that are interpolated between knots, (n, 6), over the steps of an episode."""

    ended = False

    def __init__(self, knots: np.ndarray, steps: int) -> None:
        times = np.linspace(0.0, len(knots) - 1.0, steps)
        columns = [np.interp(times, np.arange(len(knots)), column) for column in knots.T]
        super().__init__(np.clip(np.transpose(columns), -1.0, 1.0).astype(np.float32))


def search(env: ToolUseEnv, seed: int, iterations: int) -> list[Attacked]:
    """Returns the trials of a search in one scene, with the environment's rewards."""
    rng = np.random.default_rng([seed, 2])
    scene, steps = attacked_scene(env, seed), env.task.max_episode_steps
    mean, spread = np.zeros((_KNOTS, 6)), np.full((_KNOTS, 6), _SPREAD)
    trials: list[Attacked] = []
    for _ in range(iterations):
        candidates = mean + spread * rng.standard_normal((_POPULATION, _KNOTS, 6))
        found = [run_trial(env, OpenLoop(knots, steps), scene) for knots in candidates]
        best = np.argsort([-trial.total_reward for trial in found])[:_ELITE]
        mean = candidates[best].mean(axis=0)
        spread = np.maximum(candidates[best].std(axis=0), _LEAST_SPREAD)
        trials += found
    return trials
