"""States, observations and outcomes are the same whichever kernels libraries choose."""

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from processors import OTHER_BITS, SAME_BITS
from support.processes import ROOT, run_python

from fleet_tools.config.tasks import task_names
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.registration import env_id
from fleet_tools.rollouts.agreement import WITHIN_M
from fleet_tools.rollouts.rollout import rollout

SEED = 1
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])}

REPLAY = """
import hashlib, json, sys
import numpy as np
from processors import kernels
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.rollouts.agreement import points

task, seed, actions = json.loads(sys.argv[1])
env = EnvSpec.of(task, split="all").make()
observation, info = env.reset(seed=seed)
states, observations = hashlib.sha256(), hashlib.sha256()
for action in actions:
    for name in sorted(observation):
        observations.update(observation[name].tobytes())
    observation, *_, info = env.step(np.array(action, np.float32))
    states.update(env.get_state().snapshot.x.tobytes())
print(json.dumps({
    "bits": [states.hexdigest(), observations.hexdigest()],
    "outcome": info["outcome"],
    "points": points(env.world_state()),
    "kernels": kernels(),
}))
"""
"""Prints digests of states and observations, the end, and digests of what kernels compute."""


def largest_distance(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(np.subtract(one[kind], other[kind])).max()) for kind in one)


@pytest.mark.slow
@pytest.mark.parametrize("task", task_names())
def test_a_replay_ends_alike_with_other_kernels(make: Callable[..., ToolUseEnv], task: str):
    env = make(env_id(task), split="all")
    episode = rollout(env, ExpertPolicy(env), seed=SEED)
    replay = json.dumps([task, SEED, np.array(episode.actions).tolist()])
    here = run_python(REPLAY, replay, **PATHS)
    assert here["outcome"] == episode.outcome
    for name, kind in (SAME_BITS | OTHER_BITS).items():
        there = run_python(REPLAY, replay, **PATHS, **kind.variables)
        other = [key for key, bits in here["kernels"].items() if there["kernels"][key] != bits]
        print(f"{name}: other bits of {other}")  # shown by pytest -rP
        assert there["outcome"] == here["outcome"], name
        assert largest_distance(there["points"], here["points"]) <= WITHIN_M, name
        if name in SAME_BITS:
            assert there["bits"] == here["bits"], name
            assert "Drake's products of rotations" not in other
        else:
            assert other == ["glibc's sin"], name  # its kernels do differ here
