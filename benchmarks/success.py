"""How often policies succeed: every attempt counted, all randomization on, fixed seeds.

    python benchmarks/success.py --tool hammer --episodes 200

Prints, per policy, the success rate with a 95% Wilson interval, what the other episodes ended as,
and the lengths of episodes; for the expert also the seconds of planning.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import numpy as np

POLICIES = ("expert", "expert_open_loop", "expert_pose_space", "zero", "random")
_env = None


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tool", default="hammer", help="the package's task for this tool")
    which.add_argument("--task", help="a task's name, or the path of your own")
    parser.add_argument("--split", default="all")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES)
    parser.add_argument(
        "--push", action="store_true", help="move the object by 1 to 2 cm, early in each episode"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    seeds = range(arguments.first_seed, arguments.first_seed + arguments.episodes)
    context = multiprocessing.get_context("spawn")
    environment = (arguments.task or arguments.tool, arguments.split)
    with ProcessPoolExecutor(
        arguments.workers, context, initializer=_make_environment, initargs=environment
    ) as pool:
        for policy in arguments.policies:
            start = time.perf_counter()
            rows = list(
                pool.map(
                    _episode,
                    [policy] * len(seeds),
                    seeds,
                    [arguments.push] * len(seeds),
                    chunksize=2,
                )
            )
            summary = _summary(policy, rows) | {"wall_seconds": time.perf_counter() - start}
            print(json.dumps(summary) if arguments.json else _as_text(summary), flush=True)


def _make_environment(task: str, split: str) -> None:
    from fleet_tools.registration import make_environment

    global _env
    _env = make_environment(task=task, split=split)


def _scene(seed: int, push: bool):
    from fleet_tools.scene import Push

    _env.reset(seed=seed)
    if not push:
        return _env.scene
    rng = np.random.default_rng([seed, 1])
    angle, distance = rng.uniform(-np.pi, np.pi), rng.uniform(0.01, 0.02)
    step = int(rng.integers(2, 7))  # the tool is on its way
    p_W = (distance * np.cos(angle), distance * np.sin(angle), 0.0)
    return _env.scene.model_copy(update={"push": Push(step=step, translation_m=p_W)})


def _episode(name: str, seed: int, push: bool) -> dict:
    from fleet_tools.baselines.trivial import RandomPolicy, ZeroPolicy
    from fleet_tools.episode import rollout
    from fleet_tools.experts.policy import ExpertPolicy

    make = {
        "expert": lambda: ExpertPolicy(_env),
        "expert_open_loop": lambda: ExpertPolicy(_env, feedback=False),
        "expert_pose_space": lambda: ExpertPolicy(_env, "pose_space"),
        "zero": lambda: ZeroPolicy(_env),
        "random": lambda: RandomPolicy(_env, seed),
    }[name]
    policy = make()
    episode = rollout(_env, policy, scene=_scene(seed, push))
    return {
        "seed": seed,
        "models": f"{episode.scene.tool} on {episode.scene.object}",
        "outcome": episode.outcome,
        "error": episode.error,
        "steps": len(episode),
        "planning_seconds": episode.info.get("planning_seconds"),
        "plans": episode.info.get("plans"),
        "retreats": episode.info.get("retreats"),
    }


def _summary(policy: str, rows: list[dict]) -> dict:
    from fleet_tools.statistics import wilson_interval

    successes = sum(row["outcome"] == "success" for row in rows)
    planning = [row["planning_seconds"] for row in rows if row["planning_seconds"] is not None]
    return {
        "policy": policy,
        "episodes": len(rows),
        "successes": successes,
        "interval_95": wilson_interval(successes, len(rows)),
        "outcomes": dict(Counter(row["outcome"] for row in rows)),
        "failures": [row for row in rows if row["outcome"] != "success"] if planning else [],
        "median_steps": float(np.median([row["steps"] for row in rows])),
        "retreats": sum(row["retreats"] or 0 for row in rows),
        "planning_seconds_median_p95_max": (
            [float(f(planning)) for f in (np.median, lambda p: np.percentile(p, 95), max)]
            if planning
            else None
        ),
    }


def _as_text(summary: dict) -> str:
    low, high = summary["interval_95"]
    lines = [
        f"{summary['policy']:>18}: {summary['successes']} of {summary['episodes']} succeed "
        f"(95% interval {low:.1%} to {high:.1%}), outcomes {summary['outcomes']}, "
        f"median {summary['median_steps']:g} steps, {summary['wall_seconds']:.0f} s"
    ]
    if summary["planning_seconds_median_p95_max"]:
        median, p95, longest = (1e3 * s for s in summary["planning_seconds_median_p95_max"])
        lines.append(
            f"{'':>20}planning: median {median:.1f} ms, 95% {p95:.1f} ms, max {longest:.1f} ms"
        )
    for row in summary["failures"]:
        lines.append(
            f"{'':>20}seed {row['seed']} ({row['models']}): {row['outcome']} {row['error'] or ''}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
