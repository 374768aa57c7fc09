"""Meta-World as an arena: its tasks, environment, experts and datasets.

tasks         names and sets of tasks, and the start of an episode
env           the environment, with the interface of `envs.recorded_env.RecordedEnv`
observations  observations of policies: the state, or features of an image
encoder       frozen encoders of images
expert        Meta-World's scripted policies

Yu et al., "Meta-World: A Benchmark and Evaluation for Multi-Task and Meta Reinforcement Learning",
2019; https://github.com/Farama-Foundation/Metaworld.
"""
