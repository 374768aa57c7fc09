"""Environments for LeRobot's environment hub, whose `env.py` calls this module.

`examples/lerobot_hub/env.py` is such a file. LeRobot itself is not imported: what it takes are
vector environments of Gymnasium whose observations have its names
(https://huggingface.co/docs/lerobot/envhub).
"""

from functools import partial
from typing import Any

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from fleet_tools.errors import ConfigError, require_name
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol import OWN_TASK
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.protocol_scenes import ProtocolScenes


def make_env(
    n_envs: int = 1,
    use_async_envs: bool = False,
    cfg: Any = None,
    *,
    protocol: str = PROTOCOL,
    level: str | None = None,
    split: str | None = None,
    **env_kwargs: Any,
) -> dict[str, dict[int, VectorEnv]]:
    """Makes vector environments for each task of a protocol.

    The episode of seed k is the k-th scene of the task, of all splits one after another unless one
    is given: LeRobot gives its episodes consecutive seeds, so that as many episodes as there are
    scenes run each of them once, wherever the seeds begin. Observations hold `agent_pos`, colour
    images by camera under `pixels`, and all other entries by their names, of which LeRobot makes
    the features of an export: `observation.state`, `observation.images.<camera>`,
    `observation.<name>`.

    Args:
        n_envs: Number of environments of each task that run together.
        use_async_envs: Whether each of them has a process of its own, if there are several.
        cfg: Configuration of LeRobot's; its `task`, if it names one, is the only task.
        protocol: Name or path of a protocol, see `ProtocolScenes`.
        level: Level of the protocol; the first if None.
        split: The only split; all of them, one after another, if None.
        env_kwargs: Keyword arguments of the environments, such as obs_mode="rgbd".

    Returns:
        The vector environment by the task's name, as {task: {0: environment}}.

    Raises:
        UnknownNameError: There is no such protocol, level, task, split or argument.
        ConfigError: See `ProtocolScenes`; or the number is not positive.
    """
    if n_envs < 1:
        raise ConfigError(f"Expected n_envs of at least 1; given: {n_envs}.")
    tasks = load_protocol(protocol, level).tasks
    if (only := getattr(cfg, "task", None)) is not None:
        require_name(f"task of the protocol {protocol!r}", only, tasks, OWN_TASK)
        tasks = (only,)
    chosen = {"protocol": protocol, "level": level, "split": split, **env_kwargs}
    made: dict[str, dict[int, VectorEnv]] = {}
    for task in tasks:
        maker = partial(ProtocolScenes, task, vector="agent_pos", images="pixels", **chosen)
        mode = AutoresetMode.SAME_STEP  # LeRobot reads a success in "final_info"
        if use_async_envs and n_envs > 1:
            made[task] = {0: AsyncVectorEnv([maker] * n_envs, context="spawn", autoreset_mode=mode)}
        else:
            made[task] = {0: SyncVectorEnv([maker] * n_envs, autoreset_mode=mode)}
    return made
