"""Augmentation of observations: other clouds and images of the same scene, for every batch."""

from collections.abc import Iterable, Mapping

import torch

from fleet_tools.baselines.training.cloud_augmentation import augmented_cloud
from fleet_tools.baselines.training.config import CloudAugmentation, ImageAugmentation
from fleet_tools.baselines.training.image_augmentation import augmented_image


def augmented(
    observations: Mapping[str, torch.Tensor],
    changes: Iterable[tuple[str, CloudAugmentation | ImageAugmentation]],
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    """Returns observations with other clouds and images.

    Args:
        observations: (..., *shape) by name.
        changes: Names of entries, and what is done to them, in the order of draws.
        generator: Draws, on the CPU; the same draws whatever the device.
    """
    changed = dict(observations)
    for name, change in changes:
        if isinstance(change, CloudAugmentation):
            changed[name] = augmented_cloud(changed[name], change, generator)
        else:
            changed[name] = augmented_image(changed[name], change, generator)
    return changed
