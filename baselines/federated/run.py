"""All rounds of a fleet, resumed after the last stored one, and the report."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fleet_tools.baselines.federated import progress as fleet_progress
from fleet_tools.baselines.federated.distillation import distill, train_further
from fleet_tools.baselines.federated.keeping import run_month
from fleet_tools.baselines.federated.life_report import life_report
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import (
    COMBINED,
    DISTILLED,
    FINE_TUNED,
    MONTHS,
    REPORT,
    FleetWriter,
)
from fleet_tools.baselines.federated.rounds import RoundResult, combine, messages_of, run_round
from fleet_tools.baselines.federated.summary import summarize
from fleet_tools.baselines.federated.transport import Transport
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.policies.merged_checkpoints import merged_checkpoint
from fleet_tools.baselines.training.loop import validate
from fleet_tools.baselines.training.rollouts import SuccessMeasure
from fleet_tools.storage.atomic_files import write_file


def complete(
    writer: FleetWriter,
    transport: Transport,
    *,
    measure_success: SuccessMeasure = lambda checkpoint, /, tasks=None: None,
    after_round: Callable[[FleetProgress], None] = lambda progress: None,
    worker_count: int | None = 0,
) -> dict[str, Any]:
    """Runs all rounds, and stores and returns the report.

    Args:
        writer: See `run`.
        transport: See `run`.
        measure_success: See `run`.
        after_round: See `run`.
        worker_count: Number of worker processes that simulate episodes for distillation, see
            `workers.run`; 0 simulates in this one.

    Raises:
        FleetToolsError, OSError: See `run` and `distillation.distill`.
    """
    plan = writer.plan
    progress = run(writer, transport, measure_success=measure_success, after_round=after_round)
    report = summarize(plan, progress)
    if (tried := plan.config.try_robots) is not False:
        for each in report["robots"]:
            if (weights := progress.robot_weights.get(each["robot"])) is not None:
                tasks = plan.clients[each["robot"]].tasks if tried == "own_tasks" else None
                robot = Checkpoint(plan.blueprint, weights)
                each["rollouts"] = measure_success(robot, tasks=tasks)
    if plan.config.life is not None:
        report["life"] = life_report(writer, progress, measure_success)
    elif plan.config.last_method is not None:
        report |= _last_merge(writer, transport, progress, measure_success, worker_count)
    tuned = fine_tune(writer, progress)
    if tuned is not None:
        report["fine_tuned"] = {"policy": FINE_TUNED, "rollouts": measure_success(tuned)}
    write_file(writer.folder / REPORT, json.dumps(report, indent=1) + "\n")
    return report


def run(
    writer: FleetWriter,
    transport: Transport,
    *,
    measure_success: SuccessMeasure = lambda checkpoint, /, tasks=None: None,
    after_round: Callable[[FleetProgress], None] = lambda progress: None,
) -> FleetProgress:
    """Runs all remaining rounds, and stores each.

    Args:
        writer: Writer of the fleet.
        transport: Transport to its robots.
        measure_success: Evaluates a merged policy in rollouts.
        after_round: Called with the progress after each round.

    Returns:
        The progress after the last round.

    Raises:
        TrainingError: All robots of a round are lost, or the stored state is damaged.
        UnsoundMergeError, DivergedError: Merged weights or their loss are not usable.
        OSError: The disk is full or gone.
    """
    plan, config, progress = writer.plan, writer.plan.config, writer.load()
    while progress is None or len(progress.rounds) < config.rounds:
        started = time.monotonic()
        number = 1 if progress is None else len(progress.rounds) + 1
        result, policy = _round(writer, transport, number, progress)
        if config.streaming is not None:
            writer.save_answers(number, result.robots.values())
            if number == config.rounds:
                transport.close()  # so that its processes and those of rollouts need not coexist
        if config.life is not None:
            (writer.folder / MONTHS).mkdir(exist_ok=True)
            save_checkpoint(writer.folder / MONTHS / f"{number}.safetensors", policy)
        rollouts = measure_success(policy) if config.evaluates(number) else None
        seconds = time.monotonic() - started
        progress = fleet_progress.after_round(progress, plan, result, rollouts, seconds)
        writer.save(progress)
        after_round(progress)
    writer.finish(progress)
    return progress


def _round(
    writer: FleetWriter, transport: Transport, number: int, progress: FleetProgress | None
) -> tuple[RoundResult, Checkpoint]:
    """Runs a round, and returns its result and its policy."""
    plan = writer.plan
    if plan.config.keeps:
        return run_month(writer, transport, number, progress)
    if progress is None:
        result = run_round(plan, transport, number, None, writer)
    elif plan.config.life is not None and not plan.participants(number):
        loss = progress.rounds[-1].loss
        result = RoundResult(number, progress.weights, progress.server_state, loss, None, {})
    else:
        state = progress.server_state
        result = run_round(plan, transport, number, progress.weights, writer, state)
    return result, Checkpoint(plan.blueprint, result.weights, plan.notes)


def _last_merge(
    writer: FleetWriter,
    transport: Transport,
    progress: FleetProgress,
    measure_success: SuccessMeasure,
    worker_count: int | None,
) -> dict[str, Any]:
    """Stores the result of the last method, and the policy that imitates it; returns a report."""
    plan, config = writer.plan, writer.plan.config
    messages, number = messages_of(plan, transport), len(progress.rounds)
    result = combine(plan, messages, number, progress.robot_weights, progress.robot_steps)
    combined = merged_checkpoint(plan.blueprint, result, plan.notes)
    save_checkpoint(writer.folder / COMBINED, combined)
    distills = config.distillation is not None
    left_out = {k: why for k in progress.robot_weights if (why := messages.left_out(k))}
    report: dict[str, Any] = {
        "combined": {
            "policy": COMBINED,
            "method": config.last_method,
            "parameters": result.parameters,
            "loss": _held_out_loss(plan, combined),
            "traffic": asdict(messages.traffic()),
            "robots": [
                each.model_dump(include={"robot", "downloaded_bytes", "uploaded_bytes"})
                for _, each in sorted(messages.robots.items())
            ],
            "left_out": [{"robot": robot, "reason": why} for robot, why in left_out.items()],
            "rollouts": None if distills else measure_success(combined),
        }
    }
    if distills:
        steps = [own for robot, own in progress.robot_steps.items() if robot not in left_out]
        distilled = distill(writer, progress, combined, steps, worker_count)
        report["distilled"] = {
            "policy": DISTILLED,
            "loss": _held_out_loss(plan, distilled),
            "rollouts": measure_success(distilled),
        }
    return report


def _held_out_loss(plan: FleetPlan, policy: Checkpoint) -> float:
    trajectories = plan.held_out_trajectories
    return validate(policy.blueprint, trajectories, plan.config.training, policy.weights)


def fine_tune(writer: FleetWriter, progress: FleetProgress) -> Checkpoint | None:
    """Trains the merged policy, or an untrained one, on the held-out episodes, and stores it.

    Returns:
        The fine-tuned policy; None if the configuration has no fine-tuning.

    Raises:
        DivergedError: A loss, a gradient or weights are not finite.
    """
    plan, config = writer.plan, writer.plan.config.fine_tuning
    if config is None:
        return None
    weights, notes = progress.weights, plan.notes
    if config.start == "untrained":
        notes = {}
        weights = plan.blueprint.create(plan.assignments[0].initialization).state_dict()
    changes = config.model_dump(exclude={"start"})
    return train_further(writer, weights, plan.server_trajectories, changes, FINE_TUNED, notes)
