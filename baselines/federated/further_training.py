"""Training of the merged policy by the driver, after the last round."""

from typing import Any

from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.training.loop import Batches, train
from fleet_tools.baselines.training.state import TrainingState


def train_further(
    writer: FleetWriter, progress: FleetProgress, data: Batches, changes: dict[str, Any], name: str
) -> Checkpoint:
    """Trains the last merged policy, and stores the result.

    Args:
        writer: Writer of the fleet.
        progress: Progress after the last round.
        data: What it learns from.
        changes: What differs from the fleet's `TrainingConfig`.
        name: Name of the file.

    Raises:
        DivergedError: A loss, a gradient or weights are not finite.
    """
    plan = writer.plan
    training = plan.config.training.model_copy(update=changes)
    state = train(plan.blueprint, data, training, TrainingState.initial(progress.weights))
    checkpoint = Checkpoint(plan.blueprint, state.policy_weights)
    save_checkpoint(writer.folder / name, checkpoint)
    return checkpoint
