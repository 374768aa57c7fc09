"""Attacks on the rules of success: `python benchmarks/red_team.py --scenes 10`.

    python benchmarks/red_team.py --tool hammer --cheats grip handle
    python benchmarks/red_team.py --cem-iterations 10 --cem-scenes 3
    python benchmarks/red_team.py --level disturbed --cem-scenes 0

Scripted cheats do a task's deed with something other than the tool's working part, and then bring
the tool to where success wants it; a search over open-loop actions looks for a high dense reward.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from console import print_now, table_head, table_row
from task_selection import TaskSelection

from fleet_tools.config.values import Count, CountOrZero, Seed
from fleet_tools.errors import UnknownNameError
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from cheats.trial import Attacked

FALSE_SUCCESS = 1
"""Exit code if there was a success that nobody would call one."""

SEARCH = "search (CEM)"

_COLUMNS = [
    *("task", "attack", "episodes", "deeds", "other rules hold"),
    *("successes", "false", "by part", "return"),
]
_HEADER = table_head(_COLUMNS)


class RedTeamOptions(cli.Options):
    """Attacks the package's tasks with scripted cheats and with a search over actions.

    Prints a row for each attack: in how many episodes the object moved as the task asks, by
    whatever means; how many would be successes without the predicate `caused_by_part`; how many
    are; and how many of these are false: an independent witness, who looks at which shapes touched
    the object while it moved, does not confirm that the tool's working part did it.

    Exit codes:
    0: no success is false.
    1: some success is false, or an episode was lost.
    2: it cannot begin.
    130: Ctrl-C.
    """

    tasks: TaskSelection = TaskSelection()
    cheats: tuple[str, ...] = ()
    """Names of cheats; without any, all."""
    scenes: CountOrZero = 10
    """Number of scenes for each cheat."""
    cem_scenes: CountOrZero = 2
    """Number of scenes in which actions are searched for, by the cross-entropy method."""
    cem_iterations: Count = 4
    """Iterations of each search, of 12 episodes."""
    level: str | None = None
    """Level of the protocol whose disturbances the scenes of the cheats have, such as disturbed
    (default: none)."""
    first_seed: Seed = 0
    """Seed of the first scene; the others follow."""
    workers: WorkerOptions = WorkerOptions(timeout=1800.0)


@dataclass(frozen=True)
class AttackJob:
    """One attack in one scene.

    Attributes:
        task: Name of the task.
        attack: Name of the cheat, or `SEARCH`.
        seed: Seed of the scene.
        iterations: Iterations of a search.
        level: Level whose disturbances the scene has; None for none.
    """

    task: str
    attack: str
    seed: int
    iterations: int
    level: str | None = None


def _attack_all(options: RedTeamOptions) -> int:
    jobs = list(_jobs(options))
    print_now(options, _HEADER)
    rows: dict[tuple[str, str], list[Attacked]] = {}
    lost: list[dict[str, Any]] = []
    remaining = [(job.task, job.attack) for job in jobs]
    for job, result in options.workers.run(jobs, _make_run):
        key = job.task, job.attack
        if isinstance(result, LostJob):
            lost.append({**asdict(job), "reason": result.reason})
        else:
            rows.setdefault(key, []).extend(result)
        remaining.remove(key)
        if key not in remaining and key in rows:
            print_now(options, _as_text(summarize(*key, rows[key])))
    summaries = [summarize(*key, trials) for key, trials in rows.items()]
    false_successes = sum(summary["false_successes"] for summary in summaries)
    print_now(options, f"\n{false_successes} false successes, {len(lost)} attacks lost.")
    if options.json_output:
        options.report({"rows": summaries, "false_successes": false_successes, "lost": lost}, str)
    return FALSE_SUCCESS if false_successes or lost else cli.OK


def _jobs(options: RedTeamOptions) -> Iterator[AttackJob]:
    from cheats import CHEATS

    def seeds(count: int) -> range:
        return range(options.first_seed, options.first_seed + count)

    tasks = options.tasks.names_or_paths()
    for task in tasks:
        if task not in CHEATS:
            raise UnknownNameError("task with cheats", task, CHEATS)
    known = {name for task in tasks for name in CHEATS[task]}
    for name in options.cheats:
        if name not in known:
            raise UnknownNameError("cheat", name, known)
    for task in tasks:
        for name in CHEATS[task]:
            if name in options.cheats or not options.cheats:
                for seed in seeds(options.scenes):
                    yield AttackJob(task, name, seed, 0, options.level)
        for seed in seeds(options.cem_scenes):
            yield AttackJob(task, SEARCH, seed, options.cem_iterations)


def _make_run() -> Callable[[AttackJob], "list[Attacked]"]:
    """Returns the function that runs a job; it keeps the environment of the last job's task."""
    from fleet_tools.envs.spec import EnvSpec
    from fleet_tools.envs.tool_use_env import ToolUseEnv

    environments: dict[str, ToolUseEnv] = {}

    def run(job: AttackJob) -> "list[Attacked]":
        from cheats import CHEATS, PUSHES
        from cheats.cross_entropy import search
        from cheats.motion import CheatPolicy
        from cheats.trial import attacked_scene, run_trial

        from fleet_tools.evaluation.config import PROTOCOL
        from fleet_tools.evaluation.protocol_file import load_protocol

        if job.task not in environments:
            environments.clear()
            environments[job.task] = EnvSpec.of(
                task=job.task, split="all", reward="dense"
            ).make_tool_use()
        env = environments[job.task]
        if job.attack == SEARCH:
            return search(env, job.seed, job.iterations)
        script = CHEATS[job.task][job.attack]
        level = load_protocol(PROTOCOL, job.level).disturbances if job.level else None
        scene = attacked_scene(env, job.seed, PUSHES.get(script), level)
        return [run_trial(env, CheatPolicy(env, script), scene)]

    return run


def summarize(task: str, attack: str, trials: "list[Attacked]") -> dict[str, Any]:
    """Returns the figures of an attack's episodes."""
    trials = sorted(trials, key=lambda trial: trial.seed)
    return {
        "task": task,
        "attack": attack,
        "episodes": len(trials),
        "deeds": sum(trial.deed for trial in trials),
        "old_successes": sum(trial.old_success for trial in trials),
        "successes": sum(trial.success for trial in trials),
        "false_successes": sum(trial.false_success for trial in trials),
        "most_by_part": max(trial.by_part for trial in trials),
        "best_return": max(trial.total_reward for trial in trials),
        "succeeded": [asdict(trial) for trial in trials if trial.success],
    }


def _as_text(summary: dict[str, Any]) -> str:
    cells = [
        summary["task"],
        summary["attack"],
        str(summary["episodes"]),
        str(summary["deeds"]),
        str(summary["old_successes"]),
        str(summary["successes"]),
        str(summary["false_successes"]),
        f"{summary['most_by_part']:.0%}",
        f"{summary['best_return']:.1f}",
    ]
    return table_row(cells)


PROGRAM = cli.Program(
    "red_team.py", cli.Command(RedTeamOptions, _attack_all), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
