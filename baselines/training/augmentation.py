"""Augmentation of point clouds, colours and sensors, drawn anew for every batch."""

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import nn

from fleet_tools.baselines.training.config import CloudAugmentation, ImageAugmentation

HIDDEN = 0.5
"""Fraction of the items in which an optional entry is hidden."""


def augmented(
    observations: Mapping[str, torch.Tensor],
    changes: Iterable[tuple[str, CloudAugmentation | ImageAugmentation]],
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    """Returns observations with augmented clouds and images.

    Args:
        observations: (..., *shape) by name.
        changes: Names of entries and their augmentation, in the order of draws.
        generator: Draws, on the CPU; the same draws on every device.
    """
    changed = dict(observations)
    for name, change in changes:
        if isinstance(change, CloudAugmentation):
            changed[name] = augmented_cloud(changed[name], change, generator)
        else:
            changed[name] = augmented_image(changed[name], change, generator)
    return changed


def some_hidden(
    observations: Mapping[str, torch.Tensor],
    absent: Mapping[str, torch.Tensor],
    sights: Collection[str],
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    """Returns observations of robots that lack some entries, each in about half of the items.

    Args:
        observations: (B, T, *shape) by name.
        absent: Constants for the entries that a robot may lack, in the order of draws.
        sights: Entries that remain where all of them would be hidden.
        generator: Draws, on the CPU; the same draws on every device.
    """
    hidden, items = dict(observations), len(next(iter(observations.values())))
    lacks = {name: torch.rand(items, generator=generator) < HIDDEN for name in absent}
    if set(sights) <= set(lacks):
        blind = torch.stack([lacks[name] for name in sights]).all(0)
        lacks |= {name: lacks[name] & ~blind for name in sights}
    for name, stand_in in absent.items():
        given = observations[name]
        where = lacks[name].to(given.device).reshape(-1, *(1,) * (given.dim() - 1))
        hidden[name] = torch.where(where, stand_in.to(given.device), given)
    return hidden


def augmented_cloud(
    cloud: torch.Tensor, config: CloudAugmentation, generator: torch.Generator
) -> torch.Tensor:
    """Returns augmented clouds.

    Args:
        cloud: (..., points, 4), see `PointNetEncoder`.
        config: The augmentation.
        generator: Draws, on the CPU; the same draws on every device.
    """
    if config.dropout > 0:
        cloud = _some_points(cloud, config.dropout, generator)
    present = cloud[..., 3:] != 0
    if config.crop_m > 0:
        present = present & ~_in_ball(cloud[..., :3], config.crop_m, generator)
    if config.jitter_m > 0:
        noise = torch.randn((*cloud.shape[:-1], 3), generator=generator)
        noise = nn.functional.pad(config.jitter_m * noise, (0, 1))  # none on the mask
        cloud = cloud + noise.to(cloud.device, cloud.dtype)
    return torch.where(present, cloud, torch.zeros_like(cloud))


def _some_points(cloud: torch.Tensor, dropout: float, generator: torch.Generator) -> torch.Tensor:
    """Returns clouds of fewer points, which are faster to encode."""
    count = cloud.shape[-2] - int(dropout * cloud.shape[-2])
    order = torch.rand(cloud.shape[:-1], generator=generator).argsort(-1)[..., :count]
    return cloud.gather(-2, order.to(cloud.device)[..., None].expand(*order.shape, 4))


def _in_ball(
    points: torch.Tensor, largest_radius_m: float, generator: torch.Generator
) -> torch.Tensor:
    """Whether points lie in a ball about one of them, of random radius, (..., points, 1) bool."""
    *batch, count, _ = points.shape
    chosen = torch.randint(count, (*batch, 1, 1), generator=generator).to(points.device)
    center = points.gather(-2, chosen.expand(*batch, 1, 3))
    radius = largest_radius_m * torch.rand((*batch, 1, 1), generator=generator).to(points.device)
    return (points - center).norm(dim=-1, keepdim=True) < radius


def augmented_image(
    image: torch.Tensor, config: ImageAugmentation, generator: torch.Generator
) -> torch.Tensor:
    """Returns images of other colours, drawn for each image.

    Args:
        image: (..., height, width, 3) uint8.
        config: The augmentation.
        generator: Draws, on the CPU; the same draws on every device.
    """
    shape = (*image.shape[:-3], 1, 1, 3)
    gain = 1 + config.color_gain * _uniform(shape, generator).to(image.device)
    offset = 255 * config.color_offset * _uniform(shape, generator).to(image.device)
    colors = torch.addcmul(offset, image, gain)
    return colors.round_().clamp_(0, 255).to(torch.uint8)


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Returns numbers between -1 and 1."""
    return 2 * torch.rand(shape, generator=generator) - 1
