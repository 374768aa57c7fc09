"""A policy of the robots' size that imitates their combination.

The driver trains it, and no robot is asked for anything.
"""

from fleet_tools.baselines.federated.further_training import train_further
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import DISTILLED, FleetWriter
from fleet_tools.baselines.federated.simulation import simulate
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.distillation import DrawnStates, teacher_actions
from fleet_tools.baselines.training.loop import Batches
from fleet_tools.dataset.samples import Samples


def distill(
    writer: FleetWriter, progress: FleetProgress, teacher: Checkpoint, worker_count: int | None = 0
) -> Checkpoint:
    """Trains the last merged policy to act as the combined one, and stores the result.

    Args:
        writer: Writer of the fleet; its merged and combined policies are stored already.
        progress: Progress after the last round.
        teacher: The combined policy.
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
        states = DrawnStates.of(teacher, _shares(progress, config.states), plan.states_seed)
    changes = config.model_dump(include={"epochs", "learning_rate"})
    return train_further(writer, progress, states, changes, DISTILLED)


def _shares(progress: FleetProgress, count: int) -> list[int]:
    """Divides a number of states among the last round's robots by the steps that each has."""
    own = progress.robot_steps
    return [max(1, round(count * each / sum(own))) for each in own]
