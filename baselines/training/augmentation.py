"""Augmentation of point clouds: other clouds of the same scene, for every batch."""

from collections.abc import Iterable, Mapping

import torch

from fleet_tools.baselines.training.config import CloudAugmentation


def augment_clouds(
    observations: Mapping[str, torch.Tensor],
    names: Iterable[str],
    config: CloudAugmentation,
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    """Returns observations with other clouds.

    Args:
        observations: (..., *shape) by name.
        names: Names of the clouds, (..., points, 4), see `PointNetEncoder`.
        config: What is done to them.
        generator: Draws, on the CPU; the same draws whatever the device.
    """
    augmented = dict(observations)
    for name in names:
        augmented[name] = _augmented(observations[name], config, generator)
    return augmented


def _augmented(
    cloud: torch.Tensor, config: CloudAugmentation, generator: torch.Generator
) -> torch.Tensor:
    points, mask = cloud[..., :3], cloud[..., 3]
    present = mask != 0
    if config.crop_m > 0:
        present = present & ~_in_ball(points, config.crop_m, generator)
    if config.dropout > 0:
        drawn = torch.rand(mask.shape, generator=generator).to(cloud.device)
        present = present & (drawn >= config.dropout)
    if config.jitter_m > 0:
        noise = torch.randn(points.shape, generator=generator).to(cloud.device, cloud.dtype)
        points = points + config.jitter_m * noise
    rows = torch.cat([points, mask[..., None]], -1)
    return torch.where(present[..., None], rows, torch.zeros_like(rows))


def _in_ball(
    points: torch.Tensor, largest_radius_m: float, generator: torch.Generator
) -> torch.Tensor:
    """Whether points lie in a ball about one of them, of random radius, (..., points) bool."""
    *batch, count, _ = points.shape
    chosen = torch.randint(count, (*batch, 1, 1), generator=generator).to(points.device)
    center = points.gather(-2, chosen.expand(*batch, 1, 3))
    radius = largest_radius_m * torch.rand((*batch, 1), generator=generator).to(points.device)
    return (points - center).norm(dim=-1) < radius
