"""Rounds of DAgger: demonstrations by a policy and the expert, who take turns."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fleet_tools.dataset.attempts import make_attempts
from fleet_tools.dataset.collection import fill_with_bar
from fleet_tools.dataset.dataset_folder import Dataset, DatasetWriter
from fleet_tools.dataset.header import Header
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.policies.sources import find_policy
from fleet_tools.storage.provenance import installed_packages

_SEEDS = 2**32
"""Seeds of a round's datasets are a multiple of it away from those that people give."""


def collect_round(
    datasets: Sequence[Path],
    checkpoint: Path,
    number: int,
    episodes: int,
    folder: Path,
    workers: WorkerOptions,
    *,
    quiet: bool,
    stop: Callable[[], bool],
) -> list[Path]:
    """Collects a round's datasets, or goes on with them; see `experts.demonstrators`.

    Args:
        datasets: Folders of the first demonstrations, whose tasks and environments are used.
        checkpoint: The policy that takes turns with the expert.
        number: Number of the round, from 1.
        episodes: Number of successful episodes of each task.
        folder: Folder of the round, with a dataset for each task.
        workers: Where episodes are collected.
        quiet: Whether to show no progress.
        stop: Whether to begin no more episodes.

    Returns:
        Folders of the datasets.

    Raises:
        FleetToolsError: An environment cannot be made here, or the policy cannot act in it.
        OSError: The disk is full or gone.
    """
    policy = find_policy(f"dagger:{checkpoint}")
    headers: dict[str, Header] = {}
    for dataset in datasets:
        header = Dataset(dataset).header
        headers.setdefault(header.task.name, header)
    for name, header in headers.items():
        of_round = header.model_copy(
            update={
                "policy": str(policy),
                "seed": header.seed + number * _SEEDS,
                "keep_failures": False,
                "packages": installed_packages(header.env_spec.arena.packages),
            }
        )
        with DatasetWriter(folder / name, of_round) as writer:
            make_work = partial(make_attempts, writer.header, policy, False)
            fill_with_bar(
                writer,
                partial(workers.run, make_work=make_work),
                episodes,
                unit=f"{name} episode",
                quiet=quiet,
                stop=stop,
            )
        if stop():
            break
    return [folder / name for name in headers]
