"""Whether runs fail in the same scenes: `python benchmarks/shared_failures.py RESULTS ...`.

    python benchmarks/shared_failures.py results/my_method results/another

If the failures of policies that were trained apart coincide, scenes are hard; if they coincide as
often as chance has it, failures are the training runs' own, and a search for scenes that are hard
for some policies finds none that are hard for others.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from console import report_rows
from tyro.conf import Positional, arg

from fleet_tools.config.values import Count, Seed
from fleet_tools.errors import ConfigError
from fleet_tools.utils import cli

_COLUMNS = ["policy", "task", "runs", "scenes", "failures", "fail in both", "by chance", "p"]

Scene = tuple[str, str, int]
"""Task, split and number of a scene."""


class SharedFailuresOptions(cli.Options):
    """Counts the scenes in which two training runs of a method both fail, over all pairs of runs.

    Beside it is how many there would be on average if each run failed in as many scenes of each
    split as it does, but in any of them; and how often so many or more arise then (p).

    Exit codes:
    0: they were counted.
    2: there are no two training runs of a method with the same scenes.
    """

    results: Annotated[tuple[Path, ...], Positional, arg(metavar="RESULTS")]
    """Folders of methods, each with results of several training runs."""
    level: str = "nominal"
    """Level whose results are read."""
    draws: Count = 10_000
    """Number of draws of failures in any scenes."""
    seed: Seed = 0
    """Seed of the draws."""


def _count(options: SharedFailuresOptions) -> int:
    report_rows(options, _COLUMNS, _rows(options))
    return cli.OK


def _rows(options: SharedFailuresOptions) -> Iterator[dict[str, Any]]:
    for folder in options.results:
        runs = failures(folder, options.level)
        tasks = sorted({task for run in runs.values() for task, *_ in run})
        of_tasks = {
            task: [each for run in runs.values() if (each := _of_task(run, task))] for task in tasks
        }
        if not any(len(each) > 1 for each in of_tasks.values()):
            raise ConfigError(
                f"{folder} has no two training runs at the level {options.level!r} of the same "
                "task. Give a folder of a method that was trained several times."
            )
        for task, of_task in of_tasks.items():
            if len(of_task) < 2:
                continue
            scenes = sorted(of_task[0])
            if any(sorted(run) != scenes for run in of_task):
                raise ConfigError(f"Runs of {folder} have different scenes of {task!r}.")
            failed = np.array([[run[scene] for scene in scenes] for run in of_task])
            splits = [split for _, split, _ in scenes]
            both, chance, p = shared(failed, splits, options.draws, options.seed)
            counts = ", ".join(map(str, failed.sum(1)))
            cells = (folder.name, task, len(failed), len(scenes), counts, both)
            yield dict(zip(_COLUMNS, (*cells, f"{chance:.1f}", f"{p:.2g}"), strict=True))


def _of_task(run: Mapping[Scene, bool], task: str) -> dict[Scene, bool]:
    return {scene: failed for scene, failed in run.items() if scene[0] == task}


def failures(folder: Path, level: str) -> dict[int | None, dict[Scene, bool]]:
    """Returns in which scenes of a level each training run of a method failed.

    Args:
        folder: Folder of the method, with results below it.
        level: Name of the level.

    Raises:
        ResultError: A result is damaged.
    """
    from fleet_tools.evaluation.result_folder import RESULT, load_evaluation

    runs: dict[int | None, dict[Scene, bool]] = {}
    for file in sorted(folder.rglob(RESULT)):
        evaluation = load_evaluation(file.parent)
        if evaluation.result.protocol.level_name == level:
            run = runs.setdefault(evaluation.result.policy.training_seed, {})
            run |= {(e.task, e.split, e.index): not e.success for e in evaluation.episodes}
    return runs


def shared(
    failed: np.ndarray, splits: Sequence[str], draws: int, seed: int
) -> tuple[int, float, float]:
    """Tests whether runs fail in the same scenes, against failures in any scenes of a split.

    Args:
        failed: (R, N) whether each of R runs failed in each of N scenes.
        splits: The split of each scene.
        draws: Number of permutations of the scenes, within splits and for each run by itself.
        seed: Seed of the draws.

    Returns:
        The number of scenes in which both runs of a pair fail, summed over pairs; what it is on
        average over permutations (exactly); and the one-sided p-value of the permutation test,
        which counts the data as a draw (Phipson and Smyth 2010).
    """
    names = np.array(splits)
    chance, drawn = 0.0, np.zeros(draws, int)
    generator = np.random.default_rng(seed)
    for split in dict.fromkeys(splits):
        of_split = failed[:, names == split]
        counts = of_split.sum(1)
        chance += sum(a * b for a, b in combinations(counts.tolist(), 2)) / of_split.shape[1]
        shuffled = [
            generator.permuted(np.broadcast_to(run, (draws, run.size)), axis=1) for run in of_split
        ]
        drawn += _pairs(np.array(shuffled))
    both = int(_pairs(failed[:, None])[0])
    return both, chance, (1 + int((drawn >= both).sum())) / (1 + draws)


def _pairs(failed: np.ndarray) -> np.ndarray:
    """Returns how many pairs of runs fail in the same scene, (draws,), of (runs, draws, scenes)."""
    number = failed.sum(0)
    return (number * (number - 1) // 2).sum(-1)


PROGRAM = cli.Program(
    "shared_failures.py",
    cli.Command(SharedFailuresOptions, _count),
    launcher="python benchmarks/",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
