"""Augmentation of colour images: other colours of the same scene, for every batch."""

import torch

from fleet_tools.baselines.training.config import ImageAugmentation


def augmented_image(
    image: torch.Tensor, config: ImageAugmentation, generator: torch.Generator
) -> torch.Tensor:
    """Returns images of other colours; each image has draws of its own.

    Args:
        image: (..., height, width, 3) uint8.
        config: What is done to them.
        generator: Draws, on the CPU; the same draws whatever the device.
    """
    shape = (*image.shape[:-3], 1, 1, 3)
    gain = 1 + config.color_gain * _uniform(shape, generator).to(image.device)
    offset = 255 * config.color_offset * _uniform(shape, generator).to(image.device)
    colors = torch.addcmul(offset, image, gain)
    return colors.round_().clamp_(0, 255).to(torch.uint8)


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Returns numbers between -1 and 1."""
    return 2 * torch.rand(shape, generator=generator) - 1
