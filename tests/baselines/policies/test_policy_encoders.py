"""Encoders: invariances of point clouds, and agreement with the networks they are named after."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from support.policy_cases import BLUEPRINTS, made, observations, single_network

from fleet_merging.modules import recompute
from fleet_tools.baselines.policies.checkpoint import CheckpointError
from fleet_tools.baselines.policies.encoders import PointNetEncoder
from fleet_tools.baselines.policies.network import PolicyNetwork
from fleet_tools.baselines.policies.part_configs import PointNetConfig, ResNet18Config
from fleet_tools.baselines.policies.resnet import ResNetEncoder, load_features, mean_positions


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


@settings(max_examples=30)
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


def test_configs_of_before_there_was_a_choice_mean_the_original():
    stored = ResNet18Config.model_validate({"width": 64, "frozen": False})
    assert stored == ResNet18Config(stages=4, pooling="mean")


@settings(max_examples=50)
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
