"""Measures the perceived experts: `python benchmarks/perception.py --tool wrench --episodes 10`.

Prints a row for each task and split: errors of keypoints in the first observation, and the
processor
time for them. `success.py` measures their successes.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from scaffold import TaskSelection, main_of, report_rows

from fleet_tools.config.values import Count, Seed
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.perception.finding import Candidates
from fleet_tools.experts.perception.perceived import PerceivedState
from fleet_tools.policies.sources import find_policy
from fleet_tools.utils import cli

SPLITS = ("train", "unseen_pairs", "unseen_tools", "unseen_objects")
MM = 1e3

_COLUMNS = ("task", "split", "tool keypoints, mm", "object keypoints, mm", "registration, CPU ms")


class PerceptionOptions(cli.Options):
    """Measures the keypoints of a perceived expert, with all randomization on and fixed seeds.

    Prints a row for each task and split, from the first observations of scenes. It has the median,
    95th percentile and maximum of each scene's largest keypoint error, and the median processor
    time.
    """

    tasks: TaskSelection = TaskSelection()
    policy: Literal["perceived_expert", "perceived_expert_category"] = "perceived_expert"
    """The expert: of known instances, or of a category."""
    episodes: Count = 10
    """Number of scenes of each row."""
    first_seed: Seed = 0
    """Seed of the first scene; the others follow."""


def _measure_all(options: PerceptionOptions) -> int:
    report_rows(options, _COLUMNS, _rows(options), _cells)
    return cli.OK


def _rows(options: PerceptionOptions) -> Iterator[dict[str, Any]]:
    source = find_policy(options.policy)
    for task in options.tasks.names_or_paths():
        for split in SPLITS:
            env = EnvSpec.of(task=task, split=split, **source.env_kwargs).make_tool_use()
            seeds = range(options.first_seed, options.first_seed + options.episodes)
            scenes = [_measure(env, seed, options) for seed in seeds]
            env.close()
            yield {"task": task, "split": split, "scenes": scenes}


def _measure(env: ToolUseEnv, seed: int, options: PerceptionOptions) -> dict[str, Any]:
    """Returns the facts of a scene."""

    def error_mm(found: Mapping[str, np.ndarray], true: Mapping[str, np.ndarray]) -> float:
        return MM * max(float(np.linalg.norm(found[name] - p)) for name, p in true.items())

    observation, _ = env.reset(seed=seed)
    truth, scene = env.world_state(), env.scene
    candidates = Candidates((scene.tool,), (scene.object,), known=True)
    if options.policy == "perceived_expert_category":
        candidates = Candidates.of_training(env.task)
    source = PerceivedState(env.task, lambda: candidates)
    source.begin()
    source.look(observation)  # reads the models
    source.begin()
    started = time.process_time()
    found = source.look(observation)
    seconds = time.process_time() - started
    return {
        "seed": seed,
        "models": f"{scene.tool} on {scene.object}",
        "tool_mm": error_mm(found.p_W_tool, truth.p_W_tool),
        "object_mm": error_mm(found.p_W_object, truth.p_W_object),
        "ms": MM * seconds,
    }


def _cells(row: Mapping[str, Any]) -> list[str]:
    scenes: list[dict[str, Any]] = row["scenes"]

    def errors(part: str) -> str:
        of_scenes = [scene[f"{part}_mm"] for scene in scenes]
        median, p95, largest = np.percentile(of_scenes, [50, 95, 100])
        return f"median {median:.3f}, 95% {p95:.3f}, largest {largest:.3f}"

    ms = np.median([scene["ms"] for scene in scenes])
    return [row["task"], row["split"], errors("tool"), errors("object"), f"{ms:.0f}"]


main = main_of(__file__, PerceptionOptions, _measure_all)

if __name__ == "__main__":
    sys.exit(main())
