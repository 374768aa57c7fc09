"""Data stay with their holders: the messages between merging and data holders, to the byte."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from safetensors.torch import load, save
from support.architectures import numbers
from support.merging_cases import WIDE, make_data_holder

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.merging.queries.data_holder import LocalDataHolder, ask
from fleet_tools.baselines.merging.queries.wire import (
    Answer,
    Query,
    decode_answer,
    decode_query,
    encode_answer,
    encode_query,
)

MLP = WIDE["mlp"]
DESCENT = Descent(steps=3)


class Recorded:
    """A data holder whose messages are recorded."""

    def __init__(self, inner):
        self.inner, self.sent, self.received = inner, [], []

    def answer(self, message):
        assert type(message) is bytes
        self.sent.append(message)
        answer = self.inner.answer(message)
        assert type(answer) is bytes
        self.received.append(answer)
        return answer


def problem_of(data_holders, **fields):
    models = [MLP.build(seed).state_dict() for seed in range(len(data_holders))]
    return MergeProblem(MLP.symmetry, models, data_holders=data_holders, **fields)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fleet_merge", {"descent": DESCENT}),
        ("sinkhorn_rebasin", {"descent": DESCENT}),
        ("fisher", {"samples": 2}),
        ("fed_sgd", {"steps": 2}),
    ],
)
def test_only_models_losses_and_gradients_are_sent_and_every_byte_is_counted(method, options):
    holders = [Recorded(make_data_holder(MLP, numbers(40, 2))) for _ in range(3)]
    problem = problem_of(holders, shared_data_holder=holders[0])
    merged = merge(method, problem, **options)
    sent = [message for each in holders for message in each.sent]
    received = [message for each in holders for message in each.received]
    shapes = {name: tensor.shape for name, tensor in problem.models[0].items()}

    def shapes_without(prefix, tensors):
        return {name.removeprefix(prefix): tensor.shape for name, tensor in tensors.items()}

    for message in received:
        answer = load(message)
        assert answer.pop("loss").shape == ()
        assert shapes_without("gradient.", answer) == shapes
    for message in sent:
        query = load(message)
        assert query.pop("seed").shape == query.pop("wants_gradient").shape == ()
        assert shapes_without("model.", query) == shapes
    assert merged.traffic.calls == len(sent) == len(received) > 0
    assert merged.traffic.bytes_to_robots == sum(map(len, sent))
    assert merged.traffic.bytes_from_robots == sum(map(len, received))


def test_no_observation_or_action_is_sent():
    """Numbers that occur in the data only are searched in all messages, byte by byte."""
    inputs, targets = MLP.example(), numbers(40, 2)
    holders = [Recorded(make_data_holder(MLP, targets, inputs)) for _ in range(2)]
    merge("fleet_merge", problem_of(holders), descent=DESCENT)
    everything = b"".join(m for each in holders for m in each.sent + each.received)
    gradient = load(holders[0].received[0])["gradient.0.bias"]
    assert gradient.numpy()[:1].tobytes() in everything  # numbers that are sent are found
    for row in (*inputs.numpy(), *targets.numpy()):
        assert row.astype(np.float32).tobytes() not in everything
        assert all(number.tobytes() not in everything for number in row)


def test_merging_has_no_access_to_data():
    """A data holder with nothing but the method `answer` gives the same result."""

    class Pipe:
        __slots__ = ("answer",)

        def __init__(self, inner):
            self.answer = lambda message: bytes(bytearray(inner.answer(message)))

    holders = [make_data_holder(MLP, torch.ones(40, 2)) for _ in range(2)]
    direct = merge("fleet_merge", problem_of(holders), descent=DESCENT)
    piped = merge("fleet_merge", problem_of([Pipe(each) for each in holders]), descent=DESCENT)
    for name in direct.state:
        assert torch.equal(direct.state[name], piped.state[name])


@pytest.mark.parametrize(
    ("extra", "message"),
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
def test_an_answer_with_other_content_is_refused(extra, message):
    class Leaky:
        def answer(self, message: bytes) -> bytes:
            return save({"loss": torch.tensor(1.0).double()} | extra)

    with pytest.raises(MessageError, match=message):
        ask(Leaky(), MLP.build().state_dict(), seed=0)


def test_gradients_that_were_not_requested_are_refused():
    state = MLP.build().state_dict()
    answer = encode_answer(Answer(0.0, {"0.bias": state["0.bias"]}))
    with pytest.raises(MessageError, match="not requested"):
        decode_answer(answer, Query(state, 0, gradient=False))


@pytest.mark.parametrize("garbage", [b"", b"pickle", pickle.dumps({"loss": 1.0})])
def test_garbage_is_refused(garbage):
    query = Query(MLP.build().state_dict(), 0, True)
    with pytest.raises(MessageError, match="are no answer"):
        decode_answer(garbage, query)
    with pytest.raises(MessageError, match="are no query"):
        decode_query(garbage)
    with pytest.raises(MessageError, match="no 'seed'"):
        decode_query(save({"model.w": torch.ones(1)}))


@given(
    st.one_of(st.none(), st.integers(0, 2**31 - 1)),
    st.booleans(),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
def test_messages_arrive_as_they_were_sent(seed, gradient, dtype):
    shared = torch.rand(3, 4).to(dtype)
    model = {"w": shared.T, "tied": shared.T, "n": torch.tensor(3), "mask": torch.tensor([True])}
    query = decode_query(encode_query(Query(model, seed, gradient)))
    assert (query.seed, query.gradient) == (seed, gradient)
    assert query.model.keys() == model.keys()
    for name in model:
        assert torch.equal(query.model[name], model[name])
        assert query.model[name].dtype == model[name].dtype
    gradients = {"w": shared.T} if gradient else {}
    answer = decode_answer(encode_answer(Answer(0.1, gradients)), query)
    assert answer.loss == 0.1 and answer.gradient.keys() == gradients.keys()


def test_the_gradient_of_an_answer_is_that_of_the_loss():
    local = make_data_holder(MLP, torch.ones(40, 2))
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
        local = LocalDataHolder(policy, lambda policy, seed, x=inputs: (policy(x) * x).sum())
        answer, _ = ask(local, before, 0)
        assert set(answer.gradient) == {"norm.weight", "norm.bias"}
        assert all(torch.equal(t, before[name]) for name, t in policy.state_dict().items())


def test_tied_weights_are_differentiated_once():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, False))
    model[1].weight = model[0].weight
    local = LocalDataHolder(model, lambda policy, seed: policy(torch.ones(1, 3)).sum())
    answer, _ = ask(local, model.state_dict(), 0)
    assert set(answer.gradient) == {"0.weight"}
    (expected,) = torch.autograd.grad(model(torch.ones(1, 3)).sum(), model[0].weight)
    torch.testing.assert_close(answer.gradient["0.weight"], expected)


def test_a_query_about_another_architecture_is_refused():
    local = make_data_holder(MLP, torch.ones(40, 2))
    with pytest.raises(MessageError, match=r"another architecture .*: 0\.bias"):
        ask(local, WIDE["elman"].build().state_dict(), 0)
