"""The promised figures that are no matter of speed; the long way round is marked slow."""

import gc

import pytest

from fleet_tools.baselines.trivial import RandomPolicy, ZeroPolicy
from fleet_tools.episode import rollout
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.registration import make_environment

MEBIBYTE = 2**20


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make_policy", "at_least", "at_most"),
    [
        (lambda env, seed: ExpertPolicy(env), 0.97, 1.0),
        (lambda env, seed: ZeroPolicy(env), 0.0, 0.0),
        (lambda env, seed: RandomPolicy(env, seed), 0.0, 0.02),
    ],
    ids=["expert", "zero", "random"],
)
def test_success_in_200_scenes(make, make_policy, at_least, at_most):
    env = make()
    successes = sum(
        rollout(env, make_policy(env, seed), seed=seed).succeeded for seed in range(200)
    )
    assert at_least <= successes / 200 <= at_most


@pytest.mark.parametrize("resets", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_memory_is_flat_over_resets(make, resets):
    env = make()
    for seed in range(40):  # every model has been read, every allocator is warm
        env.reset(seed=seed)
    before = resident_bytes()
    for seed in range(resets):
        env.reset(seed=seed)
    assert resident_bytes() - before < 16 * MEBIBYTE


@pytest.mark.parametrize("cycles", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_memory_is_flat_over_environments(cycles):
    def cycle(seed):
        env = make_environment(task="hammer")
        env.reset(seed=seed)
        env.close()

    for seed in range(10):
        cycle(seed)
    before = resident_bytes()
    for seed in range(cycles):
        cycle(seed)
    assert resident_bytes() - before < 16 * MEBIBYTE
