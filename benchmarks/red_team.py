"""Attacks on the rules of success: `python benchmarks/red_team.py --scenes 10`.

    python benchmarks/red_team.py --tool hammer --only grip handle
    python benchmarks/red_team.py --cem-iterations 10 --cem-scenes 3
    python benchmarks/red_team.py --level pushes --cem-scenes 0
    python benchmarks/red_team.py --honest --scenes 3
    python benchmarks/red_team.py --task other_knife.yaml   # another version of a task

Scripted cheats do a task's deed with something other than the tool's working part, and then bring
the tool to where success wants it; a search over open-loop actions looks for a high dense reward.
Honest ways, instead of the cheats, do it with the working part, otherwise than the expert.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from cheats import CHEATS, PUSHES
from cheats.cross_entropy import search
from cheats.motion import ScriptPolicy
from cheats.trial import Attacked, attacked_scene, run_trial
from honest_ways import HONEST
from scaffold import TaskSelection, main_of, print_now, table_head, table_row

from fleet_tools.config.tasks import load_task
from fleet_tools.config.values import Count, CountOrZero, Seed
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import UnknownNameError
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.utils import cli

WRONG_VERDICT = 1
"""Exit code if there was a success that nobody would call one, or a deed that was refused."""

SEARCH = "search (CEM)"

_COLUMNS = [
    *("task", "attack", "episodes", "deeds", "other rules hold"),
    *("successes", "false", "by part", "return"),
]
_HONEST_COLUMNS = ["task", "way", "episodes", "done", "successes", "refused", "why"]


class RedTeamOptions(cli.Options):
    """Attacks the package's tasks with scripted cheats and with a search over actions.

    Prints a row for each attack: in how many episodes the object moved as the task asks, by
    whatever means; how many would be successes without the predicate `caused_by_part`; how many
    are; and how many of these are false: an independent witness, who looks at which shapes touched
    the object while it moved, does not confirm that the tool's working part did it.

    With `--honest`, a row for each honest way: in how many episodes the witness saw the working
    part do the deed, how many are successes, how many are not although the deed was done so, and
    which predicates did not hold then.

    Exit codes:
    0: no success is false; with `--honest`, nothing that was done is refused.
    1: some success is false, some deed is refused, or an episode was lost.
    """

    tasks: TaskSelection = TaskSelection()
    only: tuple[str, ...] = ()
    """Names of cheats, or of honest ways; without any, all."""
    honest: bool = False
    """Run honest ways instead of cheats; their joints turn as hard as they are."""
    scenes: CountOrZero = 10
    """Number of scenes for each cheat."""
    cem_scenes: CountOrZero = 2
    """Number of scenes in which actions are searched for, by the cross-entropy method."""
    cem_iterations: Count = 4
    """Iterations of each search, of 12 episodes."""
    level: str | None = None
    """Level of the protocol whose changes the scenes of the cheats have, such as pushes (default:
    none)."""
    first_seed: Seed = 0
    """Seed of the first scene; the others follow."""
    workers: WorkerOptions = WorkerOptions(timeout=1800.0)


@dataclass(frozen=True)
class AttackJob:
    """One attack in one scene.

    Attributes:
        task: Name of the task, or the path of a file with the name of a task.
        attack: Name of the cheat, or `SEARCH`.
        seed: Seed of the scene.
        iterations: Iterations of a search.
        level: Level whose changes the scene has; None for none.
        honest: Whether the attack is an honest way.
    """

    task: str
    attack: str
    seed: int
    iterations: int
    level: str | None = None
    honest: bool = False


def _attack_all(options: RedTeamOptions) -> int:
    jobs = list(_jobs(options))
    summarize_row = summarize_honest if options.honest else summarize
    print_now(options, table_head(_HONEST_COLUMNS if options.honest else _COLUMNS))
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
            print_now(options, _as_text(summarize_row(*key, rows[key])))
    summaries = [summarize_row(*key, trials) for key, trials in rows.items()]
    counted = "refused" if options.honest else "false_successes"
    wrong = sum(summary[counted] for summary in summaries)
    print_now(options, f"\n{wrong} {counted.replace('_', ' ')}, {len(lost)} episodes lost.")
    if options.json_output:
        options.report({"rows": summaries, counted: wrong, "lost": lost}, str)
    return WRONG_VERDICT if wrong or lost else cli.OK


def _jobs(options: RedTeamOptions) -> Iterator[AttackJob]:
    def seeds(count: int) -> range:
        return range(options.first_seed, options.first_seed + count)

    scripts, what = (HONEST, "honest way") if options.honest else (CHEATS, "cheat")
    names = {task: load_task(task).name for task in options.tasks.names_or_paths()}
    for name in names.values():
        if name not in scripts:
            raise UnknownNameError(f"task with {what}s", name, scripts)
    known = {way for name in names.values() for way in scripts[name]}
    for name in options.only:
        if name not in known:
            raise UnknownNameError(what, name, known)
    for task, name in names.items():
        for way in scripts[name]:
            if way in options.only or not options.only:
                for seed in seeds(options.scenes):
                    yield AttackJob(task, way, seed, 0, options.level, options.honest)
        for seed in seeds(0 if options.honest else options.cem_scenes):
            yield AttackJob(task, SEARCH, seed, options.cem_iterations)


def _make_run() -> Callable[[AttackJob], list[Attacked]]:
    """Returns the function that runs a job; it keeps the environment of the last job's task."""
    environments: dict[str, ToolUseEnv] = {}

    def run(job: AttackJob) -> list[Attacked]:
        if job.task not in environments:
            environments.clear()
            environments[job.task] = EnvSpec.of(
                task=job.task, split="all", reward="dense"
            ).make_tool_use()
        env = environments[job.task]
        if job.attack == SEARCH:
            return search(env, job.seed, job.iterations)
        script = (HONEST if job.honest else CHEATS)[env.task.name][job.attack]
        level = load_protocol(PROTOCOL, job.level).scene_rules() if job.level else None
        push, loosened = PUSHES.get(script), not job.honest
        scene = attacked_scene(env, job.seed, push, level, loosened=loosened)
        return [run_trial(env, ScriptPolicy(env, script), scene)]

    return run


def summarize(task: str, attack: str, trials: list[Attacked]) -> dict[str, Any]:
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


def summarize_honest(task: str, way: str, trials: list[Attacked]) -> dict[str, Any]:
    """Returns the figures of an honest way's episodes."""
    refused = [trial for trial in trials if trial.done and not trial.success]
    causes = Counter(name for trial in refused for name in trial.unmet or ("held too briefly",))
    return {
        "task": task,
        "way": way,
        "episodes": len(trials),
        "done": sum(trial.done for trial in trials),
        "successes": sum(trial.success for trial in trials),
        "refused": len(refused),
        "why": ", ".join(f"{name} ({count})" for name, count in causes.items()),
        "refusals": [asdict(trial) for trial in refused],
    }


def _as_text(summary: dict[str, Any]) -> str:
    shares = {"most_by_part": ".0%", "best_return": ".1f"}
    return table_row(
        format(cell, shares.get(name, ""))
        for name, cell in summary.items()
        if not isinstance(cell, list)
    )


main = main_of(__file__, RedTeamOptions, _attack_all)

if __name__ == "__main__":
    sys.exit(main())
