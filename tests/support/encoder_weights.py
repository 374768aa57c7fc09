"""Weights of an encoder of images."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from fleet_tools.baselines.policies.part_configs import ResNet18Config


def some_weights(seed: int) -> dict[str, Any]:
    """Returns weights of a whole ResNet-18, as torchvision names them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state = ResNet18Config().create().state_dict()
    return state | {"fc.weight": torch.ones(1000, 512), "fc.bias": torch.zeros(1000)}


def write_weights(folder: Path) -> Path:
    """Writes weights to a folder; returns their file."""
    path = folder / "resnet18.safetensors"
    save_file(some_weights(1), path)
    return path
