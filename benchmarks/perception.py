"""Measures the perceived experts: `python benchmarks/perception.py --tool wrench --episodes 10`.

Prints a row for each task and split: errors of the keypoints that it finds in the first
observation, the processor time that this takes, and its successes.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from scaffold import TaskSelection, main_of, print_now, table_head, table_row

from fleet_tools.config.values import Count, NonNegative, Seed
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.envs.tool_use_env import ToolUseEnv

SPLITS = ("train", "unseen_pairs", "unseen_tools", "unseen_objects")
MM = 1e3

_COLUMNS = ("task", "split", "tool keypoints, mm", "object keypoints, mm", "registration, CPU ms")
_COLUMNS_OF_EPISODES = ("success", "failures")


class PerceptionOptions(cli.Options):
    """Measures a perceived expert, with all randomization on and fixed seeds.

    Prints a row for each task and split: the largest error of a keypoint in each scene's first
    observation (its median over scenes, 95th percentile and maximum), the median processor time
    of finding tool and object there, and the number of episodes that it solves.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    tasks: TaskSelection = TaskSelection()
    policy: Literal["perceived_expert", "perceived_expert_category"] = "perceived_expert"
    """The expert: of known instances, or of a category."""
    episodes: Count = 10
    """Number of scenes of each row."""
    first_seed: Seed = 0
    """Seed of the first scene; the others follow."""
    only_find: bool = False
    """Measure keypoints alone, without running episodes."""
    points: Count = 2048
    """Largest number of points of the tool, and of the object."""
    noise_mm: NonNegative = 0.0
    """Standard deviation of noise that is added to the points in which keypoints are found, mm."""


def _measure_all(options: PerceptionOptions) -> int:
    from fleet_tools.envs.spec import EnvSpec
    from fleet_tools.policies.sources import find_policy

    columns = _COLUMNS if options.only_find else _COLUMNS + _COLUMNS_OF_EPISODES
    print_now(options, table_head(columns))
    rows = []
    for task in options.tasks.names_or_paths():
        for split in SPLITS:
            source = find_policy(options.policy)
            sizes = [options.points, options.points]
            env = EnvSpec.of(
                task=task, split=split, **source.env_kwargs | {"cloud_size": sizes}
            ).make_tool_use()
            seeds = range(options.first_seed, options.first_seed + options.episodes)
            scenes = [_measure(env, seed, options) for seed in seeds]
            env.close()
            rows.append({"task": task, "split": split, "scenes": scenes})
            print_now(options, _as_text(rows[-1]))
    if options.json_output:
        options.report({"rows": rows}, str)
    return cli.OK


def _measure(env: "ToolUseEnv", seed: int, options: PerceptionOptions) -> dict[str, Any]:
    """Returns the facts of a scene."""
    import time

    import numpy as np

    from fleet_tools.experts.perception.finding import Candidates
    from fleet_tools.experts.perception.perceived import PerceivedState
    from fleet_tools.policies.sources import find_policy
    from fleet_tools.rollouts.rollout import rollout

    def error_mm(found: Mapping[str, np.ndarray], true: Mapping[str, np.ndarray]) -> float:
        return MM * max(float(np.linalg.norm(found[name] - p)) for name, p in true.items())

    observation, _ = env.reset(seed=seed)
    truth, scene = env.world_state(), env.scene
    candidates = Candidates((scene.tool,), (scene.object,), known=True)
    if options.policy == "perceived_expert_category":
        candidates = Candidates.of_training(env.task)
    source = PerceivedState(env.task, lambda: candidates)
    cloud = observation["point_cloud"].copy()
    cloud[:, :3] += np.random.default_rng(seed).normal(0, options.noise_mm / MM, cloud[:, :3].shape)
    observation = {**observation, "point_cloud": cloud}
    source.begin()
    source.look(observation)  # reads the models
    source.begin()
    started = time.process_time()
    found = source.look(observation)
    seconds = time.process_time() - started
    facts: dict[str, Any] = {
        "seed": seed,
        "models": f"{scene.tool} on {scene.object}",
        "tool_mm": error_mm(found.p_W_tool, truth.p_W_tool),
        "object_mm": error_mm(found.p_W_object, truth.p_W_object),
        "ms": MM * seconds,
    }
    if not options.only_find:
        episode = rollout(env, find_policy(options.policy).make(env), scene=scene)
        facts |= {
            "outcome": episode.outcome,
            "error": episode.error,
            "steps": len(episode),
            "info": dict(episode.info),
        }
    return facts


def _as_text(row: Mapping[str, Any]) -> str:
    import numpy as np

    scenes: list[dict[str, Any]] = row["scenes"]

    def errors(part: str) -> str:
        of_scenes = [scene[f"{part}_mm"] for scene in scenes]
        median, p95, largest = np.percentile(of_scenes, [50, 95, 100])
        return f"median {median:.3f}, 95% {p95:.3f}, largest {largest:.3f}"

    acted = [scene for scene in scenes if "outcome" in scene]
    failed = [scene for scene in acted if scene["outcome"] != "success"]
    cells = [
        row["task"],
        row["split"],
        errors("tool"),
        errors("object"),
        f"{np.median([scene['ms'] for scene in scenes]):.0f}",
    ]
    if acted:
        cells.append(f"{len(acted) - len(failed)} of {len(acted)}")
        cells.append(
            "; ".join(
                f"{each['outcome']}, seed {each['seed']} ({each['models']})" for each in failed
            )
        )
    return table_row(cells)


main = main_of(__file__, PerceptionOptions, _measure_all)

if __name__ == "__main__":
    sys.exit(main())
