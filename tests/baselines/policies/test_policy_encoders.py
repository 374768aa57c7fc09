"""Encoders of clouds and images, and the maxima over points as training computes them."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from support.policy_cases import BLUEPRINTS, made, observations, single_network
from support.small_datasets import Drawn, a_header, write
from support.training_cases import same

from fleet_merging.modules import recompute
from fleet_tools.baselines.policies import encoders
from fleet_tools.baselines.policies.checkpoint import CheckpointError
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.encoders import PointNetEncoder
from fleet_tools.baselines.policies.network import PolicyNetwork
from fleet_tools.baselines.policies.part_configs import (
    MLPConfig,
    PointNetConfig,
    RecurrentConfig,
    ResNet18Config,
)
from fleet_tools.baselines.policies.resnet import ResNetEncoder, load_features, mean_positions
from fleet_tools.baselines.training import loop
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.dataset.samples import Samples


def encoder() -> PointNetEncoder:
    module = made("mlp on clouds").get_submodule("clouds")
    assert isinstance(module, PointNetEncoder)
    return module


def image_encoder(network: PolicyNetwork) -> ResNetEncoder:
    module = network.get_submodule("images")
    assert isinstance(module, ResNetEncoder)
    return module


def cloud(generator: np.random.Generator, points: int) -> np.ndarray:
    p = generator.normal(scale=0.1, size=(points, 3))
    return np.column_stack([p, generator.choice([-1.0, 1.0], points)]).astype(np.float32)


@given(points=st.integers(1, 30), absent=st.integers(0, 30), seed=st.integers(0, 1000))
def test_neither_order_nor_absent_points_nor_copies_matter(points, absent, seed):
    generator = np.random.default_rng(seed)
    present = cloud(generator, points)
    nowhere = generator.normal(size=(absent, 4)).astype(np.float32) * [1, 1, 1, 0]  # the mask
    rows = np.concatenate([present, nowhere.astype(np.float32), present[: points // 2]])
    with torch.no_grad():
        expected = encoder()(torch.tensor(present))
        shuffled = encoder()(torch.tensor(generator.permutation(rows)))
    torch.testing.assert_close(shuffled, expected, rtol=1e-5, atol=1e-6)


def test_the_maximum_is_over_what_each_point_gives_alone():
    present = cloud(np.random.default_rng(0), 9)
    with torch.no_grad():
        alone = torch.stack([encoder()(torch.tensor(row[None])) for row in present])
        torch.testing.assert_close(encoder()(torch.tensor(present)), alone.amax(0))


def test_features_of_an_empty_cloud_are_zeros():
    with torch.no_grad():
        features = encoder()(torch.zeros(2, 3, 5, 4))
    assert features.shape == (2, 3, 16) and not features.any()


def test_lengths_are_measured_in_the_unit_of_the_config():
    near = torch.tensor(cloud(np.random.default_rng(0), 9))
    far = near * torch.tensor([10, 10, 10, 1])
    wide = PointNetConfig(widths=(12, 16), unit_m=1.0).create()
    wide.load_state_dict(encoder().state_dict())
    with torch.no_grad():
        torch.testing.assert_close(wide(far), encoder()(near))


def test_resnet_has_as_many_parameters_as_the_original_without_its_classifier():
    network = ResNet18Config().create()
    assert sum(tensor.numel() for tensor in network.parameters()) == 11_176_512
    assert network.width == 512


def test_resnet_is_torchvisions(tmp_path):
    models = pytest.importorskip("torchvision.models")
    original = models.resnet18().eval()
    save_file(original.state_dict(), tmp_path / "resnet18.safetensors")
    encoder = ResNet18Config().create().eval()
    load_features(encoder, tmp_path / "resnet18.safetensors")
    original.fc = torch.nn.Identity()
    images = torch.randint(0, 256, (2, 64, 80, 3), dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        expected = original(((images / 255 - mean) / std).movedim(-1, 1))
        torch.testing.assert_close(encoder(images), expected)


def test_each_image_is_encoded_by_itself():
    images = torch.randint(0, 256, (2, 3, 40, 33, 3), dtype=torch.uint8)
    network = image_encoder(made("mlp on images"))
    with torch.no_grad():
        features = network(images)
        assert features.shape == (2, 3, network.width)
        torch.testing.assert_close(network(images[1, 2]), features[1, 2])


def test_images_of_unlike_cameras_are_read_alike_in_training_and_after_it():
    """With a pass for each camera, BatchNorm would learn with the statistics of each alone."""
    name = "mlp on images"
    batch = observations(BLUEPRINTS[name], 8, 2)
    batch["table_rgb"] //= 8  # a dark camera beside a bright one
    network = single_network(BLUEPRINTS[name])
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # running statistics are those of all batches, so far of one
    with torch.no_grad():
        learned = network.train().features(batch)
        torch.testing.assert_close(network.eval().features(batch), learned, rtol=0.05, atol=0.05)


def test_features_come_from_a_file_of_the_right_network_only(tmp_path):
    path = tmp_path / "features.safetensors"
    given = ResNet18Config(width=4).create()
    save_file(given.state_dict() | {"fc.weight": torch.ones(3)}, path)
    network = ResNet18Config(width=4, frozen=True).create()
    load_features(network, path)
    for name, tensor in given.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor)
    with pytest.raises(CheckpointError, match=r"conv1.weight is float32 \(4, 3, 7, 7\), not"):
        load_features(ResNet18Config(width=2).create(), path)
    path.write_bytes(b"no weights")
    for wrong in (path, tmp_path / "absent.safetensors"):
        with pytest.raises(CheckpointError, match="is not a safetensors file"):
            load_features(network, wrong)


def test_an_encoder_of_fewer_stages_takes_the_features_of_those_that_it_has(tmp_path):
    given = ResNet18Config(width=4).create()
    save_file(given.state_dict(), tmp_path / "features.safetensors")
    network = ResNet18Config(width=4, stages=2, pooling="position").create()
    load_features(network, tmp_path / "features.safetensors")
    assert not any(name.startswith(("layer3", "layer4")) for name in network.state_dict())
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, given.state_dict()[name])


@given(
    height=st.integers(2, 9),
    width=st.integers(2, 9),
    contrast=st.floats(0, 50),
    seed=st.integers(0, 1000),
)
def test_the_mean_position_is_that_of_a_softmax_over_pixels(height, width, contrast, seed):
    """By another route: the pixels one by one, and reflections."""
    generator = np.random.default_rng(seed)
    channels = contrast * generator.normal(size=(2, 3, height, width))
    found = mean_positions(torch.tensor(channels)).numpy()
    for index in np.ndindex(2, 3):
        heights = np.exp(channels[index] - channels[index].max())
        mean = sum(
            heights[row, column] * np.array([column / (width - 1), row / (height - 1)])
            for row, column in np.ndindex(height, width)
        )
        np.testing.assert_allclose(found[index], 2 * mean / heights.sum() - 1, atol=1e-6)
    reflected = mean_positions(torch.tensor(channels[..., ::-1].copy())).numpy()
    np.testing.assert_allclose(reflected, found * [-1, 1], atol=1e-6)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(ResNet18Config(width=4), id="mean", marks=pytest.mark.slow),
        pytest.param(ResNet18Config(width=4, stages=2, pooling="position"), id="position"),
    ],
)
def test_an_encoder_learns_what_stands_in_the_image_alone(config):
    """Where a square is, on tables of all colours; without the images nothing can be learned."""
    generator = np.random.default_rng(0)
    corners = generator.integers(0, 26, (192, 2))
    images = np.empty((192, 32, 32, 3), np.uint8)
    images[:] = generator.integers(0, 200, (192, 1, 1, 3))
    for image, (row, column) in zip(images, corners, strict=True):
        image[row : row + 6, column : column + 6] = 255
    targets = torch.tensor(corners / 12.5 - 1, dtype=torch.float32)

    def fitted_loss(images: torch.Tensor) -> float:
        """The loss in training mode, relative to the variance of the targets."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            encoder = config.create()
            network = torch.nn.Sequential(encoder, torch.nn.Linear(encoder.width, 2)).train()
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
        loss = torch.tensor(torch.inf)
        for _ in range(40):
            loss = (network(images) - targets).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item() / targets.var().item()

    assert fitted_loss(torch.tensor(images)) < 0.1
    assert fitted_loss(torch.zeros(images.shape, dtype=torch.uint8)) > 0.9


