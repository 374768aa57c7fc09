"""Small fleets, and a transport that records messages."""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
import yaml
from support.small_datasets import Drawn, a_header, write
from support.training_cases import same

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.messages import Answer, Message, TrainRequest, encode
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import load_progress
from fleet_tools.baselines.federated.rounds import RoundResult, run_round
from fleet_tools.baselines.federated.transport import (
    LocalTransport,
    LostClient,
    RelayingTransport,
    Transport,
)
from fleet_tools.config.values import parse

torch.set_num_threads(1)

LAYOUT = {"joint_position": ((7,), "float32"), "object_keypoints": ((2, 3), "float32")}
STEPS = (5, 1, 7, 3, 4, 9, 3, 6, 2, 5, 8, 4, 3, 5)
ROUNDS: dict[str, Any] = {"merge_every": 1, "training": {"epochs": 8, "batch_size": 8, "seed": 5}}
"""Values of the configuration of a fleet with many short rounds."""

PROGRAM = [sys.executable, "-m", "fleet_tools.baselines.fleet"]
"""The program's command."""

POLICY = {"body": {"type": "gru", "layers": 1, "width": 6}}


def write_data(folder: Path, steps: Sequence[int] = STEPS, seed: int = 0) -> Path:
    """Writes episodes of random numbers, with two tools in turn."""
    write(folder, Drawn(list(steps), [True] * len(steps), seed), a_header(LAYOUT))
    return folder


def config_of(data: Path, **changes: Any) -> FleetConfig:
    """Returns the configuration of a small fleet of three robots."""
    settings = {
        "data": [str(data)],
        "policy": POLICY,
        "method": "naive_average",
        "robots": 3,
        "held_out": 0.2,
        "training": {"epochs": 4, "batch_size": 8, "seed": 5},
        "merge_every": 2,
    }
    return parse(FleetConfig, settings | changes, "The test")


def plan_of(data: Path, **changes: Any) -> FleetPlan:
    """Returns the plan of a small fleet."""
    return FleetPlan.of(config_of(data, **changes))


def local(plan: FleetPlan) -> LocalTransport:
    """Returns a transport to robots in this process."""
    return LocalTransport(plan.assignments)


def request(plan: FleetPlan, epochs: int = 1) -> TrainRequest:
    """Returns a request to train, from the same weights for all robots."""
    return TrainRequest(1, 0, epochs, plan.blueprint.create(3).state_dict())


def run_rounds(
    plan: FleetPlan, transport: Transport | None = None, count: int | None = None, **options: Any
) -> list[RoundResult]:
    """Runs rounds, all by default, without storing anything."""
    transport = transport or local(plan)
    results: list[RoundResult] = []
    for number in range(1, (count or plan.config.rounds) + 1):
        weights = results[-1].weights if results else None
        results.append(run_round(plan, transport, number, weights, **options))
    return results


def arguments(folder: Path, output: Path, *more: str, **changes: Any) -> list[str]:
    """Writes a configuration beside the output, and returns the program's arguments."""
    settings = config_of(folder).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    path = Path(f"{output}.yaml")
    path.write_text(yaml.safe_dump(settings | changes))
    return [str(path), "--output", str(output), "--workers", "0", "--quiet", *more]


def run_program(arguments: Sequence[str], errors: Path) -> None:
    """Runs the program, and exits with its code; to be called by a new process."""
    from fleet_tools.baselines.fleet import main

    with errors.open("w") as file, redirect_stderr(file):
        sys.exit(main(arguments))


def rounds_of(folder: Path) -> list[dict[str, Any]]:
    """Returns the rounds in a fleet's state, without wall times."""
    return [each.model_dump(exclude={"seconds"}) for each in load_progress(folder).rounds]


def same_result(one: Path, other: Path) -> bool:
    """Whether two runs have the same result, except for wall times."""
    files = ["merged.safetensors", "report.json", *(f"robots/{k}.safetensors" for k in range(3))]
    bits = all((one / name).read_bytes() == (other / name).read_bytes() for name in files)
    return bits and rounds_of(one) == rounds_of(other)


Tamper = Callable[[int, int, Answer | LostClient], Answer | LostClient]
"""tamper(robot, before, answer): returns the answer that arrives instead; `before` is the number of
messages that the robot was sent before."""


class RecordingTransport(RelayingTransport):
    """A transport that records messages, and may tamper with answers."""

    def __init__(
        self, inner: Transport, tamper: Tamper = lambda robot, before, answer: answer
    ) -> None:
        super().__init__(inner)
        self._tamper = tamper
        self.exchanges: list[tuple[int, Message, Answer | LostClient]] = []

    def relayed(
        self, robot: int, message: Message, answer: Answer | LostClient
    ) -> Answer | LostClient:
        before = sum(each[0] == robot for each in self.exchanges)
        answer = self._tamper(robot, before, answer)
        self.exchanges.append((robot, message, answer))
        return answer


def answered(answer: Answer | LostClient) -> Any:
    """Returns the answer of a robot that is not lost."""
    assert not isinstance(answer, LostClient)
    return answer


def exchanged(answers: Iterable[tuple[int, Any]]) -> dict[int, bytes | LostClient]:
    """Returns answers of robots bit for bit, by robot."""
    return {
        robot: answer if isinstance(answer, LostClient) else encode(answer)
        for robot, answer in answers
    }


def equal(one: FleetProgress | None, other: FleetProgress | None) -> bool:
    """Whether two fleets go on to the same bits."""
    if one is None or other is None:
        return one is other
    robots = (one.robot_weights, other.robot_weights)
    return (
        one.rounds == other.rounds
        and same(one.weights, other.weights)
        and robots[0].keys() == robots[1].keys()
        and all(same(robots[0][robot], robots[1][robot]) for robot in robots[0])
        and one.server_state.keys() == other.server_state.keys()
        and all(same(one.server_state[name], other.server_state[name]) for name in one.server_state)
    )
