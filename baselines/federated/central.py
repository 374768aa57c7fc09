"""A server that learns from raw data: its own, public data, and uploads within a budget.

This is the control run for merging. The server trains the robots' policy, for no fewer gradient
steps than joint training on all data.
"""

import json
from pathlib import Path
from typing import Any

from fleet_tools.baselines.federated.plan import (
    FleetPlan,
    local_epochs,
    server_samples,
)
from fleet_tools.baselines.federated.record import REPORT
from fleet_tools.baselines.federated.robot import first_weights
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of, require_steps
from fleet_tools.baselines.training.loop import train, validate
from fleet_tools.baselines.training.rollouts import make_success_measure
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.uploads import Demonstrations, RawDataConfig, decode
from fleet_tools.errors import ConfigError
from fleet_tools.storage.atomic_files import write_file

POLICY = "policy.safetensors"
_UPLOADS, _DECODED = "uploads", "decoded"


def learn(
    plan: FleetPlan,
    raw: RawDataConfig | None,
    budget: int | None,
    folder: Path,
    *,
    first_scene: int = 0,
) -> dict[str, Any]:
    """Trains the server's policy, and stores and returns a report like a fleet's.

    Args:
        plan: The fleet. Its robots do not train.
        raw: How robots make their demonstrations small; None if they send none.
        budget: Bytes that each robot may send; None for all its demonstrations.
        folder: Folder of the uploads, of the datasets decoded from them, and of the policy.
        first_scene: Number of the first scene of rollouts.

    Raises:
        ConfigError, DatasetError: The server has no data, or robots lack entries of raw data.
        DivergedError: A loss, a gradient or weights are not finite.
        OSError: The disk is full or gone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = plan.config
    if raw is not None and (lacks := {name for each in plan.assignments for name in each.lacks}):
        raise ConfigError(
            f"Robots of `groups` lack {', '.join(sorted(lacks))}, and `raw_data` hold all that the "
            "policy reads. Leave out `raw_data`, or the `observations` of the groups."
        )
    uploads = [] if raw is None else send(plan, raw, budget, folder / _UPLOADS)
    folders, entries = [], list(plan.blueprint.observation)
    headers = [Dataset(each).header for each in config.data]
    for robot, (upload, _) in enumerate(uploads):
        assert raw is not None
        folders += decode(upload, headers, entries, raw, folder / _DECODED / str(robot))
    samples = server_samples(config, folders)
    require_steps(samples, "What the server has", "Give a larger budget, or public data.")
    blueprint = blueprint_of(config.policy, samples)
    if config.backbone is not None:
        blueprint = plan.blueprint
    every = Samples(config.data, observations=entries)
    learned = every.subset(index for each in plan.assignments for index in each.episodes)
    steps = config.model_copy(update={"equal_steps": True, "merge_every": None})
    epochs = max(config.training.epochs, local_epochs(steps, samples, learned))
    training = config.training.model_copy(update={"epochs": epochs})
    initial = first_weights(plan.assignments[0])
    state = train(
        blueprint, Trajectories(samples, blueprint), training, TrainingState.initial(initial)
    )
    policy = Checkpoint(blueprint, state.policy_weights, plan.notes)
    save_checkpoint(folder / POLICY, policy)
    measure = make_success_measure(
        config.data, config.rollouts, blueprint, first=first_scene, detector=config.detector
    )
    held_out = Trajectories(plan.held_out, blueprint)
    loss, rollouts = validate(blueprint, held_out, training, policy.weights), measure(policy)
    sent = sum(len(upload) for upload, _ in uploads)
    report = {
        "held_out": {"episodes": len(plan.held_out.episodes), "loss": loss},
        "epochs": epochs,
        "traffic": {"messages": len(uploads), "downloaded_bytes": 0, "uploaded_bytes": sent},
        "data_at_home": sum(client.data_bytes for client in plan.clients),
        "rollouts": rollouts,
        "robots": [
            {
                "robot": robot,
                "episodes": episodes,
                "downloaded_bytes": 0,
                "uploaded_bytes": len(upload),
            }
            for robot, (upload, episodes) in enumerate(uploads)
        ],
        "curve": [{"round": 1, "bytes": sent, "loss": loss, "moved": None, "rollouts": rollouts}],
    }
    write_file(folder / REPORT, json.dumps(report, indent=1) + "\n")
    return report


def send(
    plan: FleetPlan, raw: RawDataConfig, budget: int | None, folder: Path
) -> list[tuple[bytes, int]]:
    """Returns each robot's upload and its number of episodes, and stores the uploads.

    Args:
        plan: The fleet.
        raw: How robots make their demonstrations small.
        budget: Bytes that each may send; None for all its demonstrations.
        folder: Folder of the uploads.
    """
    config, found = plan.config, []
    folders = [Path(each) for each in config.data]
    samples = Samples(folders, observations=list(plan.blueprint.observation))
    policy = config.policy
    whole = policy.with_memory or policy.chunk > 1 or bool(policy.first_frame)
    folder.mkdir(exist_ok=True)
    for assignment in plan.assignments:
        own = samples.subset(assignment.episodes)
        demonstrations = Demonstrations(own, folders, raw, only_imitated=not whole)
        upload, chosen = demonstrations.within(budget, assignment.training.seed)
        write_file(folder / f"{assignment.robot}.upload", upload)
        found.append((upload, len(chosen)))
    return found
