"""Data stay home: what crosses between merging and robots, to the byte."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from architectures import numbers
from merging_cases import WIDE, robot
from safetensors.torch import load, save

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.problem import Fleet
from fleet_tools.baselines.merging.queries.data_holder import LocalRobot, ask
from fleet_tools.baselines.merging.queries.wire import (
    Answer,
    Question,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)

MLP = WIDE["mlp"]
DESCENT = Descent(steps=3)


class Tapped:
    """A robot whose line is listened to."""

    def __init__(self, inner):
        self.inner, self.sent, self.received = inner, [], []

    def answer(self, message):
        assert type(message) is bytes
        self.sent.append(message)
        answer = self.inner.answer(message)
        assert type(answer) is bytes
        self.received.append(answer)
        return answer


def fleet_of(robots, **options):
    models = [MLP.build(seed).state_dict() for seed in range(len(robots))]
    return Fleet(MLP.symmetry, models, robots=robots, **options)


@pytest.mark.parametrize("method", ["fleet_merge", "sinkhorn_rebasin"])
def test_only_models_losses_and_gradients_cross_and_every_byte_is_reported(method):
    robots = [Tapped(robot(MLP, numbers(40, 2))) for _ in range(3)]
    fleet = fleet_of(robots, shared=robots[0])
    merged = merge(method, fleet, descent=DESCENT)
    sent = [message for tapped in robots for message in tapped.sent]
    received = [message for tapped in robots for message in tapped.received]
    shapes = {name: tensor.shape for name, tensor in fleet.models[0].items()}
    for message in received:
        told = load(message)
        assert told.pop("loss").shape == ()
        assert {name.removeprefix("gradient."): value.shape for name, value in told.items()} == (
            shapes
        )
    for message in sent:
        asked = load(message)
        assert asked.pop("seed").shape == asked.pop("wants_gradient").shape == ()
        assert {name.removeprefix("model."): value.shape for name, value in asked.items()} == shapes
    assert merged.traffic.calls == len(sent) == len(received) > 0
    assert merged.traffic.bytes_to_robots == sum(map(len, sent))
    assert merged.traffic.bytes_from_robots == sum(map(len, received))


def test_no_observation_or_action_is_in_what_crosses():
    """Numbers that are nowhere but in the data are looked for, byte by byte."""
    inputs, targets = MLP.example(), numbers(40, 2)
    tapped = [Tapped(robot(MLP, targets, inputs)) for _ in range(2)]
    merge("fleet_merge", fleet_of(tapped), descent=DESCENT)
    everything = b"".join(m for t in tapped for m in t.sent + t.received)
    told = load(tapped[0].received[0])["gradient.0.bias"]
    assert told.numpy()[:1].tobytes() in everything  # numbers that do cross are found like this
    for row in (*inputs.numpy(), *targets.numpy()):
        assert row.astype(np.float32).tobytes() not in everything
        assert all(number.tobytes() not in everything for number in row)


def test_merging_is_given_no_way_to_data():
    """A robot behind a pipe, of which there is nothing but `answer`, does as well."""

    class Pipe:
        __slots__ = ("answer",)

        def __init__(self, inner):
            self.answer = lambda message: bytes(bytearray(inner.answer(message)))

    robots = [robot(MLP, torch.ones(40, 2)) for _ in range(2)]
    ours = merge("fleet_merge", fleet_of(robots), descent=DESCENT)
    theirs = merge("fleet_merge", fleet_of([Pipe(r) for r in robots]), descent=DESCENT)
    for name in ours.state:
        assert torch.equal(ours.state[name], theirs.state[name])


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"observations": torch.ones(4, 3)}, "'observations' of the shape"),
        ({"gradient.actions": torch.ones(4)}, "'gradient.actions'"),
        ({"gradient.0.bias": torch.ones(99).double()}, r"'gradient.0.bias' of the shape \(99,\)"),
        ({"gradient.0.bias": torch.ones(32)}, "in their shapes and dtypes"),
        ({"0.bias": torch.ones(32).double()}, "'0.bias'"),
        ({"loss": torch.ones(2)}, "no loss, or one that is not"),
        ({"loss": torch.tensor(torch.nan).double()}, "not finite"),
        ({"gradient.0.bias": torch.full((32,), torch.inf).double()}, "not finite"),
    ],
)
def test_an_answer_with_anything_else_in_it_is_refused(extra, why):
    class Leaky:
        def answer(self, message):
            return save({"loss": torch.tensor(1.0).double()} | extra)

    with pytest.raises(MessageError, match=why):
        ask(Leaky(), MLP.build().state_dict(), seed=0)


def test_gradients_that_were_not_asked_for_are_refused():
    state = MLP.build().state_dict()
    answer = encode_answer(Answer(0.0, {"0.bias": state["0.bias"]}))
    with pytest.raises(MessageError, match="not asked for"):
        decode_answer(answer, Question(state, 0, gradient=False))


@pytest.mark.parametrize("garbage", [b"", b"pickle", pickle.dumps({"loss": 1.0})])
def test_garbage_is_refused(garbage):
    question = Question(MLP.build().state_dict(), 0, True)
    with pytest.raises(MessageError, match="are no answer"):
        decode_answer(garbage, question)
    with pytest.raises(MessageError, match="are no question"):
        decode_question(garbage)
    with pytest.raises(MessageError, match="lacks its seed"):
        decode_question(save({"model.w": torch.ones(1)}))


@given(
    st.one_of(st.none(), st.integers(0, 2**31 - 1)),
    st.booleans(),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
def test_messages_arrive_as_they_were_sent(seed, gradient, dtype):
    shared = torch.rand(3, 4).to(dtype)
    model = {"w": shared.T, "tied": shared.T, "n": torch.tensor(3), "mask": torch.tensor([True])}
    question = decode_question(encode_question(Question(model, seed, gradient)))
    assert (question.seed, question.gradient) == (seed, gradient)
    assert question.model.keys() == model.keys()
    for name in model:
        assert torch.equal(question.model[name], model[name])
        assert question.model[name].dtype == model[name].dtype
    told = {"w": shared.T} if gradient else {}
    answer = decode_answer(encode_answer(Answer(0.1, told)), question)
    assert answer.loss == 0.1 and answer.gradient.keys() == told.keys()


def test_a_robots_gradient_is_that_of_its_loss():
    local = robot(MLP, torch.ones(40, 2))
    state = MLP.build(3).state_dict()
    answer, traffic = ask(local, state, seed=5)
    assert traffic.calls == 1
    name, step = "2.weight", 1e-6
    direction = torch.randn_like(state[name])
    up, down = (
        ask(local, state | {name: state[name] + sign * step * direction}, 5, gradient=False)[0].loss
        for sign in (1, -1)
    )
    slope = float((answer.gradient[name] * direction).sum())
    assert slope == pytest.approx((up - down) / (2 * step), rel=1e-4)
    assert ask(local, state, 5)[0].loss == answer.loss != ask(local, state, 6)[0].loss
    everything = ask(local, state, None)[0].loss
    assert everything == ask(local, state, None)[0].loss


def test_buffers_and_unused_parameters_have_no_gradients():
    class Policy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.unused = torch.nn.BatchNorm1d(2), torch.nn.Linear(1, 1)

        def forward(self, x):
            return self.norm(x)

    for training in (True, False):
        policy = Policy().train(training)
        before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
        inputs = torch.arange(8.0).reshape(4, 2)
        local = LocalRobot(policy, lambda policy, seed, x=inputs: (policy(x) * x).sum())
        answer, _ = ask(local, before, 0)
        assert set(answer.gradient) == {"norm.weight", "norm.bias"}
        assert all(torch.equal(t, before[name]) for name, t in policy.state_dict().items())


def test_tied_weights_are_differentiated_once():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, False))
    model[1].weight = model[0].weight
    local = LocalRobot(model, lambda policy, seed: policy(torch.ones(1, 3)).sum())
    answer, _ = ask(local, model.state_dict(), 0)
    assert set(answer.gradient) == {"0.weight"}
    (expected,) = torch.autograd.grad(model(torch.ones(1, 3)).sum(), model[0].weight)
    torch.testing.assert_close(answer.gradient["0.weight"], expected)


def test_a_robot_of_another_architecture_says_so():
    local = robot(MLP, torch.ones(40, 2))
    with pytest.raises(MessageError, match=r"another architecture than its own: 0\.bias"):
        ask(local, WIDE["elman"].build().state_dict(), 0)
