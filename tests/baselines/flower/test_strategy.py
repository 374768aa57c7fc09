"""Flower's FedAvg with merges: laws of the merge, and what is refused."""

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("flwr", reason="runs in an environment with Flower, see test_network")

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict  # pyright: ignore[reportMissingImports]
from flwr.app.error import Error  # pyright: ignore[reportMissingImports]
from flwr.serverapp.strategy import FedAvg, Strategy  # pyright: ignore[reportMissingImports]
from support.flower_grid import GridHere

from fleet_merging.errors import MergeError, UncoveredParameterError
from fleet_merging.methods import registry
from fleet_merging.symmetry.layers import mlp
from fleet_merging.symmetry.table import State, Symmetry
from fleet_tools.baselines.flower.strategy import ASK_NOTHING, MergeStrategy
from fleet_tools.errors import UnknownNameError

SYMMETRY = Symmetry.of(mlp(("0", "2"), ("_in", "hidden", "_out")))


GRID = GridHere({11: {}, 12: {}, 13: {}})


def network(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    return torch.nn.Sequential(*layers).state_dict()


def reply(node: int, weights: State, count: int = 1) -> Message:
    asked = Message(RecordDict(), node, "train")
    asked.metadata.__dict__["_message_id"] = f"{node}"
    metrics = MetricRecord({"num-examples": count, "loss": float(node)})
    return Message(
        RecordDict({"arrays": ArrayRecord(dict(weights)), "metrics": metrics}), reply_to=asked
    )


def merged(strategy: Strategy, replies: list[Message], base: State | None = None) -> dict[str, Any]:
    arrays = ArrayRecord(dict(base or network(99)))
    strategy.configure_train(1, arrays, ConfigRecord(), GRID)
    arrays, metrics = strategy.aggregate_train(1, replies)
    assert arrays is not None and metrics is not None
    return arrays.to_torch_state_dict()


REPLIES = [(11, 0, 5), (12, 1, 2), (13, 2, 3), (14, 3, 4), (15, 4, 6)]
"""Node, seed of its network, number of samples."""


def replies_of(order: list[int]) -> list[Message]:
    return [reply(node, network(seed), count) for node, seed, count in (REPLIES[k] for k in order)]


def test_the_naive_average_is_flowers_own() -> None:
    ours = merged(MergeStrategy("naive_average", SYMMETRY), replies_of([0, 1, 2]))
    theirs = merged(FedAvg(), replies_of([0, 1, 2]))
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name].to(ours[name].dtype))


@pytest.mark.parametrize("method", ASK_NOTHING)
def test_who_answers_first_does_not_matter(method: str) -> None:
    one = merged(MergeStrategy(method, SYMMETRY, seed=3), replies_of([0, 1, 2, 3, 4]))
    other = merged(MergeStrategy(method, SYMMETRY, seed=3), replies_of([2, 4, 0, 3, 1]))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_network_and_its_permuted_copy_merge_into_itself() -> None:
    weights = network(0)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1)).numpy()
    permuted = SYMMETRY.apply({"hidden": order}, weights)
    found = merged(
        MergeStrategy("git_rebasin", SYMMETRY), [reply(11, weights), reply(12, permuted)]
    )
    x = torch.randn(7, 4)

    def outputs(state: State) -> torch.Tensor:
        hidden = torch.tanh(x @ state["0.weight"].T + state["0.bias"])
        return hidden @ state["2.weight"].T + state["2.bias"]

    torch.testing.assert_close(outputs(found), outputs(weights))


def test_methods_on_task_vectors_have_the_weights_that_were_sent() -> None:
    base = network(7)
    found = merged(MergeStrategy("ties", SYMMETRY), [reply(11, base), reply(12, base)], base)
    assert all(torch.equal(found[name], base[name]) for name in base)


def test_replies_that_are_no_weights_of_the_network_are_left_out() -> None:
    broken = {name: tensor.clone() for name, tensor in network(1).items()}
    broken["0.bias"][2] = float("nan")
    other = {**network(2), "0.bias": torch.zeros(7)}
    failed = Message(Error(8, "gone"), reply_to=reply(15, {}))
    found = merged(
        MergeStrategy("git_rebasin", SYMMETRY),
        [reply(11, network(0)), reply(12, broken), reply(13, other), failed],
    )
    assert all(torch.equal(found[name], tensor) for name, tensor in network(0).items())
    strategy = MergeStrategy("git_rebasin", SYMMETRY)
    arrays = ArrayRecord(dict(network(0)))
    strategy.configure_train(1, arrays, ConfigRecord(), GRID)
    assert strategy.aggregate_train(1, [reply(12, broken)]) == (None, None)


@pytest.mark.parametrize("method", registry.METHODS)
def test_exactly_the_methods_that_ask_nothing_are_taken(method: str) -> None:
    if method in ASK_NOTHING:
        MergeStrategy(method, SYMMETRY)
        return
    with pytest.raises(MergeError, match="work on weights alone: naive_average"):
        MergeStrategy(method, SYMMETRY)


def test_bad_arguments_are_refused_before_a_message_is_sent() -> None:
    with pytest.raises(UnknownNameError, match="git_rebasin"):
        MergeStrategy("git_rebasing", SYMMETRY)
    with pytest.raises(MergeError, match="density"):
        MergeStrategy("ties", SYMMETRY, method_options={"density": 3.0})
    with pytest.raises(MergeError, match="colour"):
        MergeStrategy("ties", SYMMETRY, method_options={"colour": 3.0})
    with pytest.raises(UncoveredParameterError):
        merged(MergeStrategy("git_rebasin", SYMMETRY), [], {"other": torch.zeros(2)})
