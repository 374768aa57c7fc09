"""Robots in other processes: the same merge, and nothing crosses but `wire`'s messages."""

import os
import sys
import warnings
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

from fleet_tools.baselines.federated.ray_data_holder import RayRobot
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.problem import Fleet
from fleet_tools.baselines.merging.queries.data_holder import LocalRobot, ask
from fleet_tools.baselines.merging.queries.wire import (
    Question,
    decode_answer,
    decode_question,
    encode_question,
)
from fleet_tools.baselines.merging.symmetry.layers import mlp
from fleet_tools.baselines.merging.symmetry.table import Symmetry
from fleet_tools.parallel import cluster

torch.set_num_threads(1)
SYMMETRY = Symmetry.of(mlp(["0", "2"], ["_obs", "h", "_act"]))


@pytest.fixture(scope="module")
def ray():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with cluster.connected(2, None) as library:
            if library is None:
                pytest.skip("Ray does not start here")
            # Functions of this module travel whole: workers cannot import it.
            library.cloudpickle.register_pickle_by_value(sys.modules[__name__])
            yield library
            library.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def data(seed):
    generator = np.random.default_rng(seed)
    return (torch.tensor(generator.normal(size=(20, n)).astype(np.float32)) for n in (3, 2))


def maker(seed):
    """Opens a robot's data where it is called."""

    def make():
        observations, actions = data(seed)
        return LocalRobot(
            network(), lambda policy, seed: (policy(observations) - actions).square().mean()
        )

    return make


class Tapped:
    """A robot whose line is listened to."""

    def __init__(self, inner):
        self.inner, self.lines = inner, []

    def answer(self, message):
        answer = self.inner.answer(message)
        self.lines.append((message, answer))
        return answer


def merged_by(robots):
    models = [network(seed).state_dict() for seed in range(len(robots))]
    fleet = Fleet(SYMMETRY, models, robots=robots)
    return merge("fleet_merge", fleet, epochs=1, descent=Descent(steps=2))


@pytest.fixture(scope="module")
def far(ray):
    return [RayRobot.start(maker(seed), num_cpus=0) for seed in range(2)]


def test_robots_in_other_processes_merge_to_the_same_bit(far):
    near = merged_by([maker(seed)() for seed in range(2)])
    there = merged_by(far)
    assert all(torch.equal(near.state[name], there.state[name]) for name in near.state)
    assert near.traffic == there.traffic


def test_nothing_crosses_but_models_losses_and_gradients(far, ray):
    tapped = [Tapped(robot) for robot in far]
    merged = merged_by(tapped)
    lines = [line for robot in tapped for line in robot.lines]
    for sent, received in lines:
        assert type(sent) is type(received) is bytes
        question = decode_question(sent)
        assert question.model.keys() == merged.state.keys()
        decode_answer(received, question)  # which refuses whatever else is in there
    assert merged.traffic.bytes_to_robots == sum(len(sent) for sent, _ in lines)
    assert merged.traffic.bytes_from_robots == sum(len(received) for _, received in lines)
    # All else that crossed is the function that opens the data over there.
    crossed = b"".join(map(b"".join, lines)) + ray.cloudpickle.dumps([maker(0), maker(1)])
    assert decode_question(lines[0][0]).model["0.bias"].numpy()[:1].tobytes() in crossed
    for tensor in (*data(0), *data(1)):
        assert all(number.tobytes() not in crossed for number in tensor.numpy().flat)


def test_an_actor_can_be_asked_for_nothing_else_but_where_it_is(far, ray):
    methods = [name for name in dir(far[0].actor) if not name.startswith("_")]
    assert methods == ["answer", "place"]
    node, process = ray.get(far[0].place())
    assert node == ray.get_runtime_context().get_node_id() and process != os.getpid()


def test_a_robots_own_words_arrive(far):
    question = encode_question(Question({"other": torch.ones(1)}, None, False))
    with pytest.raises(MessageError, match=r"^A robot is asked about another architecture"):
        far[0].answer(question)


def test_a_robot_that_is_gone_is_named(ray):
    nowhere = partial(open, "no/such/drive")
    with pytest.raises(MessageError, match=r"(?s)its actor is gone.*no/such/drive"):
        ask(RayRobot.start(nowhere, num_cpus=0), network().state_dict(), 0)
