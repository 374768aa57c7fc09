"""Training: its loss, its bits, memorized episodes, and averages of weights."""

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.training_cases import BODIES, cloned, same, small_data, train_options

from fleet_tools.baselines import train as program
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Batch, Trajectories, split
from fleet_tools.baselines.training.loop import draws, imitation_losses, train, validate
from fleet_tools.baselines.training.record import load_progress
from fleet_tools.baselines.training.reports import as_text
from fleet_tools.baselines.training.state import (
    DivergedError,
    EpochMetrics,
    TrainingState,
    best_epoch,
)
from fleet_tools.dataset.attempts import scene_seed
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError, DatasetError
from fleet_tools.rollouts.episode import NOISE_STEPS
from fleet_tools.sim.splits import EVALUATION, VALIDATION

EVERY = pytest.mark.parametrize("body", BODIES)
SHORT = TrainingConfig(epochs=3, batch_size=8, seed=1)


@pytest.fixture(scope="module", name="samples")
def _samples(tmp_path_factory):
    return small_data(tmp_path_factory.mktemp("small") / "data")


def errors_of(policy: NetworkPolicy, samples: Samples, episode: int) -> np.ndarray:
    """Returns the mean squared errors of a policy's actions on stored observations, (T,)."""
    stored = samples.episodes[episode]
    rows = {name: stored.rows(f"observations/{name}") for name in samples.observation}
    actions = stored.rows("actions")
    policy.reset()
    errors = []
    for t in range(len(actions)):
        action = policy.act({name: rows[name][t] for name in rows})
        assert np.abs(action).max() < 1  # or it would have been clipped
        errors.append(np.square(action.astype(float) - actions[t]).mean())
    return np.array(errors)


@EVERY
def test_the_loss_is_the_error_of_the_executed_policy(body, samples):
    blueprint, trajectories, state = cloned(samples, body)
    policy = NetworkPolicy(Checkpoint(blueprint, state.weights))
    expected = [errors_of(policy, samples, k) for k in range(len(samples.episodes))]
    loss = validate(blueprint, trajectories, SHORT, state.weights)
    assert loss == pytest.approx(np.concatenate(expected).mean(), rel=1e-5)
    network = blueprint.create()
    network.load_state_dict(state.weights)
    with torch.no_grad():
        for items in trajectories.order(6, np.random.default_rng(0)):
            batch, head = trajectories.batch(items), blueprint.config.head
            errors = imitation_losses(network, batch, head, draws(0, 0, 0)).double().numpy()
            full = [each for each in expected if len(each)]
            steps = full if trajectories.with_memory else np.concatenate(full)[:, None]
            for row, item in zip(errors, items, strict=True):
                padded = np.zeros(len(row))
                padded[: len(steps[item])] = steps[item]
                np.testing.assert_allclose(row, padded, rtol=1e-4, atol=1e-6)


@EVERY
def test_padding_affects_neither_the_loss_nor_its_gradient(body, samples):
    blueprint, trajectories, _ = cloned(samples, body)
    if not trajectories.with_memory:
        assert trajectories.batch(np.arange(9)).mask.all()
        return
    batch = trajectories.batch(np.arange(len(trajectories.lengths)))
    assert not batch.mask.all()

    def other(rows: torch.Tensor) -> torch.Tensor:
        mask = batch.mask.reshape(batch.mask.shape + (1,) * (rows.dim() - 2))
        return torch.where(mask, rows, 100 * torch.randn_like(rows))

    changed = Batch(
        {name: other(rows) for name, rows in batch.observations.items()},
        other(batch.actions),
        batch.imitated,
    )
    gradients = []
    for each in (batch, changed):
        network = blueprint.create(seed=5)
        errors = imitation_losses(network, each, blueprint.config.head, draws(0, 0, 0))
        assert not errors[~each.mask].any()
        errors.sum().backward()
        gradients.append({name: p.grad for name, p in network.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-4, atol=1e-5)


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=30),
    size=st.integers(1, 40),
    with_memory=st.booleans(),
    seed=st.none() | st.integers(0, 9),
)
def test_an_epoch_has_every_step_once_in_batches_of_about_the_size(
    lengths, size, with_memory, seed
):
    trajectories = object.__new__(Trajectories)
    trajectories.lengths, trajectories.with_memory = np.array(lengths), with_memory
    trajectories.imitated = np.ones(sum(lengths), bool)
    order = trajectories.order(size, None if seed is None else np.random.default_rng(seed))
    items = np.concatenate(order)
    assert sorted(items) == list(range(len(lengths) if with_memory else sum(lengths)))
    assert seed is not None or (np.diff(items) == 1).all()
    steps = [sum(lengths[i] for i in items) if with_memory else len(items) for items in order]
    assert all(0 < each <= size + (max(lengths) if with_memory else 0) for each in steps)


