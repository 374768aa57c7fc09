"""Trains the fleets of a sweep."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fleet_tools.baselines.experiments.job_runner import FailedJob
from fleet_tools.baselines.experiments.sweeps.sweep import SweepRun
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import REPORT, FleetWriter
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.federated.transport import CachingTransport, LocalTransport
from fleet_tools.baselines.merging.errors import UnsoundMergeError
from fleet_tools.baselines.training.rollouts import make_success_measure
from fleet_tools.baselines.training.state import DivergedError, TrainingError
from fleet_tools.storage.strict_json import loads

FIRST_REPLIES = "first_replies"
"""Folder of robots' replies to the first round, which fleets share that differ in their merges."""


def make_fleet_runner(output: Path) -> Callable[[SweepRun], dict[str, Any] | FailedJob]:
    """Returns a function that trains the fleet of a run in this process.

    Args:
        output: Folder of the fleets' folders.

    Returns:
        A function that takes a run, and returns the report of its fleet. A fleet that is trained
        already is not trained again.
    """
    torch.set_num_threads(1)  # as robots do, so that bits do not depend on the machine

    def run(job: SweepRun) -> dict[str, Any] | FailedJob:
        plan = FleetPlan.of(job.config)
        with FleetWriter(output / job.folder, plan) as writer:  # refuses other data than before
            with contextlib.suppress(FileNotFoundError, ValueError):  # ValueError: damaged
                return loads((writer.folder / REPORT).read_text())
            measure_success = make_success_measure(
                job.config.data, job.config.rollouts, plan.blueprint
            )
            transport = CachingTransport(
                LocalTransport(plan.assignments), plan.assignments, output / FIRST_REPLIES
            )
            try:
                return complete(writer, transport, measure_success=measure_success)
            except (TrainingError, DivergedError, UnsoundMergeError) as error:
                return FailedJob(str(error))

    return run
