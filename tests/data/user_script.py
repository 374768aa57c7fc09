"""What a user writes; type checkers see the installed package through it."""

import gymnasium

import fleet_tools

env = fleet_tools.unwrap(gymnasium.make("FleetTools/Hammer-v0"))
observation, info = env.reset(seed=0)
expert = fleet_tools.ExpertPolicy(env)
expert.reset()
while info["outcome"] == "running":
    observation, reward, terminated, truncated, info = env.step(expert.act(observation))
scene: fleet_tools.Scene = env.scene
print(scene.tool, info["success"], env.world_state().X_WE.translation())
