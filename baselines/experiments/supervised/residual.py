"""ResNet-20 for small images, with the norms of Git Re-Basin, and its table of axes.

He et al. 2016 (section 4.2) describe the network: three groups of three blocks with 16, 32 and 64
channels. As in Ainsworth et al. 2023, norms are over the channels of each position (LayerNorm, not
BatchNorm, so that averaged weights need no statistics). Where a group begins the shortcut is a
convolution, and all channels are multiplied by a factor.
"""

import torch
from torch import nn

from fleet_merging.symmetry import layers as lay
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.baselines.experiments.supervised.labelled import ImageShape

_CHANNELS, _BLOCKS = (16, 32, 64), 3


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each position of an image."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Returns normalized images, (n, channels, height, width)."""
        return super().forward(input.movedim(1, -1)).movedim(-1, 1)


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = ChannelNorm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = ChannelNorm(outputs)
        self.shortcut = (
            nn.Identity()
            if inputs == outputs
            else nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), ChannelNorm(outputs)
            )
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the block's output; height and width are halved where channels double."""
        inside = self.norm1(self.conv1(images)).relu()
        return (self.norm2(self.conv2(inside)) + self.shortcut(images)).relu()


class ResNet20(nn.Module):
    """ResNet-20.

    Args:
        shape: Shape of the images.
        multiplier: Factor of the numbers of channels.
    """

    def __init__(self, shape: ImageShape, multiplier: int = 1) -> None:
        super().__init__()
        widths = [multiplier * channels for channels in _CHANNELS]
        self.image = nn.Unflatten(1, (shape.channels, shape.height, shape.width))
        self.conv = nn.Conv2d(shape.channels, widths[0], 3, 1, 1, bias=False)
        self.norm = ChannelNorm(widths[0])
        inputs = widths[0]
        self.blocks = nn.ModuleList()
        for width in widths:
            for _ in range(_BLOCKS):
                self.blocks.append(ResidualBlock(inputs, width))
                inputs = width
        self.head = nn.Linear(inputs, shape.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the logits of images, given as rows of pixels."""
        x = self.norm(self.conv(self.image(images))).relu()
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def resnet20_symmetry() -> Symmetry:
    """Returns the table: one axis for the stream of each group, one inside each block."""
    stream = "stream0"
    tables = [lay.conv("conv", "_", stream, bias=False), lay.layer_norm("norm", stream)]
    for number in range(_BLOCKS * len(_CHANNELS)):
        name, inside, after = f"blocks.{number}", f"block{number}", f"stream{number // _BLOCKS}"
        tables += [
            lay.conv(f"{name}.conv1", stream, inside, bias=False),
            lay.layer_norm(f"{name}.norm1", inside),
            lay.conv(f"{name}.conv2", inside, after, bias=False),
            lay.layer_norm(f"{name}.norm2", after),
        ]
        if after != stream:
            tables += [
                lay.conv(f"{name}.shortcut.0", stream, after, bias=False),
                lay.layer_norm(f"{name}.shortcut.1", after),
            ]
            stream = after
    return Symmetry.of(*tables, lay.linear("head", stream, "_"))
