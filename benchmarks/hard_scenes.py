"""Searches for hard scenes: `python benchmarks/hard_scenes.py --policies A.safetensors`.

    python benchmarks/hard_scenes.py --tool wrench --policies runs/bc_mlp/0/wrench/best.safetensors

Candidates are drawn within the ranges of training, with seeds of their own. One is hard if every
given policy fails in it, and the expert succeeds. Episodes are stored, so that a search continues.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console import print_now, table_head, table_row
from task_selection import TaskSelection

from fleet_tools.config.values import Count
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli

# Results and Drake are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.evaluation.protocol import Trial

FIRST_SEED = 2**52 + 2**51
"""Seed of the first candidate: among those of evaluations, none of a published level."""

SPLITS = ("train", "unseen_pairs", "unseen_tools", "unseen_objects")
_APART = 10**9
"""Distance of the seeds of two splits."""
_COLUMNS = ["task", "candidates", "all policies fail", "and the expert succeeds"]


class HardScenesOptions(cli.Options):
    """Searches for scenes in which given policies fail and the expert succeeds.

    Prints a row for each task, then the splits of a level that has as many of these scenes of each
    task and split as were found everywhere, at most as many as are wanted.

    Exit codes:
    0: there is a hard scene of every task and split, at least.
    1: there is none of some.
    2: it cannot begin.
    130: Ctrl-C.
    """

    policies: tuple[str, ...]
    """Checkpoints, or module:factory, all of which act in the selected tasks."""
    tasks: TaskSelection = TaskSelection()
    candidates: Count = 100
    """Number of candidates of each task and split."""
    wanted: Count = 15
    """Number of hard scenes of each task and split."""
    level: str | None = None
    """Level of the protocol whose disturbances and further objects the candidates have (default:
    none)."""
    output: Path = Path("results/hard_scenes")
    """Folder of the evaluations."""
    workers: WorkerOptions = WorkerOptions()


def _search(options: HardScenesOptions) -> int:
    print_now(options, table_head(_COLUMNS))
    rows, found = [], {}
    for task in options.tasks.names_or_paths():
        row, hard = search_task(options, task)
        rows.append(row)
        found[task] = hard
        print_now(options, table_row([str(row[name]) for name in ("task", *_COLUMNS[1:])]))
    splits = listed_splits(found, options.wanted)
    if options.json_output:
        options.report({"rows": rows, "splits": splits}, str)
    elif splits:
        import yaml

        print_now(options, yaml.safe_dump({"splits": splits}, sort_keys=False, width=100))
    return cli.OK if len(splits) == len(SPLITS) else cli.FAILED


def search_task(
    options: HardScenesOptions, task: str
) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Searches among the candidates of a task.

    Returns:
        Its row of the table; and the seeds of the hard scenes, by split.
    """
    file = write_candidates(options, task)
    failing = None
    for number, policy in enumerate(options.policies):
        solved = _solved(options, policy, file, f"{number}_{task}", failing)
        failing = [trial for trial, success in solved if not success]
    hard = [
        t for t, success in _solved(options, "expert", file, f"expert_{task}", failing) if success
    ]
    row = dict(
        zip(
            _COLUMNS,
            (task, options.candidates * len(SPLITS), len(failing or ()), len(hard)),
            strict=True,
        )
    )
    return row, {split: [t.seed for t in hard if t.split == split] for split in SPLITS}


def write_candidates(options: HardScenesOptions, task: str) -> Path:
    """Writes the protocol of the candidates of a task, and returns its file."""
    import yaml

    from fleet_tools.evaluation.config import PROTOCOL
    from fleet_tools.evaluation.protocol_file import load_protocol

    content: dict[str, Any] = {
        "name": "candidates",
        "version": 1,
        "description": "Scenes among which hard ones are searched for.",
        "tasks": [task],
        "splits": {
            split: {"scenes": options.candidates, "first_seed": FIRST_SEED + k * _APART}
            for k, split in enumerate(SPLITS)
        },
    }
    if options.level is not None:
        level = load_protocol(PROTOCOL, options.level)
        content |= level.model_dump(mode="json", include={"disturbances", "next_objects"})
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"{task}.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file


def _solved(
    options: HardScenesOptions,
    policy: str,
    file: Path,
    folder: str,
    among: "Sequence[Trial] | None",
) -> "list[tuple[Trial, bool]]":
    """Runs a policy in some of the candidates, all if None; returns whether it solved each."""
    from fleet_tools.evaluation.config import EvaluationConfig
    from fleet_tools.evaluation.result_folder import EvaluationWriter
    from fleet_tools.evaluation.run import describe, run_trials

    config = EvaluationConfig(policy=policy, protocol=str(file))
    source, result, trials = describe(config)
    trials = trials if among is None else among
    with EvaluationWriter(options.output / folder, result) as writer:
        run_trials(writer, source, trials, options.workers)
        success = {episode.key: episode.success for episode in writer.finish().episodes}
    return [(trial, success[trial.key]) for trial in trials]


def listed_splits(found: dict[str, dict[str, list[int]]], wanted: int) -> dict[str, Any]:
    """Returns the splits of a level: as many first scenes of each task as all tasks have."""
    splits = {}
    for split in SPLITS:
        count = min([wanted, *(len(of_task[split]) for of_task in found.values())])
        if count:
            listed = {task: of_task[split][:count] for task, of_task in found.items()}
            splits[split] = {"listed": listed}
    return splits


PROGRAM = cli.Program(
    "hard_scenes.py", cli.Command(HardScenesOptions, _search), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
