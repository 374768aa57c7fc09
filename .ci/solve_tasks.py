"""Solves every task by its expert, with a package that was not imported from the checkout."""

import sys

import gymnasium

import fleet_tools
from fleet_tools.experts.policy import ExpertPolicy

assert sys.argv[1] not in fleet_tools.__file__, fleet_tools.__file__
ours = [name for name in gymnasium.registry if name.startswith("FleetTools/")]
for name in sorted({*ours} - {"FleetTools/Custom-v0"}):
    env = gymnasium.make(name)
    observation, info = env.reset(seed=0)
    expert = ExpertPolicy(env)
    expert.reset()
    while info["outcome"] == "running":
        observation, reward, terminated, truncated, info = env.step(expert.act(observation))
    print(f"{name} from the wheel: {info['outcome']}", flush=True)
    assert info["success"], info
