"""At which stage policies fail: `python benchmarks/failure_stages.py --tool wrench ...`."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from console import table_head, table_row
from pose_errors import pose_errors

from fleet_tools.config.options import TaskOptions
from fleet_tools.config.values import Count, CountOrZero, Positive
from fleet_tools.envs.outcomes import SIMULATION_ERROR, SUCCESS
from fleet_tools.errors import ConfigError, SimulationError
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.policies.sources import PolicyName, find_policy
from fleet_tools.utils import cli
from fleet_tools.utils.statistics import (
    paired_difference,
    paired_interval,
    paired_p_value,
    wilson_interval,
)

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    import numpy as np

    from fleet_tools.envs.tool_use_env import ToolUseEnv
    from fleet_tools.policies.policy import Policy
    from fleet_tools.policies.sources import PolicySource

STAGES = ("solved", "no contact", "beside", "in place", "slipped", "moved in part", "moved enough")
"""How far an episode came; see `stage_of`."""
NO_TRIAL = "no trial"
"""Stands for a stage where the simulator or the worker failed, which is no failure of a policy."""
BEGUN = 0.1
"""Part of the change of the object from which on it has begun."""
_PLACE = "keypoints_near"
"""Type of predicates of where the tool is to be meanwhile."""
_CONDITIONS = (_PLACE, "contact", "still", "axis_upright")
"""Types of predicates that are not of what is done to the object."""

Facts = dict[str, Any]
"""What is stored of an episode, plain JSON data."""
_KEY = ("source", "task", "repeats_deg", "seed")
"""Names of the facts that tell episodes apart."""


class StagesOptions(cli.Options):
    """Runs policies in validation scenes of a task's training split, and says how far they come.

    Prints a row for each policy: the scenes that it solves, with the 95% interval; the failures by
    stage; and the difference to the first policy, with the p-value of the paired test. A second
    table has where the tool was when it came closest to the pose that the task file describes, as
    medians over failures. Stages:

        no contact      the tool never touched the object
        beside          it did, but its keypoint was never within the task's distance of the
                        object's (tasks without such a distance have no such stage)
        in place        it was, but less than a tenth of the change was made
        slipped         a part was, and at the end the tool was no longer in place
        moved in part   a part was, and at the end the tool was in place
        moved enough    the change was made, but not everything held at once
        no trial        the simulator failed, which counts for no policy

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    task: TaskOptions
    policies: tuple[PolicyName, ...]
    scenes: Count = 40
    """Number of scenes."""
    first: CountOrZero = 0
    """Number of the first scene; `train --rollouts` begins at 0."""
    repeats_deg: Positive = 360.0
    """Angle after which the object looks the same, such as 60 of a hexagonal nut, deg."""
    output: Path | None = None
    """File for the facts of the episodes, a JSON object a line. Those that are in it are not run
    again."""
    workers: WorkerOptions = WorkerOptions()


@dataclass(frozen=True)
class Situation:
    """What counts for the stage at one moment."""

    touching: bool
    """Whether the tool touches the object."""
    placed: bool
    """Whether the tool is where the task wants it."""
    change: float
    """Progress of what is done to the object, in [0, 1]."""


def stage_of(moments: Sequence[Situation], success: bool) -> str:
    """Returns how far an episode came, one of `STAGES`.

    Args:
        moments: Its moments, from its beginning to its end; at least one.
        success: Whether it succeeded.
    """
    if success:
        return "solved"
    start, furthest = moments[0].change, max(moment.change for moment in moments)
    if furthest >= 1:
        return "moved enough"
    if furthest - start >= BEGUN * (1 - start):
        return "moved in part" if moments[-1].placed else "slipped"
    if any(moment.placed for moment in moments):
        return "in place"
    return "beside" if any(moment.touching for moment in moments) else "no contact"


class Watched:
    """A policy whose episodes are watched: `moments`, and `nearest` of `pose_errors` so far."""

    def __init__(self, env: "ToolUseEnv", policy: "Policy", repeats_deg: float = 360.0) -> None:
        self._env, self._policy, self._repeats_deg = env, policy, repeats_deg
        self.moments: list[Situation] = []
        self.nearest: dict[str, float] = {}

    def reset(self) -> None:
        """Begins anew."""
        self.moments, self.nearest = [], {}
        self._policy.reset()

    def act(self, observation: dict[str, "np.ndarray"]) -> "np.ndarray":
        """Looks at the state, and returns the policy's action."""
        self.look()
        return self._policy.act(observation)

    def look(self) -> None:
        """Takes down the present moment."""
        state, verdicts = self._env.world_state(), self._env.verdicts().values()
        judged = list(zip(self._env.task.success, verdicts, strict=True))
        changes = [verdict.progress for each, verdict in judged if each.type not in _CONDITIONS]
        places = [verdict.holds for each, verdict in judged if each.type == _PLACE]
        touching = state.in_contact("tool", "object")
        placed = all(places) if places else touching
        self.moments.append(Situation(touching, placed, min(changes, default=0.0)))
        found = pose_errors(self._env, state, self._repeats_deg)
        if found.get("distance_mm", 0.0) <= self.nearest.get("distance_mm", float("inf")):
            self.nearest = found


