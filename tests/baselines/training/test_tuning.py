"""Fine-tuning of a part of a policy changes this part alone, and goes on as in one call."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from hypothesis import given
from hypothesis import strategies as st
from support.policy_cases import BODIES
from support.training_cases import cloned, same, small_data

from fleet_tools.baselines.training.config import TrainingConfig, TuningConfig
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.baselines.training.tuning import begun, merged, tuned_network

SHORT = TrainingConfig(epochs=3, batch_size=8, learning_rate=1e-2, ema_decay=0.9)
ADAPTERS, HEAD = TuningConfig(tuned="adapters", rank=2), TuningConfig(tuned="head")
PARTS = pytest.mark.parametrize("tuning", [ADAPTERS, HEAD], ids=["adapters", "head"])
EVERY_BODY = pytest.mark.parametrize("body", BODIES)


@pytest.fixture(scope="module", name="samples")
def _samples(tmp_path_factory: pytest.TempPathFactory):
    return small_data(tmp_path_factory.mktemp("tuning") / "data")


@EVERY_BODY
@PARTS
def test_a_policy_that_begins_to_be_tuned_acts_as_before(tuning, body, samples):
    blueprint, _, state = cloned(samples, body)
    first = begun(blueprint, tuning, state.weights, 0, seed=4)
    assert same(dict(merged(first.weights)), dict(state.weights))
    network = tuned_network(blueprint.create(), tuning)
    network.load_state_dict(dict(first.weights))
    own = blueprint.create()
    own.load_state_dict(dict(state.weights))
    arguments = blueprint.arguments()
    torch.testing.assert_close(network(*arguments)[0], own(*arguments)[0])


@EVERY_BODY
def test_adapters_change_each_matrix_by_their_rank_and_nothing_else(body, samples):
    blueprint, data, state = cloned(samples, body)
    first = begun(blueprint, ADAPTERS, state.weights, 0, seed=4)
    after = train(blueprint, data, SHORT, first, tuning=ADAPTERS)
    found = merged(after.policy_weights)
    assert list(found) == list(state.weights)
    learned = {name for name, _ in blueprint.create().named_parameters()}
    for name, each in state.weights.items():
        change = (found[name] - each).double()
        if name not in learned or each.dim() < 2:
            assert not change.any(), name
            continue
        sizes = torch.linalg.svdvals(change.flatten(1))
        assert sizes[0] > 1e-4 and (sizes[ADAPTERS.rank :] < 1e-5 * sizes[0]).all(), name
    # What was trained is what acts: a network with factors, and one with their products.
    network, own = tuned_network(blueprint.create(), ADAPTERS), blueprint.create()
    network.load_state_dict(dict(after.policy_weights))
    own.load_state_dict(dict(found))
    arguments = blueprint.arguments()
    torch.testing.assert_close(network(*arguments)[0], own(*arguments)[0])


@EVERY_BODY
def test_tuning_of_the_head_leaves_what_it_reads(body, samples):
    blueprint, data, state = cloned(samples, body)
    first = begun(blueprint, HEAD, state.weights, 0, seed=4)
    found = merged(train(blueprint, data, SHORT, first, tuning=HEAD).policy_weights)
    differing = {name for name, each in state.weights.items() if not torch.equal(found[name], each)}
    assert differing == {name for name in state.weights if name.startswith("head.")}


@PARTS
def test_tuning_goes_on_as_in_one_call(tuning, samples):
    blueprint, data, state = cloned(samples)
    first = begun(blueprint, tuning, state.weights, 0, seed=4)
    whole = train(blueprint, data, SHORT, first, tuning=tuning)
    part = train(blueprint, data, SHORT, first, epochs=1, tuning=tuning)
    assert same(dict(train(blueprint, data, SHORT, part, tuning=tuning).weights), whole.weights)
    assert same(dict(train(blueprint, data, SHORT, part, tuning=tuning).average), whole.average)


def test_tuning_of_all_weights_is_training(samples):
    blueprint, data, state = cloned(samples)
    tuning = TuningConfig()
    one = train(
        blueprint, data, SHORT, begun(blueprint, tuning, state.weights, 0, 4), tuning=tuning
    )
    other = train(blueprint, data, SHORT, TrainingState.initial(state.weights))
    assert same(one.weights, other.weights)


@given(seed=st.integers(0, 2**32), rank=st.integers(1, 3))
def test_adapters_are_drawn_from_the_seed(tmp_path_factory, seed, rank):
    samples = small_data(tmp_path_factory.mktemp("drawn") / "data")
    blueprint, _, state = cloned(samples)
    tuning = TuningConfig(tuned="adapters", rank=rank)
    one, other, third = (
        begun(blueprint, tuning, state.weights, 0, each).weights for each in (seed, seed, seed + 1)
    )
    assert same(one, other) and not same(one, third)
