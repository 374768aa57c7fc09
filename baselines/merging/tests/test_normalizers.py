"""Models with statistics of their own are made to scale alike, and compute what they did."""

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fleet_merging import merge
from fleet_merging.errors import MergeError, SymmetryWarning
from fleet_merging.normalizers import folded

SEEDS = st.integers(0, 999)
X = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))


class Scaled(nn.Module):
    """A policy with statistics, of which every robot has its own."""

    obs_mean: Any
    obs_std: Any
    act_mean: Any
    act_std: Any

    def __init__(self, seed, network, stored=True, squash=None, clip=None, spread=(0.5, 2.0)):
        super().__init__()
        torch.manual_seed(0)
        self.network, self.squash, self.clip = network(), squash or nn.Identity(), clip
        g = torch.Generator().manual_seed(seed)
        low, high = spread
        for name, size in (("obs", 6), ("act", 3)):
            std = low + (high - low) * torch.rand(size, generator=g)
            self.register_buffer(f"{name}_mean", torch.randn(size, generator=g), persistent=stored)
            self.register_buffer(f"{name}_std", std, persistent=stored)

    def forward(self, x):
        z = (x - self.obs_mean) / self.obs_std
        if self.clip:
            z = z.clamp(-self.clip, self.clip)
        y = self.network(z)
        return self.squash((y[0] if isinstance(y, tuple) else y) * self.act_std + self.act_mean)


class Two(nn.Module):
    """Two parts that read the same numbers, as of a policy and its critic; only one answers."""

    def __init__(self):
        super().__init__()
        self.gate, self.value = nn.Linear(6, 5), nn.Linear(6, 5)
        self.last = nn.Linear(5, 3)

    def forward(self, z):
        return self.last(torch.sigmoid(self.gate(z)) * torch.relu(self.value(z)))


class Camera(nn.Module):
    """Scales colours before a convolution."""

    mean: Any

    def __init__(self, seed, padding):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, padding=padding)
        g = torch.Generator().manual_seed(seed)
        self.register_buffer("mean", torch.rand(3, 1, 1, generator=g), persistent=False)

    def forward(self, images):
        return self.conv((images - self.mean) / (0.5 + self.mean)).mean((-1, -2))


NETWORKS = {
    "MLP": lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
    "linear": lambda: nn.Linear(6, 3),
    "two readers": Two,
    "RNN": lambda: nn.Sequential(nn.RNN(6, 5), Unpacked(), nn.Linear(5, 3)),
    "LSTM": lambda: nn.Sequential(nn.LSTM(6, 5), Unpacked(), nn.Linear(5, 3)),
    "GRU": lambda: nn.Sequential(nn.GRU(6, 5), Unpacked(), nn.Linear(5, 3)),
}


class Unpacked(nn.Module):
    def forward(self, outputs):
        return outputs[0]


def without_folding(models):
    with warnings.catch_warnings():
        warnings.simplefilter("error", SymmetryWarning)
        return merge("naive_average", models, example=X).model


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_merged_with_itself_under_other_statistics_computes_what_it_did(name, stored):
    """The other one is the same function, by weights that are worked out by hand."""
    one = Scaled(1, NETWORKS[name], stored)
    other = copy.deepcopy(Scaled(2, NETWORKS[name], stored))
    own, common = one.double(), other.double()
    other.load_state_dict({**other.state_dict(), **folded(own, common, (X,))})
    torch.testing.assert_close(other(X.double()), one(X.double()))
    assert any(
        not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)
    )
    merged = without_folding([one, other])
    torch.testing.assert_close(merged(X.double()), one(X.double()))


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_linear_policies_with_several_statistics_are_merged_to_their_mean(seed):
    models: list[Any] = [Scaled(seed + i, NETWORKS["linear"]).double() for i in range(3)]
    for i, model in enumerate(models):
        nn.init.normal_(model.network.weight, generator=torch.Generator().manual_seed(seed + i))
    merged = without_folding(models)
    mean = sum(model(X.double()) for model in models) / 3
    torch.testing.assert_close(merged(X.double()), mean)


def test_the_folded_weights_are_those_of_the_formula():
    one, other = (Scaled(i, NETWORKS["MLP"]).double() for i in range(2))
    weights, network = folded(one, other, (X,)), one.state_dict()
    W, b = network["network.0.weight"], network["network.0.bias"]
    expected = W * (other.obs_std / one.obs_std)
    shift = W @ ((other.obs_mean - one.obs_mean) / one.obs_std)
    torch.testing.assert_close(weights["network.0.weight"], expected)
    torch.testing.assert_close(weights["network.0.bias"], b + shift)
    last = network["network.2.weight"] * (one.act_std / other.act_std)[:, None]
    torch.testing.assert_close(weights["network.2.weight"], last)


UNFOLDABLE = {
    "a clip of inputs": (NETWORKS["MLP"], {"clip": 5.0}, "'network.0' has inputs"),
    "bounds of actions": (NETWORKS["MLP"], {"squash": nn.Tanh()}, "because of a clip, a tanh"),
    "a norm": (
        lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)),
        {},
        "'network.1' has inputs",
    ),
    "no bias": (lambda: nn.Linear(6, 3, bias=False), {}, "has no bias"),
}


@pytest.mark.parametrize("case", UNFOLDABLE)
def test_what_no_affine_map_can_take_over_is_named(case):
    network, options, words = UNFOLDABLE[case]
    models = [Scaled(i, network, **options) for i in range(2)]
    with pytest.raises(MergeError, match=words):
        folded(models[0], models[1], (X,))
    with pytest.warns(SymmetryWarning, match=f"obs_mean.*{words}"):
        merge("naive_average", models, example=X)


@pytest.mark.parametrize("padding", [0, 1])
def test_images_are_scaled_alike_unless_edges_of_zeros_mean_other_colours(padding):
    images = torch.rand(2, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    models = [Camera(seed, padding) for seed in range(2)]
    if padding:
        with pytest.raises(MergeError, match="zero padding"):
            folded(models[0], models[1], (images,))
        return
    models[1].load_state_dict({**models[1].state_dict(), **folded(models[0], models[1], (images,))})
    torch.testing.assert_close(models[1](images), models[0](images), atol=1e-5, rtol=1e-5)


def test_models_without_statistics_or_with_the_same_stay_as_they_are():
    models = [Scaled(0, NETWORKS["MLP"]) for _ in range(2)]
    merged = without_folding(models)
    for name, tensor in merged.state_dict().items():
        np.testing.assert_array_equal(tensor, models[0].state_dict()[name])
