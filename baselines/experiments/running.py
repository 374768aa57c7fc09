"""Runs the missing cells of an experiment, and writes its result, its page and its figures."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fleet_tools.baselines.experiments.arena import FailedRunError, make_arena
from fleet_tools.baselines.experiments.form import Experiment, planned_runs
from fleet_tools.baselines.experiments.page import write_page
from fleet_tools.baselines.experiments.result import as_json, changes, make_result, read_result
from fleet_tools.baselines.experiments.success import with_comparisons
from fleet_tools.errors import ConfigError
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.utils.progress import progress_bar

Job = tuple[int, ...]
"""Numbers of runs with common trained models."""

Outcome = dict[str, Any] | str
"""Measurements of a run, or the reason of its failure."""


def run_experiment(
    experiment: Experiment, stem: str, output: Path, workers: WorkerOptions, quiet: bool
) -> dict[str, Any]:
    """Runs the remaining runs of an experiment, and returns its result.

    Args:
        experiment: The experiment.
        stem: Its name, which its files in `output` have, too.
        output: Folder of trained models and measurements, which experiments may share.
        workers: Worker processes.
        quiet: Whether to show no progress bar.

    Raises:
        ConfigError: It is not possible, or the folder has another experiment's result of this name.
        FleetToolsError, OSError, KeyboardInterrupt: It is interrupted; finished runs are stored.
    """
    arena, runs = make_arena(experiment), planned_runs(experiment)
    groups: dict[str, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(arena.learns(arena.plan(run)), []).append(number)
    path = output / f"{stem}.json"
    if path.exists():
        _require_grown(read_result(path)[0], experiment, path)
    else:
        output.mkdir(parents=True, exist_ok=True)
        write_file(path, as_json(make_result(experiment, [])))
    jobs = [tuple(group) for group in groups.values()]
    make_work = partial(make_measure, experiment, output.absolute())  # workers may be elsewhere
    outcomes: dict[int, Outcome] = {}
    results = workers.run(jobs, make_work)
    with contextlib.closing(results), progress_bar(len(jobs), "policy", quiet=quiet) as bar:
        for job, found in results:
            lost = [found.reason] * len(job) if isinstance(found, LostJob) else found
            outcomes |= dict(zip(job, lost, strict=True))
            bar.update()
    cells, failed = [], []
    for number, run in enumerate(runs):
        outcome = outcomes[number]
        name = {"arm": run.arm, "value": run.value, "seed": run.seed}
        if isinstance(outcome, str):
            failed.append({**name, "why": outcome})
        else:
            cells.append({**name, **outcome})
    result = make_result(experiment, cells, failed)
    write_file(path, as_json(result))
    write_page(experiment, result, output, stem)
    return result


def make_measure(experiment: Experiment, output: Path) -> Callable[[Job], Sequence[Outcome]]:
    """Returns a function that measures some runs in this process.

    Args:
        experiment: The experiment.
        output: Folder of trained models and measurements.
    """
    arena, runs = make_arena(experiment), planned_runs(experiment)

    def measure(number: int) -> Outcome:
        try:
            return arena.measure(arena.plan(runs[number]), output)
        except FailedRunError as error:
            return str(error)

    return lambda job: [measure(number) for number in job]


def _require_grown(before: Experiment, now: Experiment, path: Path) -> None:
    if found := changes(before, now):
        raise ConfigError(
            f"{path} holds the result of another experiment: {'; '.join(found)}. Give another "
            "--output, or the same experiment to resume it. Arms, values and seeds can be added."
        )


def render(experiment: Experiment, path: Path, output: Path) -> dict[str, Any]:
    """Writes the page and the figures of a stored result, without runs.

    Args:
        experiment: The experiment.
        path: Its file; the result is next to it.
        output: Folder of the page and the figures.

    Returns:
        The result, with the comparisons of the present experiment.

    Raises:
        ConfigError: There is no result, or it is another experiment's.
    """
    stored, result = read_result(path.with_suffix(".json"))
    if (found := changes(stored, experiment)) or stored.compared != experiment.compared:
        raise ConfigError(
            f"{path.with_suffix('.json')} holds the result of another experiment than {path}: "
            f"{'; '.join(found) or 'its arms are others'}."
        )
    output.mkdir(parents=True, exist_ok=True)
    write_page(experiment, result, output, path.stem)
    return result | {"rows": with_comparisons(experiment, result["rows"], result["cells"])}
