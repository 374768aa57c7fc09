"""Reads results that others made, and believes nothing that can be computed.

    DIR/any/folders/NAME/result.json, episodes.jsonl       a result; the page calls it by its folder
    DIR/any/folders/README.md                              words beside it, which are not read

Each result covers one or more whole tasks of the protocol, in all splits.
"""

import functools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet_tools.config.tasks import load_task
from fleet_tools.dataset.header import read_task_file
from fleet_tools.envs.outcomes import (
    POLICY_ERROR,
    SIMULATION_ERROR,
    SUCCESS,
    TIME_LIMIT,
    WORKER_ERROR,
)
from fleet_tools.errors import FleetToolsError, ResultError
from fleet_tools.evaluation.protocol import Protocol, protocol_digest
from fleet_tools.evaluation.result import (
    EPISODES,
    RESULT,
    SCHEMA_VERSION,
    EpisodeResult,
    Evaluation,
    Result,
    Scores,
    in_order,
    read_episodes,
    read_result,
)
from fleet_tools.evaluation.scores import score
from fleet_tools.sim.scene import sample_scene
from fleet_tools.storage.strict_json import read_objects

FOREIGN, DAMAGED, SCHEMA, PROTOCOL = "foreign", "damaged", "schema", "protocol"
EPISODE, SCENE, NUMBERS, TWICE = "episodes", "scenes", "numbers", "twice"
"""The kinds of findings."""

OUTCOMES = (SUCCESS, TIME_LIMIT, SIMULATION_ERROR, POLICY_ERROR, WORKER_ERROR)

BOUND_TOLERANCE = 0.005
"""By which bounds may differ: another version of NumPy may draw other numbers."""
_RATE_TOLERANCE = 1e-9

_LONGEST = 300  # of what is quoted of a damaged file, in characters


@dataclass(frozen=True)
class Finding:
    """Why a result is refused.

    Attributes:
        folder: Which, as a path within the folder of all results.
        kind: "foreign": a file that is none of a result's. "damaged": a file that is missing, cut
            off, or says what no evaluation says. "schema": of another version. "protocol": by
            another protocol, or other task files. "episodes": missing, twice, too many, or not
            with the protocol's seeds. "scenes": not those that the seeds draw. "numbers": not
            those that follow from the episodes. "twice": another result is of the same.
        what: In words.
    """

    folder: str
    kind: str
    what: str


@dataclass(frozen=True)
class Submission:
    """A result without findings.

    Attributes:
        folder: As in `Finding`.
        evaluation: Its episodes in the protocol's order.
        tasks: The ones that it covers.
    """

    folder: str
    evaluation: Evaluation

    @functools.cached_property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(episode.task for episode in self.evaluation.episodes))


def read_submissions(root: Path, protocol: Protocol) -> tuple[list[Submission], list[Finding]]:
    """Reads and checks all results of a folder, in the order of their names.

    Args:
        root: Of the folder.
        protocol: By which all have to be.

    Raises:
        ResultError: There is no such folder.
    """
    if not root.is_dir():
        raise ResultError(f"There is no folder {root}. Give one that holds folders of results.")
    folders, findings = _find(root)
    submissions = []
    for folder in folders:
        name = folder.relative_to(root).as_posix()
        came = check(folder, protocol)
        if isinstance(came, Evaluation):
            submissions.append(Submission(name, came))
        else:
            findings += [Finding(name, kind, what) for kind, what in came]
    again = list(_twice(submissions))
    refused = {finding.folder for finding in (*findings, *again)}
    kept = [submission for submission in submissions if submission.folder not in refused]
    return kept, sorted([*findings, *again], key=lambda finding: finding.folder)


def check(folder: Path, protocol: Protocol) -> Evaluation | list[tuple[str, str]]:
    """Reads a result; returns it, or all that is wrong with it: its kind, and in words.

    Args:
        folder: Of the result.
        protocol: By which it has to be.
    """
    try:
        version = read_objects(folder / RESULT)[0].get("schema_version")
        if version != SCHEMA_VERSION:
            what = f"its schema has version {version!r}; this Fleet-Tools reads {SCHEMA_VERSION}"
            return [(SCHEMA, what)]
        result = read_result(folder)
        read_objects(folder / EPISODES, by_line=True)
        episodes, _ = read_episodes(folder)
    except (FleetToolsError, RecursionError) as error:
        return [(DAMAGED, _brief(str(error).replace(f"{folder}/", "")))]
    return list(_problems(result, episodes, protocol)) or Evaluation(
        result, in_order(protocol, episodes, folder / EPISODES)
    )


# --- Files ----------------------------------------------------------------------------------


def _find(root: Path) -> tuple[list[Path], list[Finding]]:
    """Returns the folders of results, and a finding for each file that has no place among them."""
    results, findings = set(), []
    for path in sorted(root.rglob("*")):
        place = path.relative_to(root)
        if path.is_symlink():
            findings.append(Finding(place.parent.as_posix(), FOREIGN, f"{path.name} is a link"))
        elif path.is_file() and path.name in (RESULT, EPISODES):
            results.add(path.parent)
        elif path.is_file() and path.name not in ("README.md", ".gitkeep"):
            what = f"{path.name} is no file of a result ({RESULT}, {EPISODES} or README.md)"
            findings.append(Finding(place.parent.as_posix(), FOREIGN, what))
    return sorted(results), findings


