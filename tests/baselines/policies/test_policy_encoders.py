"""Encoders: invariances of point clouds, and agreement with the networks they are named after."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from support.policy_cases import BLUEPRINTS, made, observations

from fleet_tools.baselines.merging.batch_norm import recompute
from fleet_tools.baselines.policies.config import PointNetConfig, ResNet18Config
from fleet_tools.baselines.policies.errors import CheckpointError
from fleet_tools.baselines.policies.network import PolicyNetwork
from fleet_tools.baselines.policies.pointnet import PointNetEncoder
from fleet_tools.baselines.policies.resnet import ResNetEncoder, load_features


def encoder() -> PointNetEncoder:
    module = made("mlp on clouds").get_submodule("clouds")
    assert isinstance(module, PointNetEncoder)
    return module


def image_encoder(network: PolicyNetwork) -> ResNetEncoder:
    module = network.get_submodule("pictures")
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


def test_frozen_features_stay_as_they_are():
    name = "mlp on frozen images"
    network = BLUEPRINTS[name].create().train()
    encoder = image_encoder(network)
    assert network.training and not encoder.training
    before = {key: tensor.clone() for key, tensor in encoder.state_dict().items()}
    network(observations(BLUEPRINTS[name], 2, 3))
    for key, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, before[key])
    table = network.symmetry().table()
    free = {word for name in before for word in table[f"pictures.{name}"].split()} - {"_"}
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
    network = BLUEPRINTS[name].create()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
            module.reset_running_stats()
    network.train()(batch)
    for key, tensor in network.state_dict().items():
        torch.testing.assert_close(recomputed[key], tensor)
