"""Augmentation: a cloud of some of its points, an image of the same shapes, in the same draws."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from hypothesis import given
from hypothesis import strategies as st
from support.policy_cases import BLUEPRINTS, BODIES, observations
from support.small_datasets import Drawn, a_header, write
from support.training_cases import same

from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.part_configs import ResNet18Config
from fleet_tools.baselines.training import augmentation
from fleet_tools.baselines.training.config import (
    CloudAugmentation,
    ImageAugmentation,
    TrainingConfig,
)
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.dataset.samples import Samples

CONFIGS = st.builds(
    CloudAugmentation,
    jitter_m=st.sampled_from([0.0, 0.001, 0.1]),
    dropout=st.sampled_from([0.0, 0.3, 0.9]),
    crop_m=st.sampled_from([0.0, 0.05, 1.0]),
)


def clouds(seed: int, points: int = 60) -> torch.Tensor:
    """Returns clouds (3, 4, points, 4), some points of which are absent."""
    generator = torch.Generator().manual_seed(seed)
    cloud = torch.randn((3, 4, points, 4), generator=generator)
    cloud[..., 3] = torch.randint(-1, 2, (3, 4, points), generator=generator)
    return cloud * (cloud[..., 3:] != 0)


def augmented(cloud: torch.Tensor, config: CloudAugmentation, seed: int = 0) -> torch.Tensor:
    observed = {"point_cloud": cloud, "state": torch.ones(3, 4, 7)}
    generator = torch.Generator().manual_seed(seed)
    result = augmentation.augmented(observed, [("point_cloud", config)], generator)
    assert torch.equal(result["state"], observed["state"])
    return result["point_cloud"]


@given(seed=st.integers(0, 99))
def test_nothing_to_do_changes_nothing(seed):
    assert torch.equal(augmented(clouds(seed), CloudAugmentation()), clouds(seed))


@given(seed=st.integers(0, 99), config=CONFIGS)
def test_points_keep_their_part_or_are_absent(seed, config):
    before = clouds(seed)
    after = augmented(before, config, seed)
    assert after.shape[-2] == 60 - int(config.dropout * 60)
    kept = after[..., 3] != 0
    assert not after[~kept].any()
    if config.jitter_m == 0:  # each is one of the points before
        same = (after[..., :, None, :] == before[..., None, :, :]).all(-1)
        assert same.any(-1)[kept].all()
        assert (same.any(-2).sum(-1) >= kept.sum(-1)).all()  # none is taken twice
    assert torch.equal(augmented(before, config, seed), after)  # drawn from the seed alone


def test_jitter_has_the_size_that_is_asked_for_and_dropout_prefers_no_point():
    before = clouds(0, points=5000)
    present = before[..., 3] != 0
    moved = augmented(before, CloudAugmentation(jitter_m=0.01))
    noise = (moved - before)[present][:, :3]
    assert noise.std().item() == pytest.approx(0.01, rel=0.02)
    assert noise.mean().abs() < 3e-4
    fewer = augmented(before, CloudAugmentation(dropout=0.3))
    share = [(each[..., 3] == 1).double().mean().item() for each in (before, fewer)]
    assert share[0] == pytest.approx(share[1], abs=0.01)


def test_a_crop_leaves_out_a_ball_about_one_of_the_points():
    before = clouds(1)
    after = augmented(before, CloudAugmentation(crop_m=2.0))
    for cloud, cropped in zip(before.flatten(0, 1), after.flatten(0, 1), strict=True):
        gone = (cloud[:, 3] != 0) & (cropped[:, 3] == 0)
        distances = torch.cdist(cloud[:, :3], cloud[:, :3])
        # Some point is nearer to all that are gone than to any that stayed.
        left = cropped[:, 3] != 0
        inside = distances[:, gone].amax(1) if gone.any() else torch.zeros(len(cloud))
        outside = distances[:, left].amin(1) if left.any() else torch.full((len(cloud),), 9.0)
        assert (inside <= outside).any()
        assert inside.min() < 2.0


# --- Images ---------------------------------------------------------------------------------

_LAYOUT = {"joint_position": ((7,), "float32"), "wrist_rgb": ((12, 9, 3), "uint8")}
NAMES = ["wrist_rgb", "table_rgb"]


def recoloured(images: torch.Tensor, config: ImageAugmentation, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    changes = [("wrist_rgb", config)]
    return augmentation.augmented({"wrist_rgb": images}, changes, generator)["wrist_rgb"]


@given(gain=st.floats(0, 0.9), offset=st.floats(0, 0.9), seed=st.integers(0, 1000), data=st.data())
def test_colours_change_by_one_line_for_each_channel_of_each_image(gain, offset, seed, data):
    """Pixels of one value stay of one value, brighter ones stay brighter, within the bounds."""
    value = data.draw(st.integers(0, 255))
    ramp = torch.arange(256, dtype=torch.uint8)
    images = ramp[:, None, None].expand(2, 3, 256, 4, 3)
    config = ImageAugmentation(color_gain=gain, color_offset=offset)
    changed = recoloured(images, config, seed)
    assert changed.dtype == torch.uint8 and changed.shape == images.shape
    assert torch.equal(changed, changed[..., :1, :].expand_as(changed))
    assert (changed[..., 1:, :, :].int() >= changed[..., :-1, :, :].int()).all()
    found = changed[..., value, 0, :].double()
    low, high = ((1 + s * gain) * value + 255 * s * offset for s in (-1, 1))
    assert (found >= max(low - 1, 0)).all() and (found <= min(high + 1, 255)).all()


def test_without_changes_of_colour_nothing_changes():
    images = observations(BLUEPRINTS["mlp on images"], 2, 3)["wrist_rgb"]
    assert torch.equal(recoloured(images, ImageAugmentation()), images)


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
