"""Sources of episodes for display: a policy that acts in drawn scenes, or a dataset."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gymnasium

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.errors import ConfigError, DatasetError, MissingLibraryError
from fleet_tools.policies.policy import StoredActions, make_guarded
from fleet_tools.policies.sources import find_policy
from fleet_tools.studio.pictures.recording import PlannedEpisode


@dataclass(frozen=True, eq=False)
class EpisodeSource:
    """Episodes that are to be run for display, and their environment.

    Attributes:
        env: The environment.
        episodes: The episodes; each is prepared when it is asked for.
    """

    env: ToolUseEnv
    episodes: Iterator[PlannedEpisode]


def policy_source(
    task: str, policy: str, first_seed: int, count: int, *, split: str, render_mode: str
) -> EpisodeSource:
    """Returns the episodes of a policy in the scenes of consecutive seeds.

    With a policy of the package, which reads no images, the environment observes point clouds where
    it can, so that they can be shown.

    Args:
        task: Name or path of the task.
        policy: The policy, see `fleet_tools.policies.sources`.
        first_seed: Seed of the first scene.
        count: Number of episodes.
        split: Split from which tools and objects are drawn.
        render_mode: Render mode of the environment.

    Raises:
        FleetToolsError: There is no such task or policy, or the environment cannot be made.
    """
    source = find_policy(policy)
    make = EnvSpec.of(task, split=split, render_mode=render_mode).make_tool_use
    built_in = source.kind == "built_in"
    env = _with_point_cloud(make) if built_in else make(**source.env_kwargs)

    def episodes() -> Iterator[PlannedEpisode]:
        for seed in range(first_seed, first_seed + count):
            title = f"{env.task.name}, seed {seed}: {source.name}"
            yield PlannedEpisode(title, make_guarded(source, env, seed), seed=seed)

    return EpisodeSource(env, episodes())


def dataset_source(folder: Path, first_attempt: int, count: int, render_mode: str) -> EpisodeSource:
    """Returns the stored episodes of a dataset; their actions run again.

    Args:
        folder: Folder of the dataset.
        first_attempt: Number of the first attempt.
        count: Largest number of episodes.
        render_mode: Render mode of the environment.

    Raises:
        DatasetError: The dataset cannot be read, or holds no such episode.
        FleetToolsError: Its environment cannot be made here.
    """
    dataset = Dataset(folder)
    records = [record for record in dataset.stored() if record.attempt >= first_attempt]
    if not records:
        raise DatasetError(
            f"{dataset.folder} holds no episode from attempt {first_attempt} on; it has "
            f"{len(dataset)} episodes of {len(dataset.manifest())} attempts."
        )
    dataset.header.require_tool_use()
    env = _with_point_cloud(partial(dataset.header.make_env, render_mode=render_mode))

    def episodes() -> Iterator[PlannedEpisode]:
        for record in records[:count]:
            episode = dataset.episode(record.attempt)
            title = (
                f"{dataset.header.task.name}, attempt {record.attempt}: {dataset.header.policy}, "
                f"stored as {record.outcome}"
            )
            yield PlannedEpisode(title, StoredActions(episode.actions), scene=episode.scene)

    return EpisodeSource(env, episodes())


def _with_point_cloud(make: Callable[..., gymnasium.Env]) -> ToolUseEnv:
    """Makes an environment that observes point clouds if it has cameras."""
    try:
        return unwrap(make(obs_mode="point_cloud"))
    except (ConfigError, MissingLibraryError) as error:
        env = unwrap(make(obs_mode="state"))
        print(f"No point cloud is shown: {error}", file=sys.stderr)
        return env
