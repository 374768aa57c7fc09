"""Encoders, which turn an entry of the observation into features: the base class, and PointNet."""

import abc
from typing import cast

import torch
from torch import nn

from fleet_merging.symmetry.layers import Table, mlp
from fleet_tools.baselines.policies.part_configs import PointNetConfig
from fleet_tools.baselines.policies.point_maxima import maxima_over_points


class Encoder(nn.Module, abc.ABC):
    """Turns an entry of the observation into features.

    Attributes:
        width: Number of features.
    """

    width: int

    @abc.abstractmethod
    def forward(self, rows: torch.Tensor, /) -> torch.Tensor:
        """Encodes rows, (..., *shape) -> (..., width)."""

    @abc.abstractmethod
    def symmetry(self, module: str) -> tuple[Table, str]:
        """Returns the table of the encoder's axes, and the axis of its features.

        Args:
            module: Name of the encoder in the network.
        """


class PointNetEncoder(Encoder):
    """PointNet; neither the order of points nor the number of absent points matters.

    Args:
        config: Its configuration.

    Attributes:
        by_winners: Whether it computes as `point_maxima` does: the same up to rounding, in a
            fraction of the time. Training sets it. Merging needs what layers do with all points.
    """

    by_winners = False

    def __init__(self, config: PointNetConfig) -> None:
        super().__init__()
        self.width, self.unit_m = config.widths[-1], config.unit_m
        self.part_unit_m = config.part_unit_m
        sizes = (7 if config.part_unit_m else 4, *config.widths)
        self.layers = nn.ModuleList(map(nn.Linear, sizes, sizes[1:]))

    def forward(self, cloud: torch.Tensor, /) -> torch.Tensor:
        """Encodes clouds.

        Args:
            cloud: (..., points, 4): coordinates, m, and a mask: 1 tool, -1 object, 0 absent.

        Returns:
            (..., width), zeros where no point is present.
        """
        mask = cloud[..., 3:]
        units = torch.cat([cloud[..., :3] / self.unit_m, mask], -1)
        if self.part_unit_m:
            means = part_means(cloud)
            own = torch.where(mask > 0, means[..., :1, :], means[..., 1:, :])
            relative = (cloud[..., :3] - own) / self.part_unit_m
            units = torch.cat([relative, own / self.unit_m, mask], -1)
        if self.by_winners:
            layers = [cast(nn.Linear, layer) for layer in self.layers]
            points = units.reshape(-1, *units.shape[-2:])
            features = maxima_over_points(layers, points, points[..., -1] != 0)
            return features.reshape(*units.shape[:-2], self.width)
        for layer in self.layers:
            units = torch.relu(layer(units))
        # Units are not negative after ReLU, so zeros for absent points do not change the maximum.
        return (units * (mask != 0)).amax(-2)

    def symmetry(self, module: str) -> tuple[Table, str]:
        """Returns the table of its axes, and the axis of its features; see `Encoder.symmetry`."""
        units = [f"point{i}" for i in range(len(self.layers))]
        names = [f"{module}.layers.{i}" for i in range(len(units))]
        return mlp(names, ["_xyz_mask", *units]), units[-1]


def part_means(cloud: torch.Tensor) -> torch.Tensor:
    """Returns the means of the points of tool and object, (..., points, 4) -> (..., 2, 3), m.

    They are zeros where a part has no points.
    """
    of_parts = torch.stack([cloud[..., 3] > 0, cloud[..., 3] < 0], -2).to(cloud.dtype)
    sums = (of_parts[..., None] * cloud[..., None, :, :3]).sum(-2)
    return sums / of_parts.sum(-1, keepdim=True).clamp(min=1)
