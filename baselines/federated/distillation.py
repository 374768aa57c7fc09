"""After the last round: a policy of the robots' size imitates the combined one, or trains further.

The server trains it without queries to robots. For imitation it simulates episodes, stored as
datasets in the fleet's folder, or draws states.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import (
    COMBINED,
    DISTILLED,
    MERGED,
    SCENES,
    FleetWriter,
)
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.distillation import DrawnStates, teacher_actions
from fleet_tools.baselines.training.loop import Batches, train
from fleet_tools.baselines.training.rollouts import make_envs
from fleet_tools.baselines.training.state import Tensors, TrainingState
from fleet_tools.dataset.attempts import make_attempts
from fleet_tools.dataset.collection import add_attempt
from fleet_tools.dataset.dataset_folder import Dataset, DatasetWriter
from fleet_tools.dataset.samples import Samples
from fleet_tools.parallel import workers
from fleet_tools.policies.sources import PolicySource, find_policy
from fleet_tools.storage.provenance import installed_packages

_TIMEOUT_S = 300.0
"""Time limit of an episode, s."""


def train_further(
    writer: FleetWriter,
    weights: Tensors,
    data: Batches,
    changes: dict[str, Any],
    name: str,
    notes: Mapping[str, Any],
) -> Checkpoint:
    """Trains a policy of the fleet, and stores the result.

    Args:
        writer: Writer of the fleet.
        weights: Its weights before.
        data: Its training data.
        changes: Changes of the fleet's `TrainingConfig`.
        name: Name of the file.
        notes: Notes of the result, see `Checkpoint`.

    Raises:
        DivergedError: A loss, a gradient or weights are not finite.
    """
    plan = writer.plan
    training = plan.config.training.model_copy(update=changes)
    state = train(plan.blueprint, data, training, TrainingState.initial(weights))
    checkpoint = Checkpoint(plan.blueprint, state.policy_weights, notes)
    save_checkpoint(writer.folder / name, checkpoint)
    return checkpoint


def distill(
    writer: FleetWriter,
    progress: FleetProgress,
    teacher: Checkpoint,
    steps: Sequence[int],
    worker_count: int | None = 0,
) -> Checkpoint:
    """Trains the last merged policy to act as the combined one, and stores the result.

    Args:
        writer: Writer of the fleet; its merged and combined policies are stored already.
        progress: Progress after the last round.
        teacher: The combined policy.
        steps: Number of steps that each of its robots learned from.
        worker_count: Number of worker processes that simulate, see `workers.run`; 0 simulates in
            this one.

    Raises:
        DivergedError: A loss, a gradient or weights are not finite.
        FleetToolsError: The environments of the datasets cannot be made here.
        OSError: The disk is full or gone; simulated episodes so far are kept.
    """
    plan = writer.plan
    config = plan.config.distillation
    assert config is not None
    if config.inputs == "scenes":
        folders = simulate(writer.folder, plan, config.scenes, worker_count)
        samples = Samples(folders, observations=list(plan.blueprint.observation), failures=True)
        taught = teacher_actions(teacher, samples)
        states: Batches = Trajectories(samples, plan.blueprint, taught=taught)
    else:
        states = DrawnStates.of(teacher, _shares(steps, config.states), plan.states_seed)
    changes = config.model_dump(include={"epochs", "learning_rate"})
    return train_further(writer, progress.weights, states, changes, DISTILLED, plan.notes)


def _shares(own: Sequence[int], count: int) -> list[int]:
    """Divides a number of states among robots by the steps that each has."""
    return [max(1, round(count * each / sum(own))) for each in own]


def simulate(
    folder: Path, plan: FleetPlan, scenes: int, worker_count: int | None = 0
) -> list[Path]:
    """Simulates episodes of each task, half with the combined policy and half with the merged one.

    Scenes are drawn as for datasets, so that no policy is evaluated in them. Episodes are
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
    headers = {header.setting: header for header in (Dataset(f).header for f in plan.config.data)}
    # Task files are untrusted here, unlike in collection.
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
    """Adds missing attempts to a dataset."""
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
