"""How often policies succeed: every attempt counted, all randomization on, fixed seeds.

    python benchmarks/success.py --tool all --split each --episodes 125 --policies expert
    python benchmarks/success.py --tool wrench --episodes 200 --policies zero random
    python benchmarks/success.py --tool all --episodes 100 --push --policies expert expert_open_loop

Prints one row per task, split and policy: the success rate with a 95% Wilson interval, the seconds
of planning, the lengths of episodes, and why the others failed (which of the task file's success
predicates did not hold at the end). `--push` moves the object by 1 to 2 cm, as the tool is on its
way.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import numpy as np

OWN = {
    "expert_open_loop": {"feedback": False},
    "expert_pose_space": {"actuation": "pose_space"},
}
"""Experts that are only compared here, with what is special to them."""
POLICIES = ("expert", *OWN, "zero", "random")
SPLITS = ("train", "unseen_pairs", "unseen_tools", "unseen_objects")
HEADER = "| task | split | policy | success | 95% interval | planning, ms | steps | failures |"
_environments = {}


def main() -> None:
    """Runs the program."""
    from fleet_tools.config.tasks import task_names

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tool", default="all", help="a task of the package, or all (the default)")
    which.add_argument("--task", help="the path of a task file of your own")
    parser.add_argument("--split", default="all", help="a split, or each")
    parser.add_argument("--episodes", type=int, default=200, help="per row (default: 200)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES)
    parser.add_argument("--push", action="store_true", help="disturb each episode")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true", help="a line per row, with every failure")
    arguments = parser.parse_args()

    given = arguments.task or arguments.tool
    tasks = task_names() if given == "all" else [given]
    splits = SPLITS if arguments.split == "each" else [arguments.split]
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.episodes)
    if not arguments.json:
        print(HEADER, "|" + "---|" * 8, sep="\n", flush=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.workers, context) as pool:
        for task in tasks:
            for split in splits:
                for policy in arguments.policies:
                    start = time.perf_counter()
                    jobs = [(task, split, policy, seed, arguments.push) for seed in seeds]
                    episodes = list(pool.map(_episode, jobs, chunksize=2))
                    summary = {
                        "task": task,
                        "split": split,
                        "policy": policy,
                        "push": arguments.push,
                        **_summary(episodes),
                        "wall_seconds": time.perf_counter() - start,
                    }
                    print(json.dumps(summary) if arguments.json else _row(summary), flush=True)


def _episode(job: tuple) -> dict:
    from fleet_tools.experts.policy import ExpertPolicy
    from fleet_tools.policies.sources import find
    from fleet_tools.rollouts.episode import rollout

    task, split, name, seed, push = job
    env = _environment(task, split)
    scene = _scene(env, seed, push)
    policy = ExpertPolicy(env, **OWN[name]) if name in OWN else find(name).make(env, seed)
    episode = rollout(env, policy, scene=scene)
    unmet = [name for name, verdict in env.unwrapped.verdicts().items() if not verdict.holds]
    return {
        "seed": seed,
        "models": f"{scene.tool} on {scene.object}",
        "outcome": episode.outcome,
        "why": episode.error or ", ".join(unmet),
        "steps": len(episode),
        "info": dict(episode.info),
    }


def _environment(task: str, split: str):
    """The last environment of this process, or a new one: a process keeps one at a time."""
    from fleet_tools.registration import make_environment

    if (task, split) not in _environments:
        for env in _environments.values():
            env.close()
        _environments.clear()
        _environments[task, split] = make_environment(task=task, split=split)
    return _environments[task, split]


def _scene(env, seed: int, push: bool):
    from fleet_tools.sim.scene import Push, sample_scene

    scene = sample_scene(env.unwrapped.task, seed, split=env.unwrapped.split)
    if not push:
        return scene
    rng = np.random.default_rng([seed, 1])
    angle, distance = rng.uniform(-np.pi, np.pi), rng.uniform(0.01, 0.02)
    p_W = (distance * np.cos(angle), distance * np.sin(angle), 0.0)
    step = int(rng.integers(2, 7))
    return scene.model_copy(update={"push": Push(step=step, translation_m=p_W)})


def _summary(episodes: list[dict]) -> dict:
    from fleet_tools.utils.statistics import wilson_interval

    successes = sum(episode["outcome"] == "success" for episode in episodes)
    infos = [episode["info"] for episode in episodes if episode["info"]]
    planning = [1e3 * info["planning_seconds"] / max(info["plans"], 1) for info in infos]
    return {
        "episodes": len(episodes),
        "successes": successes,
        "interval_95": wilson_interval(successes, len(episodes)),
        "outcomes": dict(Counter(episode["outcome"] for episode in episodes)),
        "planning_ms_median_p95": [float(np.percentile(planning, p)) for p in (50, 95)]
        if planning
        else None,
        "replanned": sum(info["plans"] > 1 for info in infos),
        "retreated": sum(info["retreats"] > 0 for info in infos),
        "steps_median": float(np.median([episode["steps"] for episode in episodes])),
        "failures": [episode for episode in episodes if episode["outcome"] != "success"],
    }


def _row(summary: dict) -> str:
    low, high = summary["interval_95"]
    planning = summary["planning_ms_median_p95"]
    failures = summary["failures"]
    if planning and len(failures) <= 5:
        causes = [f"{e['outcome']}, seed {e['seed']} ({e['models']}): {e['why']}" for e in failures]
    elif planning:
        counted = Counter(cause for e in failures for cause in e["why"].split(", "))
        causes = [f"{count} times {cause}" for cause, count in counted.most_common(4)]
    else:
        counted = Counter(episode["outcome"] for episode in failures)
        causes = [f"{count} {outcome}" for outcome, count in counted.items()]
    if summary["replanned"]:
        causes.append(f"{summary['replanned']} planned again, {summary['retreated']} retreated")
    cells = [
        summary["task"],
        summary["split"],
        summary["policy"] + (", pushed" if summary["push"] else ""),
        f"{summary['successes']} of {summary['episodes']}",
        f"{low:.1%} to {high:.1%}",
        "median {:.0f}, 95% {:.0f}".format(*planning) if planning else "",
        f"{summary['steps_median']:g}",
        "; ".join(causes),
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
