"""Attacks on the rules of success, and honest work: `python benchmarks/red_team.py --scenes 10`.

    python benchmarks/red_team.py --tool hammer --only grip handle
    python benchmarks/red_team.py --kinds cheat --level pushes
    python benchmarks/red_team.py --task other_knife.yaml   # another version of a task

Scripted cheats do a task's deed with something other than the tool's working part, and then bring
the tool to the pose of success. A search over open-loop actions looks for a high dense reward.
Honest ways do it with the working part, unlike the expert.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cheats import CHEATS, OTHERS
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
"""Exit code if there was a false success, or a refused deed."""

SEARCH = "search (CEM)"

_SCRIPTS = {"cheat": CHEATS, "honest": HONEST}

CHEAT, HONEST_WAY, SEARCHED = "cheat", "honest", "search"

PATIENCE = 3.0
"""Time of cheats, in time limits of the task: some undo the deed and do it again."""

_COLUMNS = [
    *("task", "kind", "script", "episodes", "not done", "denied", "successes", "wrong"),
    *("by part", "return", "why"),
]


class RedTeamOptions(cli.Options):
    """Attacks the package's tasks with cheats and a search over actions, and does honest work.

    Prints a row for each script, with the numbers of three results: the deed was *not done*, it was
    done and success *denied*, or success. A cheat's deed is the task's first predicate, by any
    means; a denied one was caught. Its success is *wrong* if an independent witness of contacts
    does not confirm that the tool's working part did it. An honest deed is one that the witness saw
    the working part do; denying it is *wrong*.

    The last columns have the largest progress of `caused_by_part`, the largest dense return (above
    1 only with a success), and the predicates that did not hold when success was denied, each with
    the number of denied episodes. Of several such times, the fewest predicates count. Episodes of a
    search are all that it tried.

    Exit codes:
    0: nothing is wrong.
    1: a verdict is wrong, or an episode was lost.
    """

    tasks: TaskSelection = TaskSelection()
    kinds: tuple[Literal["cheat", "honest", "search"], ...] = (CHEAT, HONEST_WAY, SEARCHED)
    """Kinds to run. In cheats, joints turn more easily than in honest ways."""
    only: tuple[str, ...] = ()
    """Names of cheats and of honest ways; without any, all."""
    scenes: CountOrZero = 10
    """Number of scenes for each script."""
    cem_scenes: CountOrZero = 2
    """Number of scenes for a search of actions by the cross-entropy method."""
    cem_iterations: Count = 4
    """Iterations of each search, of 12 episodes."""
    level: str | None = None
    """Level of the protocol that changes the scenes of cheats, such as pushes (default: none)."""
    first_seed: Seed = 0
    """Seed of the first scene; the others follow."""
    workers: WorkerOptions = WorkerOptions(timeout=1800.0)


@dataclass(frozen=True)
class AttackJob:
    """One script in one scene.

    Attributes:
        task: Name of the task, or the path of a file with the name of a task.
        kind: Kind of the script: a cheat, an honest way or a search.
        script: Its name, or `SEARCH`.
        seed: Seed of the scene.
        iterations: Iterations of a search.
        level: Level that changes the scene; None for none.
    """

    task: str
    kind: str
    script: str
    seed: int
    iterations: int = 0
    level: str | None = None


def _attack_all(options: RedTeamOptions) -> int:
    jobs = list(_jobs(options))
    print_now(options, table_head(_COLUMNS))
    rows: dict[tuple[str, str, str], list[Attacked]] = {}
    lost: list[dict[str, Any]] = []
    remaining = [(job.task, job.kind, job.script) for job in jobs]
    for job, result in options.workers.run(jobs, _make_run):
        key = job.task, job.kind, job.script
        if isinstance(result, LostJob):
            lost.append({**asdict(job), "reason": result.reason})
        else:
            rows.setdefault(key, []).extend(result)
        remaining.remove(key)
        if key not in remaining and key in rows:
            print_now(options, _as_text(summarize(*key, rows[key])))
    summaries = [summarize(*key, trials) for key, trials in rows.items()]
    wrong = {
        kind: sum(summary["wrong"] for summary in summaries if summary["kind"] == kind)
        for kind in options.kinds
    }
    told = ", ".join(f"{count} of {kind} wrong" for kind, count in wrong.items())
    print_now(options, f"\n{told}, {len(lost)} episodes lost.")
    if options.json_output:
        options.report({"rows": summaries, "wrong": wrong, "lost": lost}, str)
    return WRONG_VERDICT if any(wrong.values()) or lost else cli.OK


def _jobs(options: RedTeamOptions) -> Iterator[AttackJob]:
    def seeds(count: int) -> range:
        return range(options.first_seed, options.first_seed + count)

    names = {task: load_task(task).name for task in options.tasks.names_or_paths()}
    for name in names.values():
        if name not in CHEATS:
            raise UnknownNameError("task with cheats", name, CHEATS)
    scripts = {kind: _SCRIPTS[kind] for kind in options.kinds if kind in _SCRIPTS}
    known = {
        way
        for of_task in scripts.values()
        for name in names.values()
        for way in of_task.get(name, ())
    }
    for name in options.only:
        if name not in known:
            raise UnknownNameError("cheat or honest way", name, known)
    for task, name in names.items():
        for kind, of_task in scripts.items():
            for way in of_task.get(name, ()):
                if way in options.only or not options.only:
                    for seed in seeds(options.scenes):
                        level = options.level if kind == CHEAT else None
                        yield AttackJob(task, kind, way, seed, level=level)
        if SEARCHED in options.kinds and not options.only:
            for seed in seeds(options.cem_scenes):
                yield AttackJob(task, SEARCHED, SEARCH, seed, options.cem_iterations)


def _make_run() -> Callable[[AttackJob], list[Attacked]]:
    """Returns the function that runs a job; it keeps the environments of the last job's task."""
    environments: dict[tuple[str, bool], ToolUseEnv] = {}

    def environment(task: str, *, patient: bool) -> ToolUseEnv:
        if (task, patient) not in environments:
            if any(known != task for known, _ in environments):
                environments.clear()
            env = EnvSpec.of(task=task, split="all", reward="dense").make_tool_use()
            factor = PATIENCE if patient else 1.0
            limit = {"time_limit_s": factor * env.task.time_limit_s}
            env.task = env.task.model_copy(update=limit)
            environments[task, patient] = env
        return environments[task, patient]

    def run(job: AttackJob) -> list[Attacked]:
        cheats = job.kind == CHEAT
        env = environment(job.task, patient=cheats)
        if job.kind == SEARCHED:
            return search(env, job.seed, job.iterations)
        script = _SCRIPTS[job.kind][env.task.name][job.script]
        level = load_protocol(PROTOCOL, job.level).scene_rules() if job.level else None
        scene = attacked_scene(env, job.seed, OTHERS.get(script), level, loosened=cheats)
        return [run_trial(env, ScriptPolicy(env, script), scene)]

    return run


def summarize(task: str, kind: str, script: str, trials: list[Attacked]) -> dict[str, Any]:
    """Returns the figures of a script's episodes."""
    trials = sorted(trials, key=lambda trial: trial.seed)
    honest = kind == HONEST_WAY
    did = [trial for trial in trials if trial.success or (trial.done if honest else trial.deed)]
    denied = [trial for trial in did if not trial.success]
    causes = Counter(name for trial in denied for name in trial.unmet or ("held too briefly",))
    wrong = denied if honest else [trial for trial in trials if trial.false_success]
    return {
        "task": task,
        "kind": kind,
        "script": script,
        "episodes": len(trials),
        "not_done": len(trials) - len(did),
        "denied": len(denied),
        "successes": len(did) - len(denied),
        "wrong": len(wrong),
        "most_by_part": max(trial.by_part for trial in trials),
        "best_return": max(trial.total_reward for trial in trials),
        "why": ", ".join(f"{name} ({count})" for name, count in causes.items()),
        "trials": [asdict(trial) for trial in trials if trial.success or trial in wrong],
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
