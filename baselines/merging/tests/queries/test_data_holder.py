"""Data stay with their holders: the messages between merging and data holders, to the byte."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from merging_support.architectures import numbers
from merging_support.problems import WIDE, make_data_holder, maps_of
from safetensors.torch import load, save

from fleet_merging.errors import MessageError
from fleet_merging.matching.soft_descent import Descent
from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.queries.query import LossAnswer, LossQuery, MomentQuery
from fleet_merging.queries.traffic import AT_ONCE, DataHolderError, TrafficMeter
from fleet_merging.queries.wire import QUERY_CODECS, Codec, decode, encode, size

MLP = WIDE["mlp"]
DESCENT = Descent(steps=3)


class Remote:
    """A data holder behind a border: it sees bytes alone, which are recorded."""

    __slots__ = ("_answer", "received", "sent")

    def __init__(self, inner):
        self._answer = lambda message: encode(inner.answer(decode(message)))
        self.sent, self.received = [], []

    def answer(self, query):
        self.sent.append(encode(query))
        self.received.append(self._answer(self.sent[-1]))
        return decode(self.received[-1])


def ask(holder, model, seed, gradient=True):
    return TrafficMeter().ask(holder, model, seed, gradient)


def problem_of(data_holders, **fields):
    models = [MLP.build(seed).state_dict() for seed in range(len(data_holders))]
    return MergeProblem(MLP.symmetry, models, data_holders=data_holders, **fields)


METHODS = [
    ("fleet_merge", {"descent": DESCENT}),
    ("fleet_merge_soft", {"descent": DESCENT}),
    ("sinkhorn_data", {"descent": DESCENT}),
    ("fisher", {"samples": 2}),
    ("fed_sgd", {"steps": 2}),
    ("regmean", {}),
    ("least_squares", {}),
]


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_only_models_losses_and_gradients_are_sent_and_every_byte_is_counted(method, options):
    """In process, the same bits come out and the same sizes are counted, without a message."""
    local = [make_data_holder(MLP, numbers(40, 2)) for _ in range(3)]
    holders = [Remote(each) for each in local]
    problem = problem_of(holders, shared_data_holder=holders[0], affine_maps=maps_of(MLP))
    merged = merge(method, problem, **options)
    sent = [message for each in holders for message in each.sent]
    received = [message for each in holders for message in each.received]
    shapes = {name: tensor.shape for name, tensor in problem.models[0].items()}

    def shapes_without(prefix, tensors):
        return {name.removeprefix(prefix): tensor.shape for name, tensor in tensors.items()}

    for message in received:
        answer = load(message)
        if "loss" in answer:
            assert answer.pop("loss").shape == ()
            assert shapes_without("gradient.", answer) == shapes
        else:
            assert {name.partition(".")[0] for name in answer} <= {"inputs", "targets"}
    for message in sent:
        query = load(message)
        if "seed" in query:
            assert query.pop("seed").shape == query.pop("wants_gradient").shape == ()
            assert shapes_without("model.", query) == shapes
    assert merged.traffic.calls == len(sent) == len(received) > 0
    assert merged.traffic.downloaded_bytes == sum(map(len, sent))
    assert merged.traffic.uploaded_bytes == sum(map(len, received))
    direct = merge(
        method,
        problem_of(local, shared_data_holder=local[0], affine_maps=maps_of(MLP)),
        **options,
    )
    assert direct.traffic == merged.traffic
    assert all(torch.equal(direct.state[name], each) for name, each in merged.state.items())


def test_no_observation_or_action_is_sent():
    """Numbers that occur in the data only are searched in all messages, byte by byte."""
    inputs, targets = MLP.example(), numbers(40, 2)
    holders = [Remote(make_data_holder(MLP, targets, inputs)) for _ in range(2)]
    merge("fleet_merge", problem_of(holders), descent=DESCENT)
    everything = b"".join(m for each in holders for m in each.sent + each.received)
    gradient = load(holders[0].received[0])["gradient.0.bias"]
    assert gradient.numpy()[:1].tobytes() in everything  # numbers that are sent are found
    for row in (*inputs.numpy(), *targets.numpy()):
        assert row.astype(np.float32).tobytes() not in everything
        assert all(number.tobytes() not in everything for number in row)


def test_a_data_holder_in_process_changes_no_model_and_keeps_none():
    """Even one in training mode, whose BatchNorm writes to its buffers."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).train()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before = {name: tensor.clone() for name, tensor in state.items()}
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    local = LocalDataHolder(model, lambda policy, seed: policy(x).square().sum() + seed)
    answer = ask(local, state, 0)
    for name, tensor in state.items():
        assert torch.equal(tensor, before[name]) and not tensor.requires_grad
        if name in answer.gradient:
            assert answer.gradient[name].data_ptr() != tensor.data_ptr()
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


