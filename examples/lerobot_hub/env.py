"""The file of a repository of LeRobot's environment hub: `make_env("OWNER/REPOSITORY")` runs it.

Keyword arguments of `fleet_tools.evaluation.lerobot_hub.make_env` choose other observations, a
level or a split.
"""

from functools import partial

from fleet_tools.evaluation import lerobot_hub

make_env = partial(lerobot_hub.make_env, obs_mode="state")
