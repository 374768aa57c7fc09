"""A fleet over Flower with secure sums, or with noisy means.

Robots align and train at home, as in a streaming fleet, and answer with their weights. Each round
is one of Flower's: SecAgg+ ("sums"), or clipped changes and noise with Flower's accountant
("noise"). A stopped run starts over.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import MERGED, REPORT
from fleet_tools.baselines.federated.rounds import after_merge
from fleet_tools.baselines.federated.vectors import difference, displaced
from fleet_tools.baselines.flower import flower
from fleet_tools.baselines.flower.protection import TASK, Task
from fleet_tools.baselines.flower.roster import Roster
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.training.state import TrainingError
from fleet_tools.errors import ConfigError
from fleet_tools.storage.atomic_files import write_file

FEWEST = 3
"""Smallest number of robots in a sum: either of two would know the other's weights."""

LARGEST_WEIGHT, LEVELS = 8.0, 2**22
"""SecAgg+ clips weights to this magnitude, and rounds them at random to so many levels."""

_SHARES = 0.67
"""Fraction of the robots that must stay until the end of a round with SecAgg+."""

Mean = Callable[[int, np.ndarray], np.ndarray]
"""mean(round, weights): the protected mean of the robots' weights after a round, (n,)."""


def run_protected(
    grid: Any,
    context: Any,
    plan: FleetPlan,
    roster: Roster,
    output: Path,
    *,
    protection: str,
    timeout_s: float,
    clip: float,
    noise: float,
    delta: float,
) -> dict[str, Any]:
    """Runs all rounds, and stores the policy and a report.

    Args:
        grid: Flower's grid.
        context: Flower's context of the run.
        plan: The fleet, which streams without rounding, from common weights; one robot a node.
        roster: Its nodes.
        output: Folder of merged.safetensors and report.json, which is new.
        protection: "sums" or "noise".
        timeout_s: Time limit of the answers, s.
        clip: Largest L2 norm of a robot's change, for "noise".
        noise: Standard deviation of the noise in the sum of changes, in units of `clip`.
        delta: Probability that differential privacy fails.

    Returns:
        The report: protection, rounds with their losses, and for "noise" epsilon.

    Raises:
        ConfigError: The fleet or the folder does not fit.
        TrainingError: Too few robots answered in a round.
        MissingLibraryError: `dp_accounting` is not installed.
    """
    _require_possible(plan, roster, protection)
    output.mkdir(parents=True, exist_ok=True)
    if (output / REPORT).exists():
        raise ConfigError(f"{output} holds a fleet already. Give a new folder as `output`.")
    base = plan.first_base()
    assert base is not None
    zero = {name: each * 0 for name, each in base.items()}
    if protection == "sums":
        mean, spent = _secure_mean(grid, context, plan, roster, timeout_s), lambda: {}
    else:
        mean, spent = _noisy_mean(grid, plan, roster, timeout_s, clip, noise, delta)
    weights, state, rounds = base, {}, []
    for number in range(1, plan.config.rounds + 1):
        begun = difference(weights, zero)
        merged = displaced(zero, mean(number, begun).astype(np.float64))
        weights, state, loss = after_merge(plan, number, weights, merged, state)
        rounds.append({"round": number, "loss": loss})
        print(f"round {number}: held-out loss {loss:.3g}", flush=True)
    report = {"protection": protection, "rounds": rounds, **spent()}
    save_checkpoint(output / MERGED, Checkpoint(plan.blueprint, weights, plan.notes))
    write_file(output / REPORT, json.dumps(report, indent=2) + "\n")
    return report


def _require_possible(plan: FleetPlan, roster: Roster, protection: str) -> None:
    config = plan.config
    if config.streaming is None or config.streaming.bits or config.initialization != "common":
        raise ConfigError(
            f"`protection={protection}` needs common initial weights, alignment on the robots and "
            "its own quantization. Give `streaming: {}` without `bits`, and `initialization: "
            "common`."
        )
    if roster.partitions != config.robots:
        raise ConfigError(
            f"`protection={protection}` needs one node for each robot, but there are "
            f"{roster.partitions} nodes for {config.robots} robots. Give `robots: "
            f"{roster.partitions}`."
        )
    if plan.wanted(1) < FEWEST:
        raise ConfigError(
            f"{plan.wanted(1)} robots take part in a round; with fewer than {FEWEST}, each could "
            "compute the uploads of the others. Give more robots, or a larger `participation`."
        )


def _tasks(plan: FleetPlan, roster: Roster, number: int) -> dict[int, str]:
    """Returns tasks of a round's robots by Flower's id of the node.

    Raises:
        TrainingError: A robot's node is not online.
    """
    epochs, tasks = plan.config.epochs_per_round, {}
    for robot in plan.participants(number):
        if (node := roster.node_of(robot)) is None:
            raise TrainingError(f"In round {number}, the node of robot {robot} is not online.")
        assignment = plan.assignments[robot]
        task = Task(assignment=assignment, round=number, epoch=(number - 1) * epochs, epochs=epochs)
        tasks[node] = task.to_json()
    return tasks


