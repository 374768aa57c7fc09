"""Rewards, as functions of the state and of the progress towards success."""

import numpy as np

from fleet_tools.config.tasks import Reach
from fleet_tools.envs.success import Verdict
from fleet_tools.sim.world_state import WorldState


def sparse(verdict: Verdict) -> float:
    """Returns 1 on success, else 0."""
    return float(verdict.holds)


def dense(verdict: Verdict, reach: Reach, state: WorldState) -> float:
    """Returns one third proximity of tool and object, two thirds progress; 1 on success."""
    if verdict.holds:
        return 1.0
    distance = np.linalg.norm(state.p_W_tool[reach.tool] - state.p_W_object[reach.object])
    proximity = 1.0 / (1.0 + (distance / reach.length_m) ** 2)
    return float(proximity + 2.0 * verdict.progress) / 3.0
