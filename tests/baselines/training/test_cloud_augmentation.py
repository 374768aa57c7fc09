"""Augmentation keeps what a cloud is: present points, their mask, and nothing else changes."""

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.baselines.training import augmentation
from fleet_tools.baselines.training.config import CloudAugmentation

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
