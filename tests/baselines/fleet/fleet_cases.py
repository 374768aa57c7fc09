"""Small fleets, and what listens to their lines."""

from collections.abc import Callable
from pathlib import Path

import torch
from small_data_sets import Drawn, a_header, write

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import Plan
from fleet_tools.baselines.federated.rounds import Round, play
from fleet_tools.baselines.federated.transport import LocalHosts, Lost
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.config.values import parse

torch.set_num_threads(1)

LAYOUT = {"joint_position": ((7,), "float32"), "object_keypoints": ((2, 3), "float32")}
STEPS = [5, 1, 7, 3, 4, 9, 3, 6, 2, 5, 8, 4, 3, 5]
POLICY = {"body": {"type": "gru", "layers": 1, "width": 6}}


def write_data(folder: Path, steps=STEPS, seed: int = 0) -> Path:
    """Episodes of random numbers, of two tools in turn."""
    write(folder, Drawn(steps, [True] * len(steps), seed), a_header(LAYOUT))
    return folder


def config_of(data: Path, **changes) -> FleetConfig:
    settings = {
        "data": [str(data)], "policy": POLICY, "method": "naive_average", "robots": 3,
        "held_out": 0.2, "training": {"epochs": 4, "batch_size": 8, "seed": 5}, "merge_every": 2,
    }  # fmt: skip
    return parse(FleetConfig, settings | changes, "The test")


def plan_of(data: Path, **changes) -> Plan:
    return Plan.of(config_of(data, **changes))


def local(plan: Plan) -> LocalHosts:
    return LocalHosts([home.assignment for home in plan.homes])


def played(plan: Plan, hosts=None, count: int | None = None, **keywords) -> list[Round]:
    """Plays rounds, nothing stored."""
    hosts = hosts or local(plan)
    held = Trajectories(plan.held, plan.blueprint)
    rounds, weights = [], None
    for number in range(1, (count or plan.config.rounds) + 1):
        rounds.append(play(plan, held, hosts, number, weights, {}, **keywords))
        weights = rounds[-1].weights
    return rounds


class Tapped:
    """Hosts whose lines are listened to, and may be meddled with.

    Args:
        inner: The hosts.
        meddle: Is told the robot, how many messages it was sent before, and its answer; returns
            what arrives.
    """

    def __init__(self, inner, meddle: Callable = lambda robot, before, answer: answer):
        self.inner, self.meddle = inner, meddle
        self.lines: list[tuple[int, bytes, bytes | Lost]] = []

    def answers(self, messages):
        for robot, answer in self.inner.answers(messages):
            before = sum(line[0] == robot for line in self.lines)
            answer = self.meddle(robot, before, answer)
            self.lines.append((robot, messages[robot], answer))
            yield robot, answer

    def end(self, robot):
        self.inner.end(robot)

    def close(self):
        self.inner.close()


def same(one, other) -> bool:
    """Whether tensors by name are the same bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
