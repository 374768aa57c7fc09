"""Episodes that the driver of a fleet simulates, as datasets in the fleet's folder."""

import contextlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import COMBINED, MERGED, SCENES
from fleet_tools.baselines.training.rollouts import make_envs
from fleet_tools.dataset.attempts import make_attempts
from fleet_tools.dataset.collection import add_attempt
from fleet_tools.dataset.dataset_folder import Dataset, DatasetWriter
from fleet_tools.parallel import workers
from fleet_tools.policies.sources import PolicySource, find_policy
from fleet_tools.storage.provenance import installed_packages

_TIMEOUT_S = 300.0
"""Time limit of an episode, s."""


def simulate(
    folder: Path, plan: FleetPlan, scenes: int, worker_count: int | None = 0
) -> list[Path]:
    """Simulates episodes of each task, half with the combined policy and half with the merged one.

    Scenes are drawn as those of datasets, so that no policy is evaluated in them. Episodes are
    stored whether they succeed or not, and not simulated again.

    Args:
        folder: Folder of the fleet, with both policies.
        plan: The fleet.
        scenes: Number of episodes of each task.
        worker_count: Number of worker processes, see `workers.run`; 0 simulates in this one.

    Returns:
        Folders of the datasets.

    Raises:
        FleetToolsError: The environments of the datasets cannot be made here.
        OSError: The disk is full or gone; the episodes so far are stored.
    """
    headers = {header.task.name: header for header in (Dataset(f).header for f in plan.config.data)}
    # As untrusted task files, unlike those of whoever collects.
    for env in make_envs(headers.values(), plan.blueprint).values():
        env.close()
    folders = []
    for actor, (name, count) in enumerate(
        ((COMBINED, scenes - scenes // 2), (MERGED, scenes // 2))
    ):
        policy = find_policy(str(folder / name))
        for number, (task, header) in enumerate(headers.items()):
            changes = {
                "policy": str(policy),
                "seed": plan.scenes_seed(actor, number),
                "keep_failures": True,
                "packages": installed_packages(header.env_spec.arena.packages),
            }
            folders.append(folder / SCENES / policy.name.removesuffix(".safetensors") / task)
            with DatasetWriter(folders[-1], header.model_copy(update=changes)) as writer:
                _attempt(writer, policy, range(count), worker_count)
    return folders


def _attempt(
    writer: DatasetWriter, policy: PolicySource, numbers: Iterable[int], worker_count: int | None
) -> None:
    """Adds attempts to a dataset, except for those that it has."""
    done = {record.attempt for record in writer.records}
    left = (number for number in numbers if number not in done)
    results = workers.run(
        lambda: next(left, None),
        partial(make_attempts, writer.header, policy, False),
        count=worker_count,
        timeout_s=_TIMEOUT_S,
    )
    with contextlib.closing(results):
        for number, result in results:
            add_attempt(writer, number, result)
