"""Losses of chunks and of heads that begin with noise."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from dataclasses import replace

import numpy as np
import torch
from support.policy_cases import BODIES, DENOISING
from support.training_cases import same, small_data

from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.part_configs import LinearHeadConfig
from fleet_tools.baselines.training import demonstrations as trajectories_module
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.loop import draws, imitation_losses, train, validate
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.dataset.samples import Samples
from fleet_tools.rollouts.episode import EXPERT_ACTIONS, LEARNER_STEPS, NOISE_STEPS, Labels

BODY = pytest.mark.parametrize("body", ["mlp", "elman"])
SHORT = TrainingConfig(epochs=2, batch_size=8, seed=1)


@pytest.fixture(scope="module", name="samples")
def _samples(tmp_path_factory):
    """Samples of episodes, of which the first and the third have steps not to imitate."""
    samples = small_data(tmp_path_factory.mktemp("chunks") / "data")
    noisy = {0: [1, 3], 2: [0, 6]}
    samples.episodes = tuple(
        replace(each, record=each.record.model_copy(update={"info": {NOISE_STEPS: steps}}))
        for each in samples.episodes
        for steps in [noisy.get(each.record.attempt, [])]
    )
    return samples


def brute_force(samples: Samples, actions: np.ndarray, chunk: int) -> tuple[float, int]:
    """Returns the sum of losses, and the number of steps, of chunks (6 chunk,) for each row."""
    total, steps, start = 0.0, 0, 0
    for episode in samples.episodes:
        rows = episode.rows("actions")
        noisy = Labels.of(episode.record.info, episode.record.steps).noise_steps
        for t in range(len(rows)):
            if t in noisy:
                continue
            errors = [
                np.square(actions[start + t, 6 * j : 6 * j + 6] - rows[t + j]).mean()
                for j in range(chunk)
                if t + j < len(rows) and not set(noisy) & set(range(t, t + j + 1))
            ]
            total, steps = total + float(np.mean(errors)), steps + 1
        start += len(rows)
    return total, steps


@BODY
@pytest.mark.parametrize("chunk", [1, 3, 20])
def test_a_chunk_is_compared_with_what_followed_in_its_episode(body, chunk, samples):
    blueprint = blueprint_of(PolicyConfig(body=BODIES[body], chunk=chunk), samples)
    network, trajectories = blueprint.create(), Trajectories(samples, blueprint)
    outputs = []
    with torch.no_grad():
        for episode in samples.episodes:
            if episode.record.steps:
                observed = {
                    name: torch.tensor(episode.rows(f"observations/{name}")[:-1])[None]
                    for name in samples.observation
                }
                outputs.append(network(observed)[0][0].numpy())
    total, steps = brute_force(samples, np.concatenate(outputs), chunk)
    assert trajectories.steps == steps
    loss = validate(blueprint, trajectories, SHORT, network.state_dict())
    assert loss == pytest.approx(total / steps, rel=1e-5)


@BODY
def test_chunks_are_the_same_when_data_are_read_batch_by_batch(body, samples, monkeypatch):
    blueprint = blueprint_of(PolicyConfig(body=BODIES[body], chunk=3), samples)
    in_memory = Trajectories(samples, blueprint)
    monkeypatch.setattr(trajectories_module, "_MEMORY_FRACTION", 0.0)
    mapped = Trajectories(samples, blueprint)
    for items in in_memory.order(10, np.random.default_rng(2)):
        one, other = in_memory.batch(items), mapped.batch(items)
        assert same(one.observations, other.observations)
        assert torch.equal(one.actions, other.actions)
        assert torch.equal(one.imitated, other.imitated)
        assert torch.equal(one.mask, one.imitated[..., 0])


@BODY
@pytest.mark.parametrize("head", DENOISING)
def test_training_with_noise_does_not_depend_on_interruptions(body, head, samples):
    config = PolicyConfig(body=BODIES[body], head=DENOISING[head], chunk=2)
    blueprint = blueprint_of(config, samples)
    trajectories = Trajectories(samples, blueprint)
    begin = TrainingState.initial(blueprint.create().state_dict())
    torch.manual_seed(1)
    at_once = train(blueprint, trajectories, SHORT, begin)
    torch.manual_seed(2)  # the global generator does not matter
    state = begin
    while state.epoch < 2:
        state = train(blueprint, trajectories, SHORT, state, after_batch=lambda _: False)
    assert same(at_once.weights, state.weights) and at_once.loss == state.loss
    other_seed = SHORT.model_copy(update={"seed": 2})
    assert not same(at_once.weights, train(blueprint, trajectories, other_seed, begin).weights)
    losses = [validate(blueprint, trajectories, SHORT, at_once.weights) for _ in range(2)]
    assert losses[0] == losses[1] and np.isfinite(losses[0])


def test_a_chunk_ends_where_a_learner_acted(samples):
    (nine,) = [k for k, each in enumerate(samples.episodes) if each.record.steps == 9]
    corrected = samples.subset([nine])
    info = {LEARNER_STEPS: [2, 5], EXPERT_ACTIONS: [[0.5] * 6, [0.25] * 6]}
    corrected.episodes = tuple(
        replace(each, record=each.record.model_copy(update={"info": info}))
        for each in corrected.episodes
    )
    blueprint = blueprint_of(PolicyConfig(body=BODIES["elman"], chunk=3), samples)
    batch = Trajectories(corrected, blueprint).batch(np.array([0]))
    allowed = [range(t, t + 3) for t in range(9)]
    expected = [
        [k < 9 and not {2, 5} & set(range(t, k)) for k in steps] for t, steps in enumerate(allowed)
    ]
    assert batch.imitated[0].tolist() == expected
    assert batch.actions[0, 0, 2].tolist() == [0.5] * 6  # it ends with the expert's own action


@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_a_linear_head_learns_by_squared_or_by_absolute_errors(loss, samples):
    config = PolicyConfig(body=BODIES["mlp"], head=LinearHeadConfig(loss=loss))
    blueprint = blueprint_of(config, samples)
    network, trajectories = blueprint.create(), Trajectories(samples, blueprint)
    batch = trajectories.batch(np.arange(9))
    with torch.no_grad():
        gaps = network(batch.observations)[0] - batch.actions[..., 0, :]
        errors = imitation_losses(network, batch, config.head, draws(0, 0, 0))
    expected = gaps.abs() if loss == "absolute" else gaps.square()
    torch.testing.assert_close(errors, expected.mean(-1) * batch.mask)


@pytest.mark.parametrize("head", DENOISING)
def test_actions_not_to_imitate_are_not_shown_to_the_head(head, samples):
    config = PolicyConfig(body=BODIES["elman"], head=DENOISING[head], chunk=4)
    blueprint = blueprint_of(config, samples)
    trajectories, network = Trajectories(samples, blueprint), blueprint.create()
    batch = trajectories.batch(np.arange(len(trajectories.lengths)))
    other = torch.where(batch.imitated[..., None], batch.actions, torch.randn_like(batch.actions))
    assert not torch.equal(other, batch.actions)
    losses = [
        imitation_losses(network, each, config.head, draws(0, 0, 0))
        for each in (batch, replace(batch, actions=other))
    ]
    assert torch.equal(*losses) and not losses[0][~batch.mask].any()


def test_draws_of_batches_differ_from_one_another_and_from_the_order():
    keys = [(seed, epoch, batch) for seed in (0, 1) for epoch in (0, 1) for batch in (0, 1)]
    firsts = {draws(*key).random() for key in keys}
    orders = {np.random.default_rng((seed, epoch)).random() for seed in (0, 1) for epoch in (0, 1)}
    assert len(firsts) == len(keys) and not firsts & orders
