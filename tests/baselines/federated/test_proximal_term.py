"""FedProx: robots that are held near the weights with which they begin a round."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.fleet_cases import local, plan_of
from support.training_cases import cloned, same, small_data

from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.references import reference
from fleet_tools.baselines.federated.run import run
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.loop import imitation_losses, train
from fleet_tools.baselines.training.state import TrainingState

WHOLE = TrainingConfig(epochs=1, batch_size=10_000, seed=1, schedule="constant")
"""One step of an epoch."""


@pytest.fixture(scope="module", name="learned")
def _learned(tmp_path_factory):
    return cloned(small_data(tmp_path_factory.mktemp("small") / "data"), "mlp")


def distance(state: TrainingState, other: TrainingState) -> float:
    pairs = [(weights, other.weights[name]) for name, weights in state.weights.items()]
    return sum(float((one - two).square().sum()) for one, two in pairs) ** 0.5


def test_no_proximal_term_is_none(learned):
    blueprint, trajectories, first = learned
    plain = train(blueprint, trajectories, WHOLE, first, epochs=3)
    none = train(blueprint, trajectories, WHOLE, first, epochs=3, proximal=0.0)
    assert same(plain.weights, none.weights)


def test_the_first_step_is_that_without_it(learned):
    blueprint, trajectories, first = learned  # there, its gradient is zero
    plain = train(blueprint, trajectories, WHOLE, first, epochs=1)
    held = train(blueprint, trajectories, WHOLE, first, epochs=1, proximal=7.0)
    assert same(plain.weights, held.weights)


def test_the_steps_are_those_of_the_loss_with_the_proximal_term(learned):
    """Two steps of Adam by hand, on the loss whose gradient autograd takes."""
    blueprint, trajectories, first = learned
    config, mu = WHOLE.model_copy(update={"gradient_norm": 1e9}), 0.5
    network = blueprint.create()
    network.load_state_dict(first.weights)
    anchors = [each.detach().clone() for each in network.parameters()]
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    batch = trajectories.batch(trajectories.order(config.batch_size, None)[0])
    for _ in range(3):
        errors = imitation_losses(network, batch, blueprint.config.head, None)  # type: ignore[arg-type]
        pairs = zip(network.parameters(), anchors, strict=True)
        apart = sum(((each - anchor).square().sum() for each, anchor in pairs), torch.zeros(()))
        optimizer.zero_grad()
        (errors.sum() / int(batch.mask.sum()) + mu / 2 * apart).backward()
        optimizer.step()
    found = train(blueprint, trajectories, config, first, epochs=3, proximal=mu)
    for name, expected in network.state_dict().items():
        torch.testing.assert_close(found.weights[name], expected, rtol=1e-4, atol=1e-6)


def test_the_larger_it_is_the_nearer_robots_stay(learned):
    blueprint, trajectories, first = learned
    distances = [
        distance(first, train(blueprint, trajectories, WHOLE, first, epochs=20, proximal=mu))
        for mu in (0.0, 1.0, 100.0)
    ]
    assert distances[0] > distances[1] > distances[2] > 0


def test_fleets_hold_their_robots(data: Path, tmp_path: Path):
    found = []
    for number, keys in enumerate(({}, {"proximal": 100.0})):
        plan = plan_of(data, initialization="common", **keys)
        assert all(each.proximal == plan.config.proximal for each in plan.assignments)
        assert reference(plan.config, "joint").proximal == 0
        with FleetWriter(tmp_path / str(number), plan) as writer:
            found.append(run(writer, local(plan)).weights)
    assert any(not torch.equal(each, found[1][name]) for name, each in found[0].items())
