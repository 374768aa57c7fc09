"""An encoder of images: ResNet-18 (He et al. 2016), without its classifier.

Its parameters have torchvision's names, so that weights trained there can be loaded. These weights
need BatchNorm. Unlike GroupNorm, it also leaves every channel free, and merging can recompute its
statistics (`merging.modules.recompute`). BatchNorm has two costs. An average of models needs images
to recompute them. In training mode, the features of a step depend on its batch, with its padding. A
frozen encoder has neither cost.
"""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Self, cast

import torch
from torch import nn

from fleet_merging.symmetry.layers import Table, batch_norm, conv
from fleet_tools.baselines.policies.checkpoint import CheckpointError, require_weights
from fleet_tools.baselines.policies.encoders import Encoder
from fleet_tools.baselines.policies.part_configs import ResNet18Config
from fleet_tools.storage.tensor_files import read_tensors

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's red, green and blue in [0, 1], which trained weights expect."""

_NARROW = 16
"""Number of input channels below which indexing leaves out pixels before a convolution of single
pixels. Its stride would be the same map.

With AVX2, below 8 channels, oneDNN's gradient of the weights of a strided one is wrong, and it
writes beyond its memory (uxlfoundation/oneDNN, issue 6035). Blocks of AVX-512 have 16 channels.
"""


class ResNetEncoder(Encoder):
    """ResNet-18 without its classifier.

    Args:
        config: Its configuration.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, config: ResNet18Config) -> None:
        super().__init__()
        channels = [config.width * 2**stage for stage in range(config.stages)]
        self.stages, self.pooling, self.frozen = config.stages, config.pooling, config.frozen
        self.width = channels[-1] * (2 if config.pooling == "position" else 1)
        self.conv1 = nn.Conv2d(3, channels[0], 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(channels[0])
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        for stage, (inputs, outputs) in enumerate(pairwise([channels[0], *channels])):
            layer = _stage(inputs, outputs, stride=1 if stage == 0 else 2)
            self.add_module(f"layer{stage + 1}", layer)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.register_buffer("mean", torch.tensor(_MEAN)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(_STD)[:, None, None], persistent=False)
        if self.frozen:
            self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        """Sets training mode, as for any module, unless the encoder is frozen."""
        return super().train(mode and not self.frozen)

    def forward(self, images: torch.Tensor, /) -> torch.Tensor:
        """Encodes images of any size.

        Args:
            images: (..., height, width, 3) uint8.

        Returns:
            (..., width).
        """
        x = images.reshape(-1, *images.shape[-3:]).movedim(-1, 1).to(self.mean.dtype) / 255
        x = self.maxpool(torch.relu(self.bn1(self.conv1((x - self.mean) / self.std))))
        for stage in self._stages():
            x = stage(x)
        features = mean_positions(x) if self.pooling == "position" else x.mean((-2, -1))
        return features.reshape(*images.shape[:-3], self.width)

    def symmetry(self, module: str) -> tuple[Table, str]:
        """Returns the table of its axes, and the axis of its features; see `Encoder.symmetry`."""
        if self.frozen:  # the same in every robot, so there is nothing to match
            state = self.state_dict()
            fixed = {f"{module}.{name}": "_ " * value.dim() for name, value in state.items()}
            return fixed, f"_{module}"
        stream = "stage0"
        table = _conv_norm(f"{module}.conv1", f"{module}.bn1", "_rgb", stream)
        for i, stage in enumerate(self._stages()):
            for j, block in enumerate(cast(Iterable[_BasicBlock], stage)):
                last, stream = stream, f"stage{i}"
                table |= block.symmetry(f"{module}.layer{i + 1}.{j}", last, f"block{i}.{j}", stream)
        return table, f"{stream} _xy:2" if self.pooling == "position" else stream

    def _stages(self) -> Iterable[nn.Sequential]:
        for stage in range(self.stages):
            yield cast(nn.Sequential, self.get_submodule(f"layer{stage + 1}"))


def mean_positions(channels: torch.Tensor) -> torch.Tensor:
    """Returns the mean pixel of each channel's softmax over pixels (Levine et al. 2016).

    Args:
        channels: (n, channels, height, width).

    Returns:
        (n, channels, 2): x to the right and y down, from -1 in the first pixel to 1 in the last.
    """
    weights = channels.flatten(2).softmax(-1).unflatten(-1, channels.shape[-2:])
    means = []
    for marginal in (weights.sum(-2), weights.sum(-1)):
        pixels = torch.linspace(-1, 1, marginal.shape[-1], device=weights.device)
        means.append((marginal * pixels).sum(-1))
    return torch.stack(means, -1)


def load_features(encoder: ResNetEncoder, path: Path) -> None:
    """Loads weights into an encoder, such as ImageNet's, before a policy is trained.

    `CONVERSION` stores torchvision's. Their classifier ("fc") is ignored, as are parts that the
    encoder lacks. BatchNorm's counters ("num_batches_tracked") may be missing.

    Args:
        encoder: Receives the weights.
        path: A safetensors file.

    Raises:
        CheckpointError: The file cannot be read, or holds weights of another network.
    """
    state, _ = read_tensors(path, CheckpointError, _REMEDY)
    absent = ("fc.", *(f"layer{stage}." for stage in range(encoder.stages + 1, 5)))
    own = encoder.state_dict()
    counters = {name: own[name] for name in own if name.endswith("num_batches_tracked")}
    features = {name: value for name, value in state.items() if not name.startswith(absent)}
    try:
        require_weights(own, counters | features)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error} {_REMEDY}") from None
    encoder.load_state_dict(counters | features)


CONVERSION = (
    'python -c "from safetensors.torch import save_file; from torchvision.models import resnet18; '
    "save_file(resnet18(weights='IMAGENET1K_V1').state_dict(), 'resnet18.safetensors')\""
)
"""Command that stores torchvision's weights, where torchvision and safetensors are installed."""

_REMEDY = f"Where torchvision is installed, this command stores its weights: {CONVERSION}"


class _BasicBlock(nn.Module):
    """Two convolutions, added to their input; with a projection where sizes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.step = stride if inputs < _NARROW else 1
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride // self.step, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped = x
        if self.downsample is not None:
            skipped = self.downsample(x[..., :: self.step, :: self.step])
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x)) + skipped)

    def symmetry(self, module: str, inputs: str, inner: str, outputs: str) -> Table:
        table = _conv_norm(f"{module}.conv1", f"{module}.bn1", inputs, inner)
        table |= _conv_norm(f"{module}.conv2", f"{module}.bn2", inner, outputs)
        if self.downsample is not None:
            names = f"{module}.downsample.0", f"{module}.downsample.1"
            table |= _conv_norm(*names, inputs, outputs)
        return table


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(_BasicBlock(inputs, outputs, stride), _BasicBlock(outputs, outputs, 1))


def _conv_norm(convolution: str, norm: str, inputs: str, outputs: str) -> Table:
    return conv(convolution, inputs, outputs, bias=False) | batch_norm(norm, outputs)
