"""Measures success rates: `python benchmarks/success.py --policies expert`.

    python benchmarks/success.py --tool wrench --episodes 200 --policies zero random
    python benchmarks/success.py --episodes 50 --push --policies expert expert_open_loop
    python benchmarks/success.py --tool hammer --robot ur5e --policies A.safetensors

Every attempt counts, all randomization is on, and seeds are fixed.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from scaffold import TaskSelection, main_of, report_rows

from fleet_tools.config.values import Count, Seed
from fleet_tools.envs.outcomes import SUCCESS, WORKER_ERROR
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.policies.policy import Policy
from fleet_tools.policies.sources import find_policy
from fleet_tools.robot.arm import DEFAULT_ROBOT
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.scene import Push, Scene, sample_scene
from fleet_tools.utils import cli
from fleet_tools.utils.statistics import wilson_interval

EXPERT_VARIANTS: dict[str, dict[str, Any]] = {
    "expert_open_loop": {"feedback": False},
    "expert_pose_space": {"actuation": "pose_space"},
}
"""Keyword arguments of the experts that exist only here, for comparison."""

Episode = dict[str, Any]
"""Facts of an episode: seed, models, outcome, cause, steps, info."""

_COLUMNS = (
    *("task", "split", "policy", "success", "95% interval", "planning, ms", "steps", "failures"),
)
_FAILURES_LISTED = 5
_CAUSES_LISTED = 4


class SuccessOptions(cli.Options):
    """Measures success rates of policies, with all randomization on and fixed seeds.

    Prints a row for each task, split and policy: the success rate with a 95% Wilson interval, the
    planning time, the length of episodes, and the causes of failures: the success predicates of the
    task that did not hold at the end.
    """

    tasks: TaskSelection = TaskSelection()
    split: Literal["train", "unseen_pairs", "unseen_tools", "unseen_objects", "all"] = "all"
    """Split of the models."""
    episodes: Count = 200
    """Number of episodes of each row."""
    first_seed: Seed = 0
    """Seed of the first scene; the others follow."""
    policies: tuple[str, ...] = (*EXPERT_VARIANTS, "expert", "zero", "random")
    """Policies: names, or paths of checkpoints, which act on any arm if they read no joints.
    Without feedback, expert_open_loop never replans, and expert_pose_space plans by poses instead
    of joint positions."""
    push: bool = False
    """Move the object by 1 to 2 cm while the tool approaches it."""
    robot: str = DEFAULT_ROBOT
    """Arm: a name from `task_configs/robots/`, or the path of a robot's YAML file."""
    workers: WorkerOptions = WorkerOptions()


@dataclass(frozen=True)
class Row:
    """The case of a row of the table: `push` moves the object of each scene."""

    task: str
    split: str
    policy: str
    push: bool = False
    robot: str = DEFAULT_ROBOT


@dataclass(frozen=True)
class ScoredEpisode:
    """An episode to run.

    Attributes:
        row: Row to which it belongs.
        seed: Seed of the scene.
    """

    row: Row
    seed: int


def _measure_all(options: SuccessOptions) -> int:
    tasks = options.tasks.names_or_paths()
    rows = [
        Row(task, options.split, policy, options.push, options.robot)
        for task in tasks
        for policy in options.policies
    ]
    seeds = range(options.first_seed, options.first_seed + options.episodes)
    jobs = (ScoredEpisode(row, seed) for row in rows for seed in seeds)
    complete = _complete_rows(options, jobs)
    summaries = (asdict(row) | summarize(episodes) for row, episodes in complete)
    report_rows(options, _COLUMNS, summaries, _cells)
    return cli.OK


def _complete_rows(
    options: SuccessOptions, jobs: Iterator[ScoredEpisode]
) -> Iterator[tuple[Row, list[Episode]]]:
    """Runs the jobs, and yields each row with its episodes once it is complete."""
    episodes: dict[Row, list[Episode]] = {}
    for job, result in options.workers.run(jobs, _make_run):
        if isinstance(result, LostJob):
            result = _lost(job, result)
        of_row = episodes.setdefault(job.row, [])
        of_row.append(result)
        if len(of_row) == options.episodes:
            yield job.row, sorted(of_row, key=lambda episode: episode["seed"])


def _make_run() -> Callable[[ScoredEpisode], Episode]:
    """Returns the function that runs a job; it keeps the environment of the last job."""
    environments: dict[Row, ToolUseEnv] = {}

    def run(job: ScoredEpisode) -> Episode:
        if job.row not in environments:
            for env in environments.values():
                env.close()
            environments.clear()
            row = job.row
            kwargs = {} if row.policy in EXPERT_VARIANTS else find_policy(row.policy).env_kwargs
            spec = EnvSpec.of(row.task, split=row.split, robot=row.robot, **kwargs)
            environments[row] = spec.make_tool_use()
        return run_episode(environments[job.row], job)

    return run


