"""Policies of several networks, weighted by the densities of the states that they know."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.policy_cases import BLUEPRINTS, observations, single_network

from fleet_merging.errors import MergeError
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import GateConfig, PolicyConfig
from fleet_tools.baselines.policies.gated import DensityGate, GatedNetwork
from fleet_tools.baselines.policies.part_configs import PointNetConfig

STATEFUL = ["mlp on state", "elman on state", "lstm on state", "transformer on state"]


def gated(name, members=3, seed=0):
    blueprint = BLUEPRINTS[name]
    config = blueprint.config.model_copy(update={"gate": GateConfig(members=members)})
    blueprint = blueprint.model_copy(update={"config": config})
    network = blueprint.create(seed).eval()
    assert isinstance(network, GatedNetwork)
    return blueprint, network


@pytest.mark.parametrize("sharpness", [0.3, 1.0])
def test_weights_are_the_posteriors_of_gaussians(sharpness):
    """By scipy's densities."""
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(0)
    gate = DensityGate(GateConfig(members=3, sharpness=sharpness), 4).double()
    x = generator.normal(size=(5, 4))
    densities = []
    for member in range(3):
        mean, root = generator.normal(size=4), generator.normal(size=(4, 4))
        covariance = root @ root.T + np.eye(4)
        gate.means[member] = torch.from_numpy(mean)
        gate.factors[member] = torch.from_numpy(np.linalg.cholesky(np.linalg.inv(covariance)))
        densities.append(stats.multivariate_normal(mean, covariance).pdf(x))
    expected = np.stack(densities, 1) ** sharpness
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(gate(torch.from_numpy(x)).numpy(), expected, rtol=1e-8)


@pytest.mark.parametrize("name", [name for name in STATEFUL if name in BLUEPRINTS])
def test_equal_members_act_as_one_and_steps_follow_one_another(name):
    blueprint, network = gated(name)
    member = BLUEPRINTS[name].create(5).eval()
    for each in network.members:
        each.load_state_dict(member.state_dict())
    seen = observations(blueprint, 2, 4)
    with torch.no_grad():
        expected, _ = member(seen)
        actual, _ = network(seen)
        torch.testing.assert_close(actual, expected)
        hidden, parts = None, []
        for t in range(4):
            action, hidden = network(
                {key: value[:, t : t + 1] for key, value in seen.items()}, hidden
            )
            parts.append(action)
    torch.testing.assert_close(torch.cat(parts, 1), expected)


def test_far_from_all_but_one_the_gate_chooses_that_member():
    blueprint, network = gated("mlp on state")
    seen = observations(blueprint, 1, 1)
    with torch.no_grad():
        state = single_network(BLUEPRINTS["mlp on state"]).scaled_state(seen)[0, 0]
        assert network.gate is not None
        network.gate.means[:] = state + 100.0
        network.gate.means[1] = state
        chosen = list(network.members.children())[1]
        torch.testing.assert_close(network(seen)[0], chosen(seen)[0])


def test_a_gated_policy_is_stored_and_read_and_not_merged(tmp_path):
    blueprint, network = gated("mlp on state")
    path = tmp_path / "gated.safetensors"
    save_checkpoint(path, Checkpoint(blueprint, network.state_dict()))
    read = load_checkpoint(path)
    assert read.blueprint == blueprint
    assert all(torch.equal(read.weights[key], value) for key, value in network.state_dict().items())
    with pytest.raises(MergeError, match="Merge its members"):
        blueprint.symmetry()


def test_a_policy_with_encoders_has_no_densities():
    with pytest.raises(ValueError, match="without encoders"):
        PolicyConfig(clouds=PointNetConfig(), gate=GateConfig(members=2))


@pytest.mark.parametrize("name", ["elman on state", "mlp on clouds"])
def test_without_densities_a_policy_is_the_mean_of_its_members(name, tmp_path):
    blueprint = BLUEPRINTS[name]
    gate = GateConfig(members=3, sharpness=0)
    config = blueprint.config.model_copy(update={"gate": gate})
    blueprint = blueprint.model_copy(update={"config": config})
    network = blueprint.create(0).eval()
    assert isinstance(network, GatedNetwork)
    seen = observations(blueprint, 2, 4)
    with torch.no_grad():
        actions = torch.stack([member(seen)[0] for member in network.members]).mean(0)
        torch.testing.assert_close(network(seen)[0], actions)
    assert all(key.startswith("members.") for key in network.state_dict())
    path = tmp_path / "mean.safetensors"
    save_checkpoint(path, Checkpoint(blueprint, network.state_dict()))
    assert load_checkpoint(path).blueprint == blueprint