def _brief(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


# --- What they say --------------------------------------------------------------------------


def _problems(
    result: Result, episodes: Sequence[EpisodeResult], protocol: Protocol
) -> Iterator[tuple[str, str]]:
    expected = protocol_digest(protocol, {task: _task_digest(task) for task in protocol.tasks})
    if result.protocol_digest != expected:
        yield (
            PROTOCOL,
            f"it is by {result.protocol.title!r} ({result.protocol_digest}), where "
            f"{protocol.title!r} with the task files that are here is {expected}",
        )
        return
    wrong = list(_wrong_episodes(episodes, protocol))
    yield from ((EPISODE, what) for what in wrong)
    if not wrong:
        yield from ((SCENE, what) for what in _wrong_scenes(episodes, protocol))
        yield from ((NUMBERS, what) for what in _wrong_numbers(result, episodes))


def _wrong_episodes(episodes: Sequence[EpisodeResult], protocol: Protocol) -> Iterator[str]:
    seeds = {trial.key: trial.seed for trial in protocol.trials()}
    counts = Counter(episode.key for episode in episodes)
    covered = {episode.task for episode in episodes}
    if not episodes:
        yield "there is none"
    yield from _some("are none of the protocol's", [k for k in counts if k not in seeds])
    yield from _some("are there more than once", [k for k, count in counts.items() if count > 1])
    missing = [key for key in seeds if key[0] in covered and key not in counts]
    yield from _some("are missing, though others of their tasks are there", missing)
    other = [e.key for e in episodes if e.key in seeds and e.seed != seeds[e.key]]
    yield from _some("have other seeds than the protocol gives them", other)
    strange = [episode.key for episode in episodes if episode.outcome not in OUTCOMES]
    yield from _some("have outcomes that do not exist", strange)
    unproved = [e.key for e in episodes if e.success_once and not (e.steps and e.scene_digest)]
    yield from _some("are successes without a scene or an action", unproved)


def _wrong_scenes(episodes: Sequence[EpisodeResult], protocol: Protocol) -> Iterator[str]:
    other = [
        episode.key
        for episode in episodes
        if (said := (episode.tool, episode.object, episode.scene_digest))
        != _drawn(protocol, *episode.key)
        and not (episode.outcome == WORKER_ERROR and said == (None, None, None))
    ]
    yield from _some("are of other scenes than their seeds draw", other)


def _wrong_numbers(result: Result, episodes: Sequence[EpisodeResult]) -> Iterator[str]:
    complete = len(episodes) == len(result.protocol.trials())
    if result.complete != complete:
        yield f"complete is {result.complete}, and should be {complete}"
    if result.scores is None:
        yield "it has no scores; the same evaluation, run again, adds them"
        return
    said, counted = (_flat(s) for s in (result.scores, score(result.protocol, episodes)))
    other = [name for name in {**said, **counted} if not _alike(name, said, counted)]
    for name in other[:3]:
        yield f"scores.{name} is {said.get(name)}; the episodes say {counted.get(name)}"
    if len(other) > 3:
        yield f"{len(other) - 3} more scores are not what the episodes say"


def _twice(submissions: Sequence[Submission]) -> Iterator[Finding]:
    """Yields a finding for each result of what an earlier one, by name, is of."""
    first: dict[tuple, str] = {}
    for submission in submissions:
        policy = submission.evaluation.result.policy
        for task in submission.tasks:
            holder = first.setdefault((policy.name, policy.training_seed, task), submission.folder)
            if holder != submission.folder:
                what = (
                    f"{holder} is of {policy.name!r}, training seed {policy.training_seed}, and "
                    f"{task}, too; give another --name, or --training-seed"
                )
                yield Finding(submission.folder, TWICE, what)
                break


def _some(what: str, keys: Sequence[tuple[str, str, int]]) -> Iterator[str]:
    if keys:
        task, split, index = min(keys)
        yield f"{len(keys)} {what}, such as episode {index} of {task}, {split}"


@functools.lru_cache(maxsize=100_000)
def _drawn_by(task: str, split: str, seed: int, randomization: str) -> tuple[str, str, str]:
    scene = sample_scene(_task(task), seed, split=split, randomization=json.loads(randomization))
    return scene.tool, scene.object, scene.digest()


def _drawn(protocol: Protocol, task: str, split: str, index: int) -> tuple[str, str, str]:
    """Returns tool, object and digest of a trial's scene."""
    seed = protocol.splits[split].seeds()[index]
    return _drawn_by(task, split, seed, json.dumps(protocol.randomization))


# Reading YAML takes longer than all other checks together, and task files stay as they are.
_task = functools.cache(load_task)


@functools.cache
def _task_digest(task: str) -> str:
    return read_task_file(task).content_digest


def _flat(scores: Scores) -> dict[str, object]:
    """Returns all numbers by their places, such as "tasks.hammer.end.rate"."""
    flat: dict[str, object] = {}
    left: list[tuple[str, object]] = [("", scores.model_dump())]
    for place, value in left:
        if isinstance(value, dict):
            left += [(f"{place}.{key}" if place else key, inner) for key, inner in value.items()]
        else:
            flat[place] = value
    return flat


def _alike(name: str, one: dict[str, object], other: dict[str, object]) -> bool:
    if name not in one or name not in other:
        return False
    a, b = one[name], other[name]
    if isinstance(a, float) and isinstance(b, float):
        bound = name.endswith((".low", ".high"))
        return abs(a - b) <= (BOUND_TOLERANCE if bound else _RATE_TOLERANCE)
    return a == b