def _measure(options: StagesOptions) -> int:
    from fleet_tools.sim.splits import VALIDATION

    sources = {_label(policy): find_policy(policy) for policy in options.policies}
    if len(sources) < len(options.policies):
        raise ConfigError(
            f"Two of the policies have the same name in tables: {', '.join(options.policies)}. "
            "Give checkpoints in folders of different names."
        )
    seeds = VALIDATION[options.first : options.first + options.scenes]
    known = _stored(options.output)
    task, repeats_deg = options.task.name_or_path(), options.repeats_deg
    keys = {
        (name, seed): (str(source), task, repeats_deg, seed)
        for name, source in sources.items()
        for seed in seeds
    }
    missing = [job for job, key in keys.items() if key not in known]
    make_work = partial(_make_episodes, task, sources, repeats_deg)
    for job, result in options.workers.run(missing, make_work):
        if isinstance(result, LostJob):
            known[keys[job]] = {"outcome": result.reason, "stage": NO_TRIAL, "nearest": {}}
            continue  # is tried again by the next run
        facts = dict(zip(_KEY, keys[job], strict=True)) | {"policy": job[0]} | result
        known[keys[job]] = facts
        if options.output is not None:
            with options.output.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(facts)}\n")
    rows = {name: [known[keys[name, seed]] for seed in seeds] for name in sources}
    options.report({"episodes": rows}, lambda: "\n\n".join((_stages(rows), _poses(rows))))
    return cli.OK


def _label(policy: str) -> str:
    """Returns the name of a policy in tables: of a checkpoint, that of its folder."""
    path = Path(policy)
    return path.parent.name if path.suffix == ".safetensors" else policy


def _stored(path: Path | None) -> dict[tuple[Any, ...], Facts]:
    """Returns the facts in a file by `_KEY`.

    Raises:
        ConfigError: A line is something else, or was cut off.
    """
    found: dict[tuple[Any, ...], Facts] = {}
    if path is None or not path.exists():
        return found
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            facts = json.loads(line)
            found[tuple(facts[name] for name in _KEY)] = facts
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"Line {number} of {path} is not the facts of an episode. Remove the line, or give "
                "another --output."
            ) from None
    return found


def _make_episodes(
    task: str, sources: Mapping[str, "PolicySource"], repeats_deg: float
) -> Callable[[tuple[str, int]], Facts]:
    """Returns a function that runs an episode, in an environment for each policy."""
    from fleet_tools.envs.spec import EnvSpec

    envs: dict[str, ToolUseEnv] = {}

    def run(job: tuple[str, int]) -> Facts:
        name, seed = job
        if name not in envs:
            envs[name] = EnvSpec.of(task=task, **sources[name].env_kwargs).make_tool_use()
        return watch(envs[name], sources[name], seed, repeats_deg)

    return run


def watch(env: "ToolUseEnv", source: "PolicySource", seed: int, repeats_deg: float) -> Facts:
    """Runs an episode, and returns its facts."""
    from fleet_tools.policies.policy import make_guarded
    from fleet_tools.rollouts.rollout import rollout

    policy = Watched(env, make_guarded(source, env, seed), repeats_deg)
    try:
        episode = rollout(env, policy, seed=seed)
    except SimulationError as error:  # the scene cannot even begin
        found = {"outcome": SIMULATION_ERROR, "error": str(error), "steps": 0, "change": 0.0}
        return found | {"stage": NO_TRIAL, "nearest": {}}
    policy.look()
    stage = stage_of(policy.moments, episode.outcome == SUCCESS)
    return {
        "models": f"{env.scene.tool} on {env.scene.object}",
        "outcome": episode.outcome,
        "error": episode.error,
        "steps": len(episode),
        "stage": NO_TRIAL if episode.outcome == SIMULATION_ERROR else stage,
        "change": max(moment.change for moment in policy.moments),
        "nearest": policy.nearest,
    }


def _stages(rows: Mapping[str, Sequence[Facts]]) -> str:
    """Returns the table of stages."""
    stages = [*STAGES[1:], NO_TRIAL]
    lines = [table_head(["policy", "solved", "95% interval", *stages, "to the first", "p"])]
    first = next(iter(rows.values()))
    for name, episodes in rows.items():
        counts = Counter(each["stage"] for each in episodes)
        trials = len(episodes) - counts[NO_TRIAL]
        low, high = wilson_interval(counts["solved"], trials)
        cells = [name, f"{counts['solved']} of {trials}", f"{low:.0%} to {high:.0%}"]
        cells += [str(counts[stage]) for stage in stages]
        cells += ["", ""] if episodes is first else _paired(first, episodes)
        lines.append(table_row(cells))
    return "\n".join(lines)


def _paired(first: Sequence[Facts], second: Sequence[Facts]) -> list[str]:
    """Returns the difference of successes in the same scenes with its interval, and the p-value."""
    both = [(b["stage"], a["stage"]) for a, b in zip(first, second, strict=True)]
    pairs = [(b == "solved", a == "solved") for b, a in both if NO_TRIAL not in (a, b)]
    strata = [(pairs.count((True, False)), pairs.count((False, True)), len(pairs))]
    low, high = paired_interval(strata)
    difference = paired_difference(strata) or 0.0
    return [f"{difference:+.0%} ({low:+.0%} to {high:+.0%})", f"{paired_p_value(strata):.2g}"]


def _poses(rows: Mapping[str, Sequence[Facts]]) -> str:
    """Returns the table of where the tool was when it came closest, in failures."""
    names = sorted({name for each in rows.values() for facts in each for name in facts["nearest"]})
    lines = [table_head(["policy", "failures", *(name.replace("_", ", ") for name in names)])]
    for policy, episodes in rows.items():
        failed = [each for each in episodes if each["stage"] in STAGES[1:]]
        nearest = [each["nearest"] for each in failed]
        nearest = [each for each in nearest if each]
        cells = [f"{median(each[name] for each in nearest):.1f}" for name in names if nearest]
        lines.append(table_row([policy, str(len(nearest)), *(cells or [""] * len(names))]))
    return "\n".join(lines)


PROGRAM = cli.Program(
    "failure_stages.py", cli.Command(StagesOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