def test_frozen_features_stay_as_they_are():
    name = "mlp on frozen images"
    network = single_network(BLUEPRINTS[name]).train()
    encoder = image_encoder(network)
    assert network.training and not encoder.training
    before = {key: tensor.clone() for key, tensor in encoder.state_dict().items()}
    network(observations(BLUEPRINTS[name], 2, 3))
    for key, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, before[key])
    table = network.symmetry().table()
    free = {word for name in before for word in table[f"images.{name}"].split()} - {"_"}
    assert not free


def test_statistics_of_images_can_be_recomputed_after_merging():
    """By merging's own function, with trajectories for batches."""
    name = "elman on images"
    state = {
        key: tensor * 3 if "running_var" in key else tensor
        for key, tensor in made(name).state_dict().items()
    }
    batch = observations(BLUEPRINTS[name], 4, 3)
    recomputed = recompute(made(name), state, [(batch,)])
    network = single_network(BLUEPRINTS[name])
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
            module.reset_running_stats()
    network.train()(batch)
    for key, tensor in network.state_dict().items():
        torch.testing.assert_close(recomputed[key], tensor)


WIDTHS = st.sampled_from([(5,), (6, 4), (8, 16, 12)])


def a_pointnet(widths: tuple[int, ...], seed: int, dtype: torch.dtype) -> PointNetEncoder:
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
        patch.setattr(encoders, "_BLOCK", block)
        require_alike(a_pointnet(widths, seed, dtype), clouds(seed, shape, present, dtype))