GOOD = {"loss": torch.tensor(1.0).double()}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"observations": torch.ones(4, 3)}, "unexpected tensors: 'observations'"),
        ({"gradient.actions": torch.ones(4)}, "gradient 'actions'"),
        ({"gradient.0.bias": torch.ones(99).double()}, r"'0.bias' of the shape \(99,\)"),
        ({"gradient.0.bias": torch.ones(32)}, "in their shapes and dtypes"),
        ({"0.bias": torch.ones(32).double()}, "'0.bias'"),
        ({"loss": torch.ones(2)}, "no 'loss', or one that is not"),
        ({"loss": torch.tensor(torch.nan).double()}, "not finite"),
        ({"gradient.0.bias": torch.full((32,), torch.inf).double()}, "not finite"),
    ],
)
def test_an_answer_with_other_content_is_refused(extra, message):
    class Leaky:
        def answer(self, query):
            return decode(save(GOOD | extra, {"kind": "loss"}))

    with pytest.raises(MessageError, match=message):
        ask(Leaky(), MLP.build().state_dict(), seed=0)


@pytest.mark.parametrize("answer", [None, 1.0, {"0": None}, LossQuery({}, 0), b"loss"])
def test_an_answer_of_another_kind_names_its_holder(answer):
    class Confused:
        def answer(self, query):
            return answer

    holder, state = Confused(), MLP.build().state_dict()
    with pytest.raises(DataHolderError) as raised:
        ask(holder, state, 0)
    assert raised.value.holder is holder
    with pytest.raises(DataHolderError):
        next(TrafficMeter().ask_all_moments([holder], [MomentQuery(state, ("0",))], maps_of(MLP)))


def test_gradients_that_were_not_requested_are_refused():
    state = MLP.build().state_dict()

    class Eager:
        def answer(self, query):
            return LossAnswer(0.0, {"0.bias": state["0.bias"]})

    with pytest.raises(MessageError, match="not requested"):
        ask(Eager(), state, 0, gradient=False)


@pytest.mark.parametrize("query", [b"", None, LossAnswer(0.0, {})])
def test_a_data_holder_answers_queries_alone(query):
    with pytest.raises(MessageError, match="expected a LossQuery, a MomentQuery"):
        make_data_holder(MLP, torch.ones(40, 2)).answer(query)


class Group:
    """Answers for all its holders, the last one first, as answers of robots may come."""

    def __init__(self):
        self.asked = []

    def answer_all(self, queries):
        meter = TrafficMeter()
        self.asked.append(len(queries))
        answers = [
            meter.ask(holder.inner, query.model, query.seed, query.gradient)
            for holder, query in reversed(queries)
        ]
        return answers[::-1], meter.traffic


def test_moments_without_labels_are_of_the_unlabelled_data():
    targets = numbers(40, 2)
    many = make_data_holder(MLP, targets)
    few = make_data_holder(MLP, targets[:20], MLP.example()[:20])
    both = replace(many, unlabelled=few.batches)
    model, last = MLP.build(0).state_dict(), maps_of(MLP)[-1].name
    cases: list[tuple[Any, Any]] = [("none", few), ("labels", many)]
    for target, expected in cases:
        query = MomentQuery(model, (last,), target)
        answers: list[Any] = [each.answer(query) for each in (both, expected)]
        one, other = (each[last] for each in answers)
        assert torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)


class Member:
    def __init__(self, inner, group):
        self.inner, self.group = inner, group


def test_holders_of_a_group_are_asked_at_once_with_the_same_answers():
    group, local = Group(), [make_data_holder(MLP, numbers(40, 2)) for _ in range(3)]
    queries = [LossQuery(MLP.build(seed).state_dict(), seed) for seed in range(3)]
    together, apart = TrafficMeter(), TrafficMeter()
    members: Any = [Member(each, group) for each in local]
    answers = list(together.ask_losses(members, queries))
    for query, holder, answer in zip(queries, local, answers, strict=True):
        alone = apart.ask(holder, query.model, query.seed)
        assert alone.loss == answer.loss
        assert all(torch.equal(each, answer.gradient[n]) for n, each in alone.gradient.items())
    assert group.asked == [3] and together.traffic == apart.traffic
    many = list(together.ask_losses(members * 7, queries * 7))
    assert [each.loss for each in many] == [each.loss for each in answers] * 7
    assert group.asked == [3, AT_ONCE, 21 - AT_ONCE]  # so many answers are in memory


