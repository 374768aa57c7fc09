"""The promised figures that are no matter of speed; the long way round is marked slow."""

import pytest
from conftest import IDS, run_python

from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.trivial import RandomPolicy, ZeroPolicy
from fleet_tools.rollouts.episode import rollout


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
    successes = sum(
        rollout(env, make_policy(env, seed), seed=seed).succeeded for seed in range(200)
    )
    assert at_least <= successes / 200 <= at_most


GROWTH = """
import gc, json, sys
from fleet_tools.registration import make_environment

def resident_mebibytes():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

def reset_one_environment(seed, kept=[]):
    env = kept[0] if kept else make_environment(task="hammer")
    kept[:] = [env]
    env.reset(seed=seed)

def make_and_close(seed):
    env = make_environment(task="hammer")
    env.reset(seed=seed)
    env.close()

work, warm_up, repetitions = globals()[sys.argv[1]], *map(int, sys.argv[2:])
for seed in range(warm_up):
    work(seed)
before = resident_mebibytes()
for seed in range(repetitions):
    work(seed)
print(json.dumps(resident_mebibytes() - before))
"""


@pytest.mark.parametrize(
    ("work", "warm_up", "repetitions"),
    [
        ("reset_one_environment", 60, 60),
        ("make_and_close", 20, 20),
        pytest.param("reset_one_environment", 300, 1000, marks=pytest.mark.slow),
        pytest.param("make_and_close", 30, 100, marks=pytest.mark.slow),
    ],
)
def test_memory_is_flat(work, warm_up, repetitions):
    grown = run_python(GROWTH, work, str(warm_up), str(repetitions))
    print(f"{work}: {grown:.1f} MiB in {repetitions} repetitions")
    assert grown < 16.0
