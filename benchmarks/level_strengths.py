"""The effect of candidate strengths of levels: `python benchmarks/level_strengths.py`.

    python benchmarks/level_strengths.py --policies expert a.safetensors --output runs/strengths
    python benchmarks/level_strengths.py --levels physics poses --tool hammer --scenes 5

A strength is a level of a protocol's file. Scenes have seeds outside of the package's protocols, so
that nothing is tuned on the scenes that score policies.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from scaffold import TaskSelection, main_of, print_now, table_head, table_row

from fleet_tools.config.file_access import task_configs_root
from fleet_tools.config.tasks import load_task
from fleet_tools.config.values import Count, load_yaml
from fleet_tools.envs.observation_modes import shows_cameras
from fleet_tools.errors import require_name
from fleet_tools.evaluation.config import PROTOCOL, EvaluationConfig
from fleet_tools.evaluation.level_cost import LevelCost, PairedDifference, level_cost
from fleet_tools.evaluation.levels import LevelsFile
from fleet_tools.evaluation.protocol import NOMINAL
from fleet_tools.evaluation.result import Evaluation
from fleet_tools.evaluation.run import evaluate_policy
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.policies.sources import find_policy
from fleet_tools.sim.splits import EVALUATION
from fleet_tools.utils import cli

FIRST_SEED = EVALUATION[len(EVALUATION) // 2]
"""Seed of the first scene of the first split."""
_SPACING = 1000
_COLUMNS = ["level", "policy", "task", "nominal", "level's", "cost", "pairs"]


class LevelStrengthsOptions(cli.Options):
    """Evaluates policies at candidate strengths of levels, and prints the loss of success at each.

    A policy is evaluated in the nominal scenes and in the same scenes of each level. The output has
    an evaluation for each, and the same command resumes it. Policies without cameras have no rows
    at levels of cameras.

    Exit codes:
    0: all are evaluated.
    2: it cannot begin.
    """

    output: Path
    """Folder of the evaluations."""
    candidates: Path = task_configs_root() / "protocols" / f"{PROTOCOL}.yaml"
    """A protocol's file with a level for each strength; its seeds are not read."""
    levels: tuple[str, ...] = ()
    """Levels by name; without any, all."""
    policies: tuple[str, ...] = ("expert",)
    """Policies, as `evaluate` takes them."""
    tasks: TaskSelection = TaskSelection()
    scenes: Count = 5
    """Number of scenes of each task and split."""
    workers: WorkerOptions = WorkerOptions()


def validation_protocol(candidates: LevelsFile) -> dict[str, Any]:
    """Returns the content of a protocol's file with its levels, and with validation scenes."""
    scenes = _SPACING
    content = candidates.model_dump(mode="json")
    seeds = range(FIRST_SEED, EVALUATION.stop, _SPACING)
    content["splits"] = {
        split: {"scenes": scenes, "first_seed": seed}
        for split, seed in zip(candidates.splits, seeds, strict=False)
    }
    for level in content["levels"].values():
        level["scenes"] = scenes
    return content | {"name": "validation"}


def _measure(options: LevelStrengthsOptions) -> int:
    candidates = load_yaml(LevelsFile, options.candidates)
    for name in options.levels:
        require_name(f"level of {options.candidates}", name, candidates.levels)
    options.output.mkdir(parents=True, exist_ok=True)
    protocol = options.output / "protocol.yaml"
    protocol.write_text(yaml.safe_dump(validation_protocol(candidates), sort_keys=False))
    tasks = [load_task(task).name for task in options.tasks.names_or_paths()]
    print_now(options, table_head(_COLUMNS))
    rows: list[dict[str, Any]] = []
    for policy in options.policies:
        for row in _rows(options, protocol, policy, options.levels or [*candidates.levels], tasks):
            rows.append(row)
            print_now(options, table_row(row.values()))
    if options.json_output:
        options.report({"rows": rows}, str)
    return cli.OK


def _rows(
    options: LevelStrengthsOptions,
    protocol: Path,
    policy: str,
    levels: Sequence[str],
    tasks: Sequence[str],
) -> Iterator[dict[str, Any]]:
    def evaluated(level: str) -> Evaluation:
        folder = options.output / Path(policy).stem / level
        config = EvaluationConfig(
            policy=policy, protocol=str(protocol), level=level, scenes=options.scenes
        )
        of_tasks = (config.model_copy(update={"task": task}) for task in tasks)
        return [evaluate_policy(each, folder, options.workers) for each in of_tasks][-1]

    source = find_policy(policy)
    sees = shows_cameras(str(source.env_kwargs.get("obs_mode", "state")))
    nominal = evaluated(NOMINAL)
    sensed = load_yaml(LevelsFile, protocol).levels
    for level in levels:
        if sensed[level].sensors is None or sees:
            yield from _cells(nominal, evaluated(level))


def _cells(nominal: Evaluation, level: Evaluation) -> Iterator[dict[str, Any]]:
    cost: LevelCost = level_cost(nominal, level)

    def row(task: str, difference: PairedDifference, count: tuple[str, str]) -> dict[str, Any]:
        cells = [cost.level, cost.policy, task, *count, str(difference), str(difference.pairs)]
        return dict(zip(_COLUMNS, cells, strict=True))

    def counts(task: str | None) -> tuple[str, str]:
        keys = {episode.key for episode in level.episodes if task in (None, episode.task)}
        solved = [
            sum(episode.success for episode in side.episodes if episode.key in keys)
            for side in (nominal, level)
        ]
        return f"{solved[0]}/{len(keys)}", f"{solved[1]}/{len(keys)}"

    for task, difference in cost.tasks.items():
        yield row(task, difference, counts(task))
    yield row("all", cost.total, counts(None))


main = main_of(__file__, LevelStrengthsOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
