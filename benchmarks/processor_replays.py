"""Stored actions of results run again in this process: what `processors.py` runs for each kind."""

import hashlib
import itertools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scaffold import answering

from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.result import EpisodeResult, decode_actions
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.evaluation.trial import present_env, run_trial
from fleet_tools.policies.policy import StoredActions


def draw(results: list[Path], episodes: int) -> list[EpisodeResult]:
    """Draws episodes of each task from each result, by task."""
    drawn: list[EpisodeResult] = []
    for folder in results:
        evaluation = load_evaluation(folder)
        for task in dict.fromkeys(each.task for each in evaluation.episodes):
            of_task = [each for each in evaluation.episodes if each.task == task and each.steps]
            generator = np.random.default_rng([len(drawn), episodes])
            chosen = generator.choice(len(of_task), min(episodes, len(of_task)), replace=False)
            drawn += [of_task[k] for k in chosen]
    return sorted(drawn, key=lambda episode: episode.task)


def kernels() -> dict[str, str]:
    """Returns hashes of what kernels of libraries compute, by library."""
    from pydrake.common.eigen_geometry import Quaternion
    from pydrake.math import RotationMatrix

    generator = np.random.default_rng(0)
    angles = generator.uniform(-4, 4, 20000)
    rotations = [
        RotationMatrix(Quaternion(wxyz=wxyz / math.sqrt(sum(float(w) ** 2 for w in wxyz))))
        for wxyz in generator.normal(size=(1000, 4))
    ]
    products = [(R @ S).matrix() for R, S in itertools.pairwise(rotations)]
    matrix = generator.normal(size=(40, 40))
    computed = {
        "glibc's sin": np.array([math.sin(angle) for angle in angles]),
        "Drake's products of rotations": np.array(products),
        "numpy and BLAS": np.concatenate([np.exp(angles), (matrix @ matrix).ravel()]),
    }
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in computed.items()}


def replay(results: list[Path], episodes: int) -> dict[str, Any]:
    """Returns what kernels compute, and results of drawn episodes from their actions."""
    protocol = load_protocol(PROTOCOL)
    env_of = present_env(protocol)
    again = [
        run_trial(
            env_of(episode.task), StoredActions(decode_actions(episode.actions)), protocol, episode
        )
        for episode in draw(results, episodes)
    ]
    return {"kernels": kernels(), "episodes": [each.to_json() for each in again]}


if __name__ == "__main__":
    count, *folders = sys.argv[1:]
    with answering() as answer:
        answer(replay([Path(folder) for folder in folders], int(count)))