@EVERY
def test_training_is_the_same_in_one_call_and_in_several(body, samples):
    blueprint, trajectories, begin = cloned(samples, body)
    config = SHORT.model_copy(update={"ema_decay": 0.8})
    at_once = train(blueprint, trajectories, config, begin)
    assert (at_once.epoch, at_once.batch) == (3, 0)
    assert not same(at_once.weights, begin.weights)
    assert train(blueprint, trajectories, config, at_once).epoch == 3  # nothing is left to do
    state = begin
    while state.epoch < 3:  # stopped after each batch
        state = train(blueprint, trajectories, config, state, after_batch=lambda _: False)
    by_epoch = begin
    for _ in range(3):
        by_epoch = train(blueprint, trajectories, config, by_epoch, epochs=1)
    for other in (state, by_epoch):
        assert same(at_once.weights, other.weights) and same(at_once.moments, other.moments)
        assert same(at_once.average, other.average) and at_once.loss == other.loss
    other_seed = config.model_copy(update={"seed": 2})
    assert not same(at_once.weights, train(blueprint, trajectories, other_seed, begin).weights)


def test_a_snapshot_is_the_state_and_training_does_not_change_its_arguments(samples):
    blueprint, trajectories, begin = cloned(samples)
    before = {name: tensor.clone() for name, tensor in begin.weights.items()}
    snapshots = []

    def keep(snapshot: Callable[[], TrainingState]) -> bool:
        snapshots.append(snapshot())
        return True

    at_once = train(blueprint, trajectories, SHORT, begin, after_batch=keep)
    for snapshot in snapshots:
        resumed = train(blueprint, trajectories, SHORT, snapshot)
        assert same(at_once.weights, resumed.weights) and at_once.loss == resumed.loss
    assert same(begin.weights, before) and begin.moments == {}


def test_the_loss_of_an_epoch_is_that_of_its_batches(samples):
    blueprint, trajectories, begin = cloned(samples)
    still = SHORT.model_copy(update={"learning_rate": 1e-30})
    after = train(blueprint, trajectories, still, begin, epochs=1)
    expected = validate(blueprint, trajectories, still, begin.weights)
    assert after.loss == pytest.approx(expected, rel=1e-5)
    assert after.steps == trajectories.steps


@pytest.mark.parametrize("body", ["mlp", "elman", "gru"])
def test_two_episodes_can_be_memorized(body, tmp_path):
    samples = small_data(tmp_path / "two", [6, 4], seed=1)
    blueprint, trajectories, begin = cloned(samples, body)
    config = TrainingConfig(epochs=100, learning_rate=3e-2, schedule="cosine")
    before = validate(blueprint, trajectories, config, begin.weights)
    after = train(blueprint, trajectories, config, begin)
    assert validate(blueprint, trajectories, config, after.weights) < 1e-3 * before


def test_bfloat16_is_float32_up_to_its_precision(samples):
    blueprint, trajectories, begin = cloned(samples)
    half = SHORT.model_copy(update={"precision": "bfloat16"})
    exact, rounded = (train(blueprint, trajectories, each, begin) for each in (SHORT, half))
    assert rounded.loss == pytest.approx(exact.loss, rel=0.02) and rounded.loss != exact.loss
    assert {tensor.dtype for tensor in rounded.weights.values()} == {torch.float32}


def test_a_cosine_schedule_falls_from_the_learning_rate_to_zero():
    config = TrainingConfig(epochs=10, schedule="cosine")
    assert config.rate(0) == 1e-3 and config.rate(5) == pytest.approx(5e-4)
    assert config.rate(10) == config.rate(12) == 0
    assert TrainingConfig(epochs=10).rate(10) == 1e-3


def test_a_loss_that_is_not_finite_is_reported_before_weights_change(samples):
    blueprint, trajectories, begin = cloned(samples)
    broken = {name: tensor.clone() for name, tensor in begin.weights.items()}
    broken["head.bias"][2] = float("nan")
    batches: list[object] = []

    def after_batch(snapshot: Callable[[], TrainingState]) -> bool:
        batches.append(snapshot)
        return True

    with pytest.raises(
        DivergedError, match=r"After 0 epochs and 0 batches, the loss is nan.*learning rate"
    ):
        train(
            blueprint, trajectories, SHORT, replace(begin, weights=broken), after_batch=after_batch
        )
    assert not batches


