"""Promised success rates of simple policies, and constant memory; the long runs are marked slow."""

import json

import pytest
from support.environments import IDS
from support.processes import run_python

from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.policy import RandomPolicy, ZeroPolicy
from fleet_tools.rollouts.rollout import rollout


@pytest.mark.slow
@pytest.mark.parametrize("environment_id", IDS)
@pytest.mark.parametrize(
    ("make_policy", "at_least", "at_most"),
    [
        (lambda env, seed: ExpertPolicy(env), 0.97, 1.0),
        (lambda env, seed: ZeroPolicy(env), 0.0, 0.0),
        (lambda env, seed: RandomPolicy(env, seed), 0.0, 0.02),
    ],
    ids=["expert", "zero", "random"],
)
def test_success_in_200_scenes(make, environment_id, make_policy, at_least, at_most):
    env = make(environment_id, split="all")
    outcomes = [rollout(env, make_policy(env, seed), seed=seed).outcome for seed in range(200)]
    successes = outcomes.count(SUCCESS)
    assert at_least <= successes / 200 <= at_most


GROWTH = """
import gc, json, sys
from fleet_tools.envs.spec import EnvSpec

def resident_mebibytes():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

env = EnvSpec.of("hammer").make()

def reset(seed):
    env.reset(seed=seed)

def make_and_close(seed):
    other = EnvSpec.of("hammer").make()
    other.reset(seed=seed)
    other.close()

growth = {}
for name, (warm_up, repetitions) in json.loads(sys.argv[1]).items():
    for seed in range(warm_up):
        globals()[name](seed)
    before = resident_mebibytes()
    for seed in range(repetitions):
        globals()[name](seed)
    growth[name] = resident_mebibytes() - before
print(json.dumps(growth))
"""
"""Prints by how many MiB a process grows during repetitions of each function, after a warm-up."""


@pytest.mark.slow  # starts processes that make many environments
@pytest.mark.parametrize(
    ("repetitions", "limit_mib"),
    [
        ({"reset": (8, 10), "make_and_close": (3, 5)}, 2.0),
        pytest.param({"reset": (300, 1000)}, 16.0, marks=pytest.mark.slow),
        pytest.param({"make_and_close": (30, 100)}, 16.0, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_memory_is_flat(repetitions: dict[str, tuple[int, int]], limit_mib: float):
    growth = run_python(GROWTH, json.dumps(repetitions))
    print(f"Growth in MiB: {growth}")
    assert max(growth.values()) < limit_mib
