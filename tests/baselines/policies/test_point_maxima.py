"""Clouds by winners: outputs and gradients are those of autograd with all points.

Tolerance in float32: 1e-5 of the norm of a tensor. In float64, where rounding decides nothing, it
is 1e-12.
"""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_datasets import Drawn, a_header, write
from support.training_cases import same

from fleet_tools.baselines.policies import point_maxima
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.encoders import PointNetEncoder
from fleet_tools.baselines.policies.part_configs import MLPConfig, PointNetConfig, RecurrentConfig
from fleet_tools.baselines.training import loop
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.dataset.samples import Samples

WIDTHS = st.sampled_from([(5,), (6, 4), (8, 16, 12)])


def encoder(widths: tuple[int, ...], seed: int, dtype: torch.dtype) -> PointNetEncoder:
    torch.manual_seed(seed)
    return PointNetConfig(widths=widths).create().to(dtype)


def clouds(seed: int, shape: tuple[int, ...], present: float, dtype: torch.dtype) -> torch.Tensor:
    """Returns clouds (*shape, 4) with a part of their points present, of labels 1 and -1."""
    generator = np.random.default_rng(seed)
    labels = generator.choice([-1.0, 1.0], shape) * (generator.random(shape) < present)
    numbers = np.concatenate([generator.normal(0, 0.1, (*shape, 3)), labels[..., None]], -1)
    return torch.tensor(numbers, dtype=dtype)


def learned(
    module: PointNetEncoder, cloud: torch.Tensor, by_winners: bool
) -> tuple[torch.Tensor, ...]:
    """Returns the features, and the gradients of a random function of them."""
    module.by_winners = by_winners
    module.zero_grad(set_to_none=False)
    features = module(cloud)
    slopes = torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
    (features * slopes.to(features.dtype)).sum().backward()
    gradients = (each.grad for each in module.parameters())
    return features.detach(), *(each.clone() for each in gradients if each is not None)


def require_alike(module: PointNetEncoder, cloud: torch.Tensor) -> None:
    tolerance = 1e-5 if cloud.dtype == torch.float32 else 1e-12
    pairs = list(zip(*(learned(module, cloud, each) for each in (True, False)), strict=True))
    assert len(pairs) == 1 + 2 * len(module.layers)
    for found, expected in pairs:
        assert found.shape == expected.shape and found.dtype == expected.dtype
        assert (found - expected).norm() <= tolerance * expected.norm()


@settings(max_examples=60)
@given(
    widths=WIDTHS,
    seed=st.integers(0, 999),
    shape=st.sampled_from([(1,), (7,), (3, 1), (4, 9), (2, 3, 20), (5, 2, 2, 33)]),
    present=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    block=st.sampled_from([1, 40, 4096]),
)
def test_gradients_are_autograds(widths, seed, shape, present, dtype, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(point_maxima, "_BLOCK", block)
        require_alike(encoder(widths, seed, dtype), clouds(seed, shape, present, dtype))


@settings(max_examples=20)
@given(widths=WIDTHS, seed=st.integers(0, 999))
def test_points_that_are_equally_large_share_the_gradient(widths, seed):
    """Copies, and points that differ where no weight reads them: nothing else would tell shares."""
    module = encoder(widths, seed, torch.float64)
    with torch.no_grad():
        next(iter(module.layers)).weight[:, 2] = 0  # pyright: ignore[reportIndexIssue]
    cloud = clouds(seed, (3, 10), 0.8, torch.float64)
    other = cloud.clone()
    other[..., 2] += torch.rand(3, 10, dtype=torch.float64)
    require_alike(module, torch.cat([cloud, other, cloud[:, :4]], 1))


def test_absent_points_have_no_part_whatever_they_hold():
    module, cloud = encoder((8, 6), 0, torch.float64), clouds(0, (4, 12), 0.6, torch.float64)
    expected = learned(module, cloud, True)
    cloud[cloud[..., 3] == 0] = torch.tensor([torch.nan, torch.inf, 1e30, 0.0]).double()
    for found, each in zip(learned(module, cloud, True), expected, strict=True):
        assert torch.equal(found, each)


def test_numbers_that_are_not_finite_are_not_hidden():
    module, cloud = encoder((8, 6), 0, torch.float32), clouds(0, (4, 12), 1.0, torch.float32)
    cloud[2, 5, 0] = torch.nan
    features = learned(module, cloud, True)[0]
    assert features[2].isnan().any() and features[[0, 1, 3]].isfinite().all()


def test_without_gradients_features_are_the_same_bits():
    module, cloud = encoder((8, 6), 0, torch.float32), clouds(0, (4, 12), 0.6, torch.float32)
    with_gradients = learned(module, cloud, True)[0]
    with torch.no_grad():
        assert torch.equal(module(cloud), with_gradients)


def test_in_bfloat16_gradients_are_close_and_weights_stay_in_float32():
    module, cloud = encoder((32, 64), 0, torch.float32), clouds(0, (64, 50), 0.9, torch.float32)
    expected = learned(module, cloud, False)
    with torch.autocast("cpu", torch.bfloat16):
        found = learned(module, cloud, True)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.1 * other.norm()


@pytest.mark.parametrize("body", [MLPConfig(layers=1, width=8), RecurrentConfig(layers=1, width=8)])
def test_training_learns_the_same_either_way(body, tmp_path, monkeypatch):
    """Three epochs of training, with episodes of unlike lengths that are padded, or with steps."""
    layout = {"point_cloud": ((20, 4), "float32"), "joint_position": ((7,), "float32")}
    write(tmp_path, Drawn([5, 1, 7, 4], [True] * 4, 0), a_header(layout))
    config = PolicyConfig(body=body, clouds=PointNetConfig(widths=(8, 12)))
    samples = Samples(tmp_path)
    blueprint = blueprint_of(config, samples)
    trajectories = Trajectories(samples, blueprint)
    first = TrainingState.initial(blueprint.create().state_dict())
    options = TrainingConfig(batch_size=8)

    def trained() -> TrainingState:
        return loop.train(blueprint, trajectories, options, first, epochs=3)

    fast = trained()
    assert same(fast.weights, trained().weights)
    measured = loop.validate(blueprint, trajectories, options, first.weights)
    monkeypatch.setattr(PointNetEncoder, "by_winners", property(lambda _: False, lambda *_: None))
    monkeypatch.setattr(loop, "_without_padding", lambda batch, _: batch)
    slow = trained()
    assert not same(slow.weights, first.weights)
    for name, each in slow.weights.items():
        torch.testing.assert_close(fast.weights[name], each, rtol=1e-3, atol=1e-5)
    again = loop.validate(blueprint, trajectories, options, first.weights)
    assert measured == pytest.approx(again, rel=1e-5)
