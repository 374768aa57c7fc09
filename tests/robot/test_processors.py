"""States and observations are the same whichever kernels BLAS and numpy choose for a processor."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from numpy._core._multiarray_umath import (  # pyright: ignore[reportMissingImports]
    __cpu_dispatch__,
    __cpu_features__,
)
from support.processes import run_python

from fleet_tools.config.tasks import task_names
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.rollout import rollout

SEED = 1

REPLAY = """
import hashlib, json, sys
import numpy as np
from fleet_tools.envs.making import make_env

task, seed, actions = json.loads(sys.argv[1])
env = make_env(task=task, split="all")
observation, _ = env.reset(seed=seed)
states, observations = hashlib.sha256(), hashlib.sha256()
for action in actions:
    for name in sorted(observation):
        observations.update(observation[name].tobytes())
    observation, *_ = env.step(np.array(action, np.float32))
    states.update(env.get_state().snapshot.x.tobytes())
A = np.random.default_rng(0).normal(size=(7, 7))
print(json.dumps([states.hexdigest(), observations.hexdigest(), hashlib.sha256(A @ A).hexdigest()]))
"""
"""Prints digests of states, of observations, and of a matrix product of BLAS."""

MACHINES = {
    "Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "numpy without dispatch": {
        "NPY_DISABLE_CPU_FEATURES": " ".join(
            name for name in __cpu_dispatch__ if __cpu_features__.get(name)
        )
    },
    "numba for any processor": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}


@pytest.mark.slow
@pytest.mark.parametrize("task", task_names())
def test_a_replay_has_the_same_bits_with_other_kernels(make: Callable[..., ToolUseEnv], task: str):
    env = make(f"FleetTools/{task.title()}-v0", split="all")
    episode = rollout(env, ExpertPolicy(env), seed=SEED)
    replay = json.dumps([task, SEED, np.array(episode.actions).tolist()])
    here = run_python(REPLAY, replay)
    for name, variables in MACHINES.items():
        there = run_python(REPLAY, replay, **variables)
        print(f"{name}: BLAS has other bits: {there[2] != here[2]}")  # shown by pytest -rP
        assert there[:2] == here[:2], name