@given(widths=WIDTHS, seed=st.integers(0, 999))
def test_points_that_are_equally_large_share_the_gradient(widths, seed):
    """Copies, and points that differ where no weight reads them: nothing else would tell shares."""
    module = a_pointnet(widths, seed, torch.float64)
    with torch.no_grad():
        next(iter(module.layers)).weight[:, 2] = 0  # pyright: ignore[reportIndexIssue]
    cloud = clouds(seed, (3, 10), 0.8, torch.float64)
    other = cloud.clone()
    other[..., 2] += torch.rand(3, 10, dtype=torch.float64)
    require_alike(module, torch.cat([cloud, other, cloud[:, :4]], 1))


def test_absent_points_have_no_part_whatever_they_hold():
    module, cloud = a_pointnet((8, 6), 0, torch.float64), clouds(0, (4, 12), 0.6, torch.float64)
    expected = learned(module, cloud, True)
    cloud[cloud[..., 3] == 0] = torch.tensor([torch.nan, torch.inf, 1e30, 0.0]).double()
    for found, each in zip(learned(module, cloud, True), expected, strict=True):
        assert torch.equal(found, each)


def test_numbers_that_are_not_finite_are_not_hidden():
    module, cloud = a_pointnet((8, 6), 0, torch.float32), clouds(0, (4, 12), 1.0, torch.float32)
    cloud[2, 5, 0] = torch.nan
    features = learned(module, cloud, True)[0]
    assert features[2].isnan().any() and features[[0, 1, 3]].isfinite().all()


def test_without_gradients_features_are_the_same_bits():
    module, cloud = a_pointnet((8, 6), 0, torch.float32), clouds(0, (4, 12), 0.6, torch.float32)
    with_gradients = learned(module, cloud, True)[0]
    with torch.no_grad():
        assert torch.equal(module(cloud), with_gradients)


def test_in_bfloat16_gradients_are_close_and_weights_stay_in_float32():
    module, cloud = a_pointnet((32, 64), 0, torch.float32), clouds(0, (64, 50), 0.9, torch.float32)
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