def run_episode(env: ToolUseEnv, job: ScoredEpisode) -> Episode:
    """Runs an episode, and returns its facts."""
    scene = sample_scene(env.task, job.seed, split=env.split)
    scene = pushed(scene) if job.row.push else scene
    episode = rollout(env, _policy(env, job), scene=scene)
    unmet = [name for name, verdict in env.verdicts().items() if not verdict.holds]
    return {
        "seed": job.seed,
        "models": f"{scene.tool} on {scene.object}",
        "outcome": episode.outcome,
        "cause": episode.error or ", ".join(unmet),
        "steps": len(episode),
        "info": dict(episode.info),
    }


def _lost(job: ScoredEpisode, lost: LostJob) -> Episode:
    return {
        "seed": job.seed,
        "models": "unknown models",
        "outcome": WORKER_ERROR,
        "cause": lost.reason,
        "steps": 0,
        "info": {},
    }


def _policy(env: ToolUseEnv, job: ScoredEpisode) -> Policy:
    name = job.row.policy
    if name in EXPERT_VARIANTS:
        return ExpertPolicy(env, **EXPERT_VARIANTS[name])
    return find_policy(name).make(env, job.seed)


def pushed(scene: Scene) -> Scene:
    """Returns a scene with a push of the object by 1 to 2 cm within its first second."""
    rng = np.random.default_rng([scene.seed, 1])
    angle, distance = rng.uniform(-np.pi, np.pi), rng.uniform(0.01, 0.02)
    p_W = (distance * np.cos(angle), distance * np.sin(angle), 0.0)
    time_s = int(rng.integers(1, 6)) / 6
    return scene.model_copy(update={"push": Push(time_s=time_s, translation_m=p_W)})


def summarize(episodes: list[Episode]) -> dict[str, Any]:
    """Returns the figures of a row's episodes."""
    successes = sum(episode["outcome"] == SUCCESS for episode in episodes)
    infos = [e["info"] for e in episodes if "planning_seconds" in e["info"]]
    planning_ms = [1e3 * info["planning_seconds"] / max(info["plans"], 1) for info in infos]
    return {
        "episodes": len(episodes),
        "successes": successes,
        "interval_95": wilson_interval(successes, len(episodes)),
        "outcomes": dict(Counter(episode["outcome"] for episode in episodes)),
        "planning_ms_median_p95": [float(np.percentile(planning_ms, p)) for p in (50, 95)]
        if planning_ms
        else None,
        "replanned": sum(info["plans"] > 1 for info in infos),
        "retreated": sum(info["retreats"] > 0 for info in infos),
        "steps_median": float(np.median([episode["steps"] for episode in episodes])),
        "failures": [episode for episode in episodes if episode["outcome"] != SUCCESS],
    }


def _cells(summary: Mapping[str, Any]) -> list[str]:
    low, high = summary["interval_95"]
    planning = summary["planning_ms_median_p95"]
    return [
        summary["task"],
        summary["split"],
        summary["policy"] + (", pushed" if summary["push"] else ""),
        f"{summary['successes']} of {summary['episodes']}",
        f"{low:.1%} to {high:.1%}",
        "median {:.0f}, 95% {:.0f}".format(*planning) if planning else "",
        f"{summary['steps_median']:g}",
        "; ".join(_causes(summary)),
    ]


def _causes(summary: Mapping[str, Any]) -> list[str]:
    """Returns the causes of failures: each, or the most frequent ones."""
    failures: list[Episode] = summary["failures"]
    if not summary["planning_ms_median_p95"]:
        counted = Counter(episode["outcome"] for episode in failures)
        causes = [f"{count} {outcome}" for outcome, count in counted.items()]
    elif len(failures) <= _FAILURES_LISTED:
        causes = [
            f"{e['outcome']}, seed {e['seed']} ({e['models']}): {e['cause']}" for e in failures
        ]
    else:
        counted = Counter(cause for e in failures for cause in e["cause"].split(", "))
        causes = [f"{count} times {cause}" for cause, count in counted.most_common(_CAUSES_LISTED)]
    if summary["replanned"]:
        causes.append(f"{summary['replanned']} replanned, {summary['retreated']} retreated")
    return causes


main = main_of(__file__, SuccessOptions, _measure_all)

if __name__ == "__main__":
    sys.exit(main())
