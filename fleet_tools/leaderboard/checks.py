"""Checks of a result's content: protocol, episodes, scenes and scores."""

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

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
from fleet_tools.evaluation.admission import missing_keys, objections
from fleet_tools.evaluation.level_scenes import SceneRules
from fleet_tools.evaluation.protocol import Protocol, protocol_digest
from fleet_tools.evaluation.result import EpisodeResult, Result
from fleet_tools.evaluation.scores import score
from fleet_tools.robot.arm import load_robot
from fleet_tools.storage.provenance import TaskFile, read_task_file

ProblemKind = Literal[
    "foreign",
    "damaged",
    "schema",
    "protocol",
    "physics",
    "incomplete",
    "episodes",
    "scenes",
    "scores",
    "name",
    "duplicate",
    "refuted",
]
"""Kinds of problems.

foreign: a file that is not part of a result.
damaged: a file that is missing, truncated, or has content that no evaluation writes.
schema: an unknown schema version.
protocol: another protocol, or other task files.
physics: a release of Drake whose episodes are not known to end alike.
incomplete: missing episodes of a covered task, or no scores, as of an interrupted evaluation; or
    stopped by a verdict.
episodes: none, repeated or unknown episodes, or other seeds than the protocol's; or episodes that
    depend on their order.
scenes: other scenes than the seeds draw.
scores: scores that do not follow from the episodes.
name: an invalid name, one that is not the folder's, or could be mistaken for another one.
duplicate: another result is of the same policy, training seed and task.
refuted: episodes end otherwise when the host runs them again.
"""

OUTCOMES = (SUCCESS, TIME_LIMIT, OBJECT_LOST, SIMULATION_ERROR, POLICY_ERROR, WORKER_ERROR)

BOUND_TOLERANCE = 2e-6
"""Tolerance of interval limits, which are rounded to 1e-6."""
_RATE_TOLERANCE = 1e-9

_SCORES_SHOWN = 3


class Problem(NamedTuple):
    """A reason to reject a result.

    Attributes:
        kind: Kind of problem.
        reason: The problem in words.
    """

    kind: ProblemKind
    reason: str


def followed(result: Result, protocols: Sequence[Protocol]) -> Protocol:
    """Returns the level that a result follows; the first one if it follows none of them."""
    by_digest = {_digest_here(each): each for each in protocols}
    return by_digest.get(result.protocol_digest, protocols[0])


def _digest_here(protocol: Protocol) -> str:
    digests = {task: _task_digest(protocol.own_file(task) or task) for task in protocol.tasks}
    return protocol_digest(protocol, digests)


def find_problems(
    result: Result,
    episodes: Sequence[EpisodeResult],
    protocol: Protocol,
) -> list[Problem]:
    """Returns all problems of a result; none if every claim follows from its episodes.

    Args:
        result: Content of `result.json`.
        episodes: Content of `episodes.parquet`, in any order.
        protocol: The protocol that the result has to follow.
    """
    return list(_problems(result, episodes, protocol))


def _problems(
    result: Result,
    episodes: Sequence[EpisodeResult],
    protocol: Protocol,
) -> Iterator[Problem]:
    expected = _digest_here(protocol)
    if result.protocol_digest != expected:
        yield Problem(
            "protocol",
            f"it follows {result.protocol.title!r} ({result.protocol_digest}); required is "
            f"{protocol.title!r} with the task files installed here ({expected})",
        )
        return
    problems = [Problem(*each) for each in objections(result, protocol)]
    if result.policy.env_kwargs.get("obs_mode", "state") not in list(OBS_MODES):
        modes = ", ".join(OBS_MODES)
        problems.append(
            Problem("protocol", f"its observation mode is none of the package's, {modes}")
        )
    if differing := _other_models(result, protocol):
        reason = f"it was made with other models than those here: {differing}"
        problems.append(Problem("protocol", reason))
    yield from problems
    if any(each.kind == "protocol" for each in problems):
        return
    yield from (Problem("incomplete", reason) for reason in _missing(result, episodes))
    wrong_episodes = list(_wrong_episodes(episodes, result.protocol))
    yield from (Problem("episodes", reason) for reason in wrong_episodes)
    if not wrong_episodes:
        yield from (Problem("scenes", reason) for reason in _wrong_scenes(episodes, protocol))
        yield from (Problem("scores", reason) for reason in _wrong_scores(result, episodes))


def _other_models(result: Result, protocol: Protocol) -> str:
    if not protocol.task_files:
        return other_models(result.models, ())
    here = models_of_all(map(protocol.load_task, protocol.task_files))
    return other_models(result.models, here)


