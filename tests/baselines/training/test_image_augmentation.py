"""Augmentation of images: other colours, the same shapes, and the same draws in every run."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.policy_cases import BLUEPRINTS, BODIES, observations
from support.small_datasets import Drawn, a_header, write
from support.training_cases import same

from fleet_tools.baselines.policies.config import PolicyConfig, ResNet18Config
from fleet_tools.baselines.training import augmentation
from fleet_tools.baselines.training.config import ImageAugmentation, TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.dataset.samples import Samples

_LAYOUT = {"joint_position": ((7,), "float32"), "wrist_rgb": ((12, 9, 3), "uint8")}
NAMES = ["wrist_rgb", "table_rgb"]


def augmented(images: torch.Tensor, config: ImageAugmentation, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    changes = [("wrist_rgb", config)]
    return augmentation.augmented({"wrist_rgb": images}, changes, generator)["wrist_rgb"]


@settings(max_examples=50)
@given(gain=st.floats(0, 0.9), offset=st.floats(0, 0.9), seed=st.integers(0, 1000), data=st.data())
def test_colours_change_by_one_line_for_each_channel_of_each_image(gain, offset, seed, data):
    """Pixels of one value stay of one value, brighter ones stay brighter, within the bounds."""
    value = data.draw(st.integers(0, 255))
    ramp = torch.arange(256, dtype=torch.uint8)
    images = ramp[:, None, None].expand(2, 3, 256, 4, 3)
    config = ImageAugmentation(color_gain=gain, color_offset=offset)
    changed = augmented(images, config, seed)
    assert changed.dtype == torch.uint8 and changed.shape == images.shape
    assert torch.equal(changed, changed[..., :1, :].expand_as(changed))
    assert (changed[..., 1:, :, :].int() >= changed[..., :-1, :, :].int()).all()
    found = changed[..., value, 0, :].double()
    low, high = ((1 + s * gain) * value + 255 * s * offset for s in (-1, 1))
    assert (found >= max(low - 1, 0)).all() and (found <= min(high + 1, 255)).all()


def test_without_changes_nothing_changes():
    images = observations(BLUEPRINTS["mlp on images"], 2, 3)["wrist_rgb"]
    assert torch.equal(augmented(images, ImageAugmentation()), images)


def test_each_image_has_draws_of_its_own_and_other_entries_have_none():
    given = observations(BLUEPRINTS["gru on all"], 2, 3)
    for name in NAMES:
        given[name] = torch.full_like(given[name], 128)
    config = ImageAugmentation(color_gain=0.5)
    changes = [(name, config) for name in NAMES]
    changed = augmentation.augmented(given, changes, torch.Generator().manual_seed(0))
    colors = torch.cat([changed[name][..., 0, 0, :].reshape(-1, 3) for name in NAMES])
    assert len(colors.unique(dim=0)) == len(colors) == 12
    assert all(changed[name] is given[name] for name in given if name not in NAMES)


def test_interruptions_do_not_change_the_draws(tmp_path):
    write(tmp_path / "data", Drawn([5, 4, 6], [True] * 3, 0), a_header(_LAYOUT))
    samples = Samples(tmp_path / "data")
    policy = PolicyConfig(body=BODIES["mlp"], images=ResNet18Config(width=2, stages=1))
    blueprint = blueprint_of(policy, samples)
    trajectories = Trajectories(samples, blueprint)
    first = TrainingState.initial(blueprint.create().state_dict())
    plain = TrainingConfig(epochs=2, batch_size=4)
    config = plain.model_copy(update={"images": ImageAugmentation(color_gain=0.4)})
    whole = train(blueprint, trajectories, config, first)
    state = first
    while state.epoch < config.epochs:  # each call ends after a batch
        state = train(blueprint, trajectories, config, state, after_batch=lambda snapshot: False)
    assert same(state.weights, whole.weights)
    assert not same(train(blueprint, trajectories, plain, first).weights, whole.weights)
