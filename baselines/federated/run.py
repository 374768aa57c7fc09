"""All rounds of a fleet, on from the last that is stored, and what is made of the last one."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fleet_tools.baselines.federated import record as records
from fleet_tools.baselines.federated.messages import decode_reply
from fleet_tools.baselines.federated.plan import Plan
from fleet_tools.baselines.federated.record import Record
from fleet_tools.baselines.federated.rounds import play
from fleet_tools.baselines.federated.summary import report_of
from fleet_tools.baselines.federated.transport import Hosts
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.storage.atomic_files import whole

FINE_TUNED, REPORT = "fine_tuned.safetensors", "report.json"

TryOut = Callable[[Checkpoint], dict[str, Any] | None]
"""Runs a policy, and says what came of it as JSON has it."""


def complete(
    plan: Plan,
    hosts: Hosts,
    folder: Path,
    *,
    try_out: TryOut = lambda checkpoint: None,
    after_round: Callable[[Record], None] = lambda record: None,
) -> dict[str, Any]:
    """Plays all rounds, and stores and returns the report; see `run`."""
    record = run(plan, hosts, folder, try_out=try_out, after_round=after_round)
    report = report_of(plan, record)
    if plan.config.try_robots:
        for each in report["robots"]:
            if (weights := record.robots.get(each["robot"])) is not None:
                each["rollouts"] = try_out(Checkpoint(plan.blueprint, weights))
    if plan.config.fine_tuning is not None:
        tuned = fine_tune(plan, record, folder)
        report["fine_tuned"] = {"policy": FINE_TUNED, "rollouts": try_out(tuned)}
    with whole(folder / REPORT) as aside:
        aside.write_text(json.dumps(report, indent=1) + "\n")
    return report


def run(
    plan: Plan,
    hosts: Hosts,
    folder: Path,
    *,
    try_out: TryOut = lambda checkpoint: None,
    after_round: Callable[[Record], None] = lambda record: None,
) -> Record:
    """Plays all rounds that are yet to be played, each stored when it is over.

    Args:
        plan: The fleet.
        hosts: Where its robots run.
        folder: As `record.open_folder` leaves it.
        try_out: Of merged policies.
        after_round: Is told of the record.

    Raises:
        TrainingError: A round has no robot left, or the folder holds something else.
        DivergedError: Merged weights are not finite.
        OSError: The disk is full or gone.
    """
    record = records.open_folder(folder, plan)
    held = Trajectories(plan.held, plan.blueprint)
    config = plan.config
    while (number := len(record.told) + 1) <= config.rounds:
        begun = time.monotonic()
        kept = _kept(folder, plan, number)
        keep = partial(records.keep_reply, folder)
        played = play(plan, held, hosts, number, record.weights, kept, keep)
        due = number % config.rollout_every == 0 or number == config.rounds
        tried = try_out(Checkpoint(plan.blueprint, played.weights)) if due else None
        record = record.with_round(plan, played, tried, time.monotonic() - begun)
        records.save(folder, plan, record)
        after_round(record)
    records.store_policies(folder, plan, record)  # a kill may have come before they were
    records.store_robots(folder, plan, record)
    return record


def fine_tune(plan: Plan, record: Record, folder: Path) -> Checkpoint:
    """Trains the merged policy on the driver's own episodes, and stores what comes of it.

    Raises:
        DivergedError: It came to numbers that are not finite.
    """
    how = plan.config.fine_tuning.model_dump()
    training = plan.config.training.model_copy(update=how)
    held = Trajectories(plan.held, plan.blueprint)
    state = train(plan.blueprint, held, training, TrainingState.initial(record.weights))
    checkpoint = Checkpoint(plan.blueprint, state.weights)
    save_checkpoint(folder / FINE_TUNED, checkpoint)
    return checkpoint


def _kept(folder: Path, plan: Plan, number: int) -> dict[int, bytes]:
    """The stored replies to this round; a kill may have come after another one was stored."""
    expected = plan.blueprint.create().state_dict()
    kept = {}
    for robot, reply in records.kept_replies(folder).items():
        try:
            decode_reply(reply, number, expected)
        except MessageError:
            continue
        kept[robot] = reply
    return kept