def _missing(result: Result, episodes: Sequence[EpisodeResult]) -> Iterator[str]:
    yield from _listed(
        "missing episodes of the covered tasks",
        missing_keys(result.protocol, {episode.key for episode in episodes}),
    )
    if result.stopped:
        yield (
            f"it was stopped by a verdict, {result.stopped.verdict!r} against "
            f"{result.stopped.against!r}; the same evaluation without --stop completes it"
        )
    if result.scores is None:
        yield "the scores are missing; the same evaluation, run again, adds them"


def _wrong_episodes(episodes: Sequence[EpisodeResult], protocol: Protocol) -> Iterator[str]:
    if not episodes:
        yield "there are no episodes"
    seeds = {trial.key: trial.seed for trial in protocol.trials()}
    counts = Counter(episode.key for episode in episodes)
    yield from _listed(
        "episodes that are not in the protocol", [key for key in counts if key not in seeds]
    )
    yield from _listed(
        "episodes that occur more than once", [key for key, count in counts.items() if count > 1]
    )
    yield from _listed(
        "episodes with other seeds than in the protocol",
        [each.key for each in episodes if each.key in seeds and each.seed != seeds[each.key]],
    )
    yield from _listed(
        "episodes with unknown outcomes",
        [each.key for each in episodes if each.outcome not in OUTCOMES],
    )
    yield from _listed(
        "successes without a scene or without actions",
        [
            each.key
            for each in episodes
            if each.success_once and not (each.steps and each.scene_digest)
        ],
    )
    yield from _wrong_contact_metrics(episodes)


def _wrong_contact_metrics(episodes: Sequence[EpisodeResult]) -> Iterator[str]:
    """Yields what is wrong with how episodes were handled; older results do not tell it at all."""
    told = [(each, each.contact_metrics) for each in episodes if each.contact_metrics is not None]
    untold = [each.key for each in episodes if each.contact_metrics is None and each.steps]
    yield from _listed(
        "episodes without contact metrics, which others have", untold if told else []
    )
    yield from _listed(
        "successes in which nothing touched the object, by their contact metrics",
        [
            each.key
            for each, contact_metrics in told
            if each.success and not contact_metrics.object.contact_s
        ],
    )


def _wrong_scenes(episodes: Sequence[EpisodeResult], protocol: Protocol) -> Iterator[str]:
    wrong = []
    for episode in episodes:
        claimed = (episode.tool, episode.object, episode.scene_digest)
        unknown = episode.outcome == WORKER_ERROR and claimed == (None, None, None)
        if not unknown and claimed != _drawn_scene(protocol, *episode.key):
            wrong.append(episode.key)
    yield from _listed("episodes in other scenes than their seeds draw", wrong)


def _wrong_scores(result: Result, episodes: Sequence[EpisodeResult]) -> Iterator[str]:
    complete = len(episodes) == len(result.protocol.trials())
    if result.complete != complete:
        yield f"complete is {result.complete}, but by the episodes it is {complete}"
    if result.scores is None:
        return
    claimed = _flat("scores", result.scores.model_dump())
    computed = _flat("scores", score(result.protocol, episodes).model_dump())
    wrong = [name for name in {**claimed, **computed} if not _agree(name, claimed, computed)]
    for name in wrong[:_SCORES_SHOWN]:
        yield f"{name} is {claimed.get(name)}, but by the episodes it is {computed.get(name)}"
    if len(wrong) > _SCORES_SHOWN:
        yield f"{len(wrong) - _SCORES_SHOWN} more scores do not follow from the episodes"


def _listed(what: str, keys: Sequence[tuple[str, str, int]]) -> Iterator[str]:
    """Yields a sentence about episodes, if there are any."""
    if keys:
        task, split, index = min(keys)
        yield f"{what}: {len(keys)}, such as episode {index} of {task}, {split}"


def _flat(name: str, value: Any) -> dict[str, object]:
    """Returns all numbers by their names, such as "scores.tasks.hammer.success.rate"."""
    if not isinstance(value, dict):
        return {name: value}
    return {
        path: number
        for key, inner in value.items()
        for path, number in _flat(f"{name}.{key}", inner).items()
    }


def _agree(name: str, claimed: Mapping[str, object], computed: Mapping[str, object]) -> bool:
    if name not in claimed or name not in computed:
        return False
    one, other = claimed[name], computed[name]
    if isinstance(one, float) and isinstance(other, float):
        is_bound = name.endswith((".low", ".high"))
        return abs(one - other) <= (BOUND_TOLERANCE if is_bound else _RATE_TOLERANCE)
    return one == other


def _drawn_scene(protocol: Protocol, task: str, split: str, index: int) -> tuple[str, str, str]:
    """Returns tool, object and digest of a trial's scene."""
    seed, given = protocol.splits[split].seeds()[index], protocol.own_file(task) or task
    return _sampled_scene(given, split, seed, protocol.scene_rules().to_json())


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
