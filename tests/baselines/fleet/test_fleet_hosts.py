"""Robots in Ray actors: the same bits, and actors that really die and really hang."""

import os
import signal
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import psutil
from fleet_cases import Tapped, local, plan_of, played, same, write_data

from fleet_tools.baselines.federated.messages import is_request
from fleet_tools.baselines.federated.transport import RayHosts
from fleet_tools.parallel import cluster

ROBOTS = 2
ALIGNED = {
    "robots": ROBOTS,
    "method": "fleet_merge",
    "options": {"epochs": 1, "steps": 2},
    "merge_every": 1,
}
AT_ONCE, TIMEOUT_S = 1, 30.0  # a busy machine answers late


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("hosts") / "data")


@pytest.fixture(scope="module", name="plan")
def _plan(data):
    return plan_of(data, **ALIGNED)


@pytest.fixture(scope="module", name="hosts")
def _hosts(plan):
    """More robots than work at once; actors that take seconds to start, for all tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with cluster.connected(AT_ONCE, None) as ray:
            if ray is None:
                pytest.skip("Ray does not start here")
            assignments = [home.assignment for home in plan.homes]
            hosts = RayHosts(assignments, at_once=AT_ONCE, timeout_s=TIMEOUT_S)
            yield hosts
            hosts.close()


def test_robots_in_actors_come_to_the_same_bits(plan, hosts):
    here, there = played(plan), played(plan, hosts)
    for one, other in zip(here, there, strict=True):
        assert same(one.weights, other.weights) and one.loss == other.loss
        assert all(one.parts[k].traffic == other.parts[k].traffic for k in one.parts)
    processes = {process for _, process in hosts.places.values()}
    assert len(processes) == ROBOTS and os.getpid() not in processes


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (signal.SIGKILL, "its actor is gone"),
        pytest.param(signal.SIGSTOP, "it took longer than 30 s", marks=pytest.mark.slow),
    ],
)
def test_who_dies_or_hangs_while_others_train_is_left_out_and_comes_back(data, hosts, how, said):
    struck = []

    def strike(robot, before, answer):
        if not struck:  # robot 0 has answered, and with one at once robot 1 waits for its turn
            struck.append(hosts.places[1][1])
            os.kill(struck[0], how)
        return answer

    first, second = played(plan_of(data, robots=ROBOTS), Tapped(hosts, strike))
    assert first.parts[0].left_out is None
    assert said in first.parts[1].left_out and "\n" not in first.parts[1].left_out
    assert same(first.weights, first.parts[0].reply.weights)
    assert [part.left_out for part in second.parts.values()] == [None] * ROBOTS
    assert hosts.places[1][1] != struck[0]
    assert not psutil.pid_exists(struck[0]) or psutil.Process(struck[0]).status() == "zombie"


def test_who_dies_while_models_are_aligned_is_left_out_of_the_merge(plan, hosts):
    struck = []

    class Struck(Tapped):
        def answers(self, messages):
            questioned = [k for k, sent, _ in self.lines if not is_request(sent)]
            if len(questioned) == 1 and not struck:
                struck.append(0)
                victim = hosts.places[0][1]
                os.kill(victim, signal.SIGKILL)
            yield from super().answers(messages)

    rounds = played(plan, Struck(hosts), count=2)
    assert "its actor is gone" in rounds[0].parts[0].left_out
    assert rounds[0].parts[0].reply is not None  # it had trained
    assert [part.left_out for part in rounds[1].parts.values()] == [None] * ROBOTS

    def lose(robot, before, answer):
        return b"" if (robot, before) == (0, len(at_first)) else answer

    at_first = [1]  # the request itself
    lost = played(plan, Tapped(local(plan), lose), count=1)
    assert same(rounds[0].weights, lost[0].weights)
