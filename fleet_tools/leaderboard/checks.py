"""Checks protocol, episodes and scenes of a submitted result. Its own scores are ignored."""

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from fleet_tools.config.tasks import TaskConfig, load_task
from fleet_tools.config.values import parse
from fleet_tools.dataset.carried_models import models_of_all, other_models
from fleet_tools.envs.observation_modes import OBS_MODES
from fleet_tools.envs.outcomes import (
    OBJECT_LOST,
    POLICY_ERROR,
    SIMULATION_ERROR,
    SUCCESS,
    TIME_LIMIT,
    WORKER_ERROR,
)
from fleet_tools.errors import FleetToolsError, ResultError, shown
from fleet_tools.evaluation.admission import missing_scenes, objections
from fleet_tools.evaluation.level_scenes import SceneRules
from fleet_tools.evaluation.protocol import Protocol, protocol_digest
from fleet_tools.evaluation.result import EpisodeResult, Evaluation, Result
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.leaderboard.entries import Entry, shortened
from fleet_tools.robot.arm import load_robot
from fleet_tools.storage.provenance import TaskFile, read_task_file

OUTCOMES = (SUCCESS, TIME_LIMIT, OBJECT_LOST, SIMULATION_ERROR, POLICY_ERROR, WORKER_ERROR)


def read_submitted(entry: Entry, folder: Path, levels: Sequence[Protocol]) -> Evaluation:
    """Reads a result that others submitted, and checks every claim of it.

    Args:
        entry: The entry.
        folder: Folder of the result, `results/LEVEL[/...]` of the entry.
        levels: Levels of the protocol; the result has to follow one of them.

    Returns:
        The result, with the host's own protocol.

    Raises:
        ResultError: What is wrong with it, all of it.
    """
    try:
        evaluation = load_evaluation(folder)
    except (FleetToolsError, RecursionError) as error:
        raise ResultError(shortened(str(error).replace(f"{folder}/", ""))) from error
    result = evaluation.result
    by_digest = {host_digest(level): level for level in levels}
    protocol = by_digest.get(result.protocol_digest)
    if protocol is None:
        raise ResultError(
            f"it follows {shown(result.protocol.title)} ({result.protocol_digest}), but the "
            f"leaderboard uses {', '.join(level.title for level in levels)} with the current "
            f"task files. Evaluate it again: fleet-tools evaluate --level LEVEL --name {entry.name}"
        )
    if reasons := "; ".join(_problems(entry, folder, result, evaluation.episodes, protocol)):
        raise ResultError(reasons)
    # The same content, but the host's task files, which say where their models are.
    return Evaluation(result.model_copy(update={"protocol": protocol}), evaluation.episodes)


def host_digest(protocol: Protocol) -> str:
    """Returns the hash of a protocol with the task files of here."""
    digests = {task: _task_digest(protocol.own_file(task) or task) for task in protocol.tasks}
    return protocol_digest(protocol, digests)


def _problems(
    entry: Entry,
    folder: Path,
    result: Result,
    episodes: Sequence[EpisodeResult],
    protocol: Protocol,
) -> Iterator[str]:
    yield from objections(result, protocol)
    policy, name, level = result.policy, entry.name, protocol.level_name
    if policy.name != name:
        yield f"its policy has the name {policy.name!r}, and the entry {name!r}; give --name {name}"
    if folder.relative_to(entry.folder).parts[1:2] != (level,):
        yield f"it is of the level {level}, and its place is results/{level}"
    if policy.env_kwargs.get("obs_mode", "state") not in list(OBS_MODES):
        yield f"its observation mode is not one of the package's, {', '.join(OBS_MODES)}"
    here = models_of_all(map(protocol.load_task, protocol.task_files))
    if differing := other_models(result.models, here):
        yield f"it was made with other models than those here: {differing}"
    if missing := missing_scenes(protocol, {episode.key for episode in episodes}):
        yield f"it has only {missing}; the same evaluation, run again, adds the others"
    if not episodes:
        yield "it has no episodes"
    yield from _wrong_episodes(episodes, protocol)


def _wrong_episodes(episodes: Sequence[EpisodeResult], protocol: Protocol) -> Iterator[str]:
    told = [each for each in episodes if each.contact_metrics is not None]
    wrong = {
        "with unknown outcomes": [e for e in episodes if e.outcome not in OUTCOMES],
        "with success, but without a scene or actions": [
            e for e in episodes if e.success_once and not (e.steps and e.scene_digest)
        ],
        "without contact metrics, which others have": [
            e for e in episodes if told and e.contact_metrics is None and e.steps
        ],
        "with success, in which nothing touched the object": [
            e for e in told
            if e.success and e.contact_metrics and not e.contact_metrics.object.contact_s
        ],
        "in other scenes than their seeds draw": [
            e for e in episodes if not _in_its_scene(e, protocol)
        ],
    }  # fmt: skip
    for what, found in wrong.items():
        if found:
            task, split, index = min(episode.key for episode in found)
            yield f"{len(found)} episodes {what}, such as episode {index} of {task}, {split}"


def _in_its_scene(episode: EpisodeResult, protocol: Protocol) -> bool:
    claimed = (episode.tool, episode.object, episode.scene_digest)
    if episode.outcome == WORKER_ERROR and claimed == (None, None, None):
        return True
    given, rules = protocol.own_file(episode.task) or episode.task, protocol.scene_rules().to_json()
    return claimed == _sampled_scene(given, episode.split, episode.seed, rules)


@functools.lru_cache(maxsize=100_000)
def _sampled_scene(task: str | TaskFile, split: str, seed: int, rules: str) -> tuple[str, str, str]:
    scene = parse(SceneRules, json.loads(rules), "The protocol").draw(_task(task), seed, split)
    return scene.tool, scene.object, scene.digest()


# Reading YAML takes longer than all other checks together, and the files of tasks and of the robot
# do not change meanwhile.
@functools.cache
def _task(task: str | TaskFile) -> TaskConfig:
    loaded = load_task(task) if isinstance(task, str) else task.load()
    return load_robot().fill(loaded) if loaded.randomization.leaves_to_robot else loaded


@functools.cache
def _task_digest(task: str | TaskFile) -> str:
    return (read_task_file(task) if isinstance(task, str) else task).content_digest
