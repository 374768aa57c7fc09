"""The moving average of weights, and the choice of the best epoch."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from hypothesis import given
from hypothesis import strategies as st
from support.training_cases import cloned, same, small_data, train_options

from fleet_tools.baselines import train as program
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.record import load_progress
from fleet_tools.baselines.training.reports import as_text
from fleet_tools.baselines.training.state import EpochMetrics, best_epoch

CONFIG = TrainingConfig(epochs=4, batch_size=8, ema_decay=0.8)


@pytest.fixture(scope="module", name="samples")
def _samples(tmp_path_factory):
    return small_data(tmp_path_factory.mktemp("small") / "data")


def test_the_average_is_the_recursion_over_the_weights_after_each_batch(samples):
    blueprint, trajectories, state = cloned(samples)
    visited = []

    def keep(snapshot):
        visited.append(snapshot().weights)
        return True

    after = train(blueprint, trajectories, CONFIG, state, after_batch=keep)
    expected = {name: each.double() for name, each in state.weights.items()}
    for n, weights in enumerate(visited):
        decay = min(0.8, (1 + n) / (10 + n))
        expected = {
            name: decay * each + (1 - decay) * weights[name] for name, each in expected.items()
        }
    assert after.average.keys() == expected.keys()
    for name, each in expected.items():
        torch.testing.assert_close(after.average[name].double(), each, rtol=1e-5, atol=1e-6)
    assert not same(after.policy_weights, after.weights)


def test_averaging_changes_no_bit_of_the_weights_themselves(samples):
    blueprint, trajectories, state = cloned(samples)
    without = train(blueprint, trajectories, CONFIG.model_copy(update={"ema_decay": 0.0}), state)
    averaged = train(blueprint, trajectories, CONFIG, state)
    assert same(averaged.weights, without.weights)
    assert not without.average
    assert same(without.policy_weights, without.weights)


def test_the_stored_policy_is_the_average_and_a_resumed_run_goes_on_with_it(samples, tmp_path):
    data = samples.episodes[0].folder
    whole, part = tmp_path / "whole", tmp_path / "part"
    options = ["--ema-decay", "0.9", "--quiet", "--epochs"]
    assert program.main(train_options(data, whole, *options, "4")) == 0
    state = load_progress(whole).state
    stored = load_checkpoint(whole / "last.safetensors").weights
    assert same(stored, state.policy_weights)
    assert not same(stored, state.weights)
    assert program.main(train_options(data, part, *options, "4")) == 0  # the same bits again
    assert same(load_progress(part).state.average, state.average)
    assert program.main(train_options(data, whole, "--epochs", "4", "--quiet")) == 2  # another run


def metrics(epoch: int, loss: float | None, successes: int | None) -> EpochMetrics:
    """Returns metrics of an epoch with 10 rollouts in each of two tasks, or none."""
    rollouts = None
    if successes is not None:
        rollouts = {
            task: {"episodes": 10, "successes": count, "outcomes": {}, "solved": []}
            for task, count in (("hammer", successes), ("knife", 10 - successes // 2))
        }
    return EpochMetrics.model_validate(
        {
            "epoch": epoch,
            "loss": 1.0,
            "validation_loss": loss,
            "learning_rate": 1e-3,
            "rollouts": rollouts,
            "seconds": 0.0,
        }
    )


RUNS = st.lists(
    st.tuples(st.none() | st.floats(0, 9), st.none() | st.integers(0, 10)), max_size=8
).map(lambda pairs: [metrics(k + 1, *pair) for k, pair in enumerate(pairs)])


def successes(each: EpochMetrics) -> int:
    return sum(task["successes"] for task in (each.rollouts or {}).values())


@given(run=RUNS)
def test_the_best_epoch_is_the_first_with_the_lowest_loss_or_the_most_successes(run):
    by_loss = best_epoch(run, "loss")
    losses = [each.validation_loss for each in run if each.validation_loss is not None]
    assert (by_loss is None) == (not losses)
    if by_loss is not None:
        assert by_loss.validation_loss == min(losses)
        assert by_loss.epoch == min(e.epoch for e in run if e.validation_loss == min(losses))
    by_rollouts = best_epoch(run, "rollouts")
    measured = [each for each in run if each.rollouts is not None]
    assert (by_rollouts is None) == (not measured)
    if by_rollouts is not None:
        most = max(map(successes, measured))
        assert successes(by_rollouts) == most
        rivals = [each.validation_loss for each in measured if successes(each) == most]
        known = [loss for loss in rivals if loss is not None]
        assert not known or by_rollouts.validation_loss == min(known)


def test_the_best_rollouts_are_told_without_a_validation_loss():
    summary = {
        "output": "run",
        "epochs": 2,
        "samples": 30,
        "loss": 0.1,
        "validation_loss": None,
        "choose_by": "rollouts",
        "best_epoch": 1,
        "best_validation_loss": None,
        "rollouts": None,
        "best_rollouts": metrics(1, None, 4).rollouts,
        "samples_per_second": None,
    }
    assert "most successful rollouts 4/10 8/10, after epoch 1" in as_text(summary)