def test_a_split_is_by_episodes_and_follows_from_the_seed(samples):
    training, validation = split(samples, 0.3, seed=4)
    parts = [{each.record.attempt for each in part.episodes} for part in (training, validation)]
    assert len(parts[1]) == 2 and not parts[0] & parts[1]
    assert parts[0] | parts[1] == {each.record.attempt for each in samples.episodes}
    again, other = split(samples, 0.3, seed=4)[1], split(samples, 0.3, seed=5)[1]
    assert again.episodes == validation.episodes != other.episodes
    with pytest.raises(ConfigError, match="Of 1 episode, none is left for training"):
        split(samples.subset([0]), 0.1, seed=0)


@given(masked=st.lists(st.booleans(), min_size=2, max_size=8), seed=st.integers(0, 9))
def test_both_parts_of_a_split_have_steps_to_imitate_or_the_part_is_named(samples, masked, seed):
    def masks(part: Samples) -> set[bool]:
        return {mask[each.record.attempt] for each in part.episodes}

    whole = samples.subset(np.flatnonzero(samples.lengths)[: len(masked)])
    mask = {e.record.attempt: m for e, m in zip(whole.episodes, masked, strict=False)}
    noisy = copy.copy(whole)
    noisy.episodes = tuple(
        replace(each, record=each.record.model_copy(update={"info": {NOISE_STEPS: list(steps)}}))
        for each in whole.episodes
        for steps in [range(each.record.steps if mask[each.record.attempt] else 0)]
    )
    for fraction in (0.1, 0.5):
        expected = split(noisy, fraction, seed, every_step=True)
        bad = [
            name
            for name, part in zip(("training", "validation"), expected, strict=True)
            if masks(part) == {True}
        ]
        if not bad:
            assert split(noisy, fraction, seed)[1].episodes == expected[1].episodes
            continue
        with pytest.raises(DatasetError, match=f"The {bad[0]} part .*--validation-fraction"):
            split(noisy, fraction, seed)


def test_data_without_a_step_are_refused_and_windows_make_no_difference(tmp_path, samples):
    blueprint, trajectories, state = cloned(samples)
    small_data(tmp_path / "empty", [0])
    with pytest.raises(DatasetError, match=r"The data holds no step to imitate.*Collect more"):
        Trajectories(Samples(tmp_path / "empty"), blueprint)
    windows = Trajectories(Samples(samples.episodes[0].folder, sequence_length=3), blueprint)
    losses = [validate(blueprint, each, SHORT, state.weights) for each in (trajectories, windows)]
    assert losses[0] == losses[1]


@given(seed=st.integers(0, 2**63), attempt=st.integers(0, 2**32))
def test_no_dataset_has_a_scene_of_validation(seed, attempt):
    assert scene_seed(seed, attempt) not in VALIDATION
    assert VALIDATION.start >= EVALUATION.stop  # nor has a protocol one


@EVERY
def test_steps_with_noise_are_read_and_not_imitated(body, samples):
    noisy_steps = {0: [1, 3], 2: [0], 4: [0, 1, 2, 3]}  # by attempt; all steps of one
    noisy = samples.subset(range(len(samples.episodes)))
    noisy.episodes = tuple(
        replace(each, record=each.record.model_copy(update={"info": {NOISE_STEPS: steps}}))
        for each in samples.episodes
        for steps in [noisy_steps.get(each.record.attempt, [])]
    )
    blueprint, _, state = cloned(samples, body)
    trajectories = Trajectories(noisy, blueprint)
    policy = NetworkPolicy(Checkpoint(blueprint, state.weights))
    expected = [
        error
        for k, episode in enumerate(samples.episodes)
        for t, error in enumerate(errors_of(policy, samples, k))
        if t not in noisy_steps.get(episode.record.attempt, [])
    ]
    loss = validate(blueprint, trajectories, SHORT, state.weights)
    assert loss == pytest.approx(np.mean(expected), rel=1e-5)
    assert trajectories.steps == len(expected)
    after = train(blueprint, trajectories, SHORT.model_copy(update={"batch_size": 1}), state)
    assert np.isfinite(after.loss) and not same(after.weights, state.weights)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler here")
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("body", ["mlp", "elman"])
def test_a_compiled_network_learns_the_same(body, tmp_path):
    blueprint, trajectories, state = cloned(small_data(tmp_path / "data"), body)
    config = TrainingConfig(epochs=2, batch_size=8)
    plain = train(blueprint, trajectories, config, state)
    compiled = train(blueprint, trajectories, config.model_copy(update={"compile": True}), state)
    assert list(compiled.weights) == list(plain.weights)
    for name, weights in plain.weights.items():
        torch.testing.assert_close(compiled.weights[name], weights, rtol=1e-4, atol=1e-6)


CONFIG = TrainingConfig(epochs=4, batch_size=8, ema_decay=0.8)


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