def _secure_mean(
    grid: Any, context: Any, plan: FleetPlan, roster: Roster, timeout_s: float
) -> Mean:
    """Returns rounds by Flower's SecAgg+."""
    common, server = flower("common"), flower("server")
    compat, keys = flower("compat.common.recorddict_compat"), flower("server.workflow.constant")
    proxy = flower("server.compat.grid_client_proxy").GridClientProxy

    class Rounds(flower("server.strategy").FedAvg):
        """Selects the robots of a round, and keeps the mean."""

        found: np.ndarray | None = None

        def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
            return [
                (proxy(node, grid, context.run_id), common.FitIns(parameters, {TASK: task}))
                for node, task in _tasks(plan, roster, server_round).items()
            ]

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            if len(results) >= FEWEST:
                (self.found,) = common.parameters_to_ndarrays(results[0][1].parameters)
            return None, {}

    workflow = flower("server.workflow").SecAggPlusWorkflow(
        num_shares=1.0,
        reconstruction_threshold=_SHARES,
        max_weight=1.0,
        clipping_range=LARGEST_WEIGHT,
        quantization_range=LEVELS,
        timeout=timeout_s,
    )
    rounds = Rounds(min_fit_clients=FEWEST, min_available_clients=FEWEST)
    legacy = server.LegacyContext(context, server.ServerConfig(), rounds)

    def mean(number: int, weights: np.ndarray) -> np.ndarray:
        parameters = common.ndarrays_to_parameters([weights])
        record = compat.parameters_to_arrayrecord(parameters, keep_input=True)
        config = flower("app").ConfigRecord({keys.Key.CURRENT_ROUND: number})
        legacy.state.array_records[keys.MAIN_PARAMS_RECORD] = record
        legacy.state.config_records[keys.MAIN_CONFIGS_RECORD] = config
        rounds.found = None
        workflow(grid, legacy)
        if rounds.found is None:
            raise TrainingError(
                f"Secure aggregation of round {number} failed, because too few robots stayed until "
                "its end. See their errors in the SuperLink's log."
            )
        return rounds.found

    return mean


def _noisy_mean(
    grid: Any,
    plan: FleetPlan,
    roster: Roster,
    timeout_s: float,
    clip: float,
    noise: float,
    delta: float,
) -> tuple[Mean, Callable[[], dict[str, float]]]:
    """Returns rounds with Flower's clipping and noise, and their privacy budget so far."""
    app, strategies = flower("app"), flower("serverapp.strategy")
    privacy = flower("supercore.privacy_accounting")
    accountant = flower("supercore.privacy_accounting.rdp_accountant").RdpAccountant(
        privacy.PrivacyConfig(
            target_delta=delta,
            population_size=len(plan.assignments),
            neighboring_relation=privacy.NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=privacy.SamplingMethod.NO_AMPLIFICATION,
        )
    )
    names = {"arrayrecord_key": "fitins.parameters", "configrecord_key": "fitins.config"}

    class Tasks(strategies.FedAvg):
        """Sends each robot its task."""

        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            return [
                app.Message(
                    app.RecordDict(
                        {
                            self.arrayrecord_key: arrays,
                            self.configrecord_key: app.ConfigRecord({**config, TASK: task}),
                        }
                    ),
                    node,
                    "train",
                )
                for node, task in _tasks(plan, roster, server_round).items()
            ]

    strategy = strategies.DifferentialPrivacyClientSideFixedClipping(
        Tasks(weighted_by_key="num_examples", fraction_evaluate=0.0, **names),
        noise_multiplier=noise,
        clipping_norm=clip,
        num_sampled_clients=plan.wanted(1),
        accountant=accountant,
    )

    def mean(number: int, weights: np.ndarray) -> np.ndarray:
        arrays = app.ArrayRecord([weights])
        messages = list(strategy.configure_train(number, arrays, app.ConfigRecord(), grid))
        replies = list(grid.send_and_receive(messages, timeout=timeout_s))
        found, _ = strategy.aggregate_train(number, replies)
        if found is None:
            raise TrainingError(
                f"In round {number}, not all of {len(messages)} robots answered, so the noise "
                "does not match the privacy accountant. See their errors in the SuperLink's log."
            )
        (merged,) = found.to_numpy_ndarrays()
        return merged

    def spent() -> dict[str, float]:
        found = accountant.get_privacy_spent()
        return {"epsilon": found.epsilon, "delta": found.delta, "noise": noise, "clip": clip}

    return mean, spent