@pytest.mark.parametrize(
    ("method", "options", "sizes"),
    [
        ("fleet_merge", {"epochs": 2, "descent": DESCENT}, [4] * 6),
        ("fleet_merge", {"epochs": 2, "descent": DESCENT, "participants": 2}, [2] * 6),
        ("fleet_merge_monotone", {"epochs": 1, "descent": DESCENT}, [4] * 8),
        ("fleet_merge_average", {"epochs": 1, "descent": DESCENT}, [1] * 12),
        ("fisher", {"samples": 3}, [4] * 3),
        ("fed_sgd", {"steps": 3, "participants": 3}, [3] * 3),
    ],
)
def test_all_holders_of_a_step_are_asked_at_once(method, options, sizes):
    """Models that move by the others' present permutations move in turn."""
    models = [MLP.build(seed).state_dict() for seed in range(4)]
    group, local = Group(), [make_data_holder(MLP, (1 + i) * numbers(40, 2)) for i in range(4)]
    members: Any = [Member(each, group) for each in local]
    together, apart = (
        merge(method, MergeProblem(MLP.symmetry, models, data_holders=holders), **options)
        for holders in (members, local)
    )
    assert all(torch.equal(each, apart.state[name]) for name, each in together.state.items())
    assert together.traffic == apart.traffic
    assert group.asked == sizes


@pytest.mark.parametrize("garbage", [b"", b"pickle", pickle.dumps({"loss": 1.0})])
def test_garbage_is_refused(garbage):
    with pytest.raises(MessageError, match="are not a message"):
        decode(garbage)
    with pytest.raises(MessageError, match="no 'seed'"):
        decode(save({"model.w": torch.ones(1)}, {"kind": "loss query"}))


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"kind": "weights"}])
def test_a_message_says_its_kind_and_no_name_of_a_tensor_does(metadata):
    query = {
        "model.w": torch.ones(1),
        "seed": torch.tensor(1),
        "wants_gradient": torch.tensor(True),
    }
    assert isinstance(decode(save(query, {"kind": "loss query"})), LossQuery)
    with pytest.raises(MessageError, match=r"not a message: 'kind'|__metadata__|kind 'weights'"):
        decode(save(query, metadata))
    with pytest.raises(MessageError, match=r"unexpected tensors|not a query for moments"):
        decode(save(query, {"kind": "moment query"}))


WORDS = "float16 bfloat16 float32 float64 int64 int16 bool uint8 int32 complex64"
DTYPES = [getattr(torch, name) for name in WORDS.split()]


@given(
    st.one_of(st.none(), st.integers(0, 2**31 - 1)),
    st.booleans(),
    st.sampled_from(DTYPES),
    st.dictionaries(st.text(max_size=5), st.sampled_from(DTYPES), max_size=5),
)
def test_messages_arrive_as_they_were_sent_with_the_size_that_was_counted(
    seed, gradient, dtype, others
):
    shared = torch.rand(3, 4).to(dtype)
    model = {"w": shared.T, "tied": shared.T, "n": torch.tensor(3), "mask": torch.tensor([True])}
    model |= {name: torch.ones(index, 2, dtype=d) for index, (name, d) in enumerate(others.items())}
    message = encode(sent := LossQuery(model, seed, gradient))
    query = decode(message)
    assert size(sent) == len(message)
    assert (query.seed, query.gradient) == (seed, gradient)
    assert query.model.keys() == model.keys()
    for name in model:
        assert torch.equal(query.model[name], model[name])
        assert query.model[name].dtype == model[name].dtype
    gradients = {"w": shared.T} if gradient else {}
    message = encode(LossAnswer(0.1, gradients))
    answer = decode(message)
    assert size(answer) == len(message)
    assert answer.loss == 0.1 and answer.gradient.keys() == gradients.keys()


def test_kinds_and_types_are_each_of_one_codec():
    for values in ([each.kind for each in QUERY_CODECS], [each.type for each in QUERY_CODECS]):
        assert len(set(values)) == len(QUERY_CODECS)
    other = Codec("other", str, lambda text: {}, lambda tensors: "")
    with pytest.raises(MessageError, match="kind 'other'; known are loss query, loss, moment"):
        decode(encode("", (other,)))
