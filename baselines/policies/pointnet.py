"""An encoder of point clouds: PointNet (Qi et al. 2017), without its alignment networks.

An encoder is a module with `width`, how many features it gives, `forward`, and `symmetry(module,
streams)` as a body has it, but for inputs, which are fixed.
"""

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry.layers import Table, mlp
from fleet_tools.baselines.policies.config import PointNet


class PointNetEncoder(nn.Module):
    """See `PointNet`. The order of points does not matter, nor does how many are absent."""

    def __init__(self, config: PointNet) -> None:
        super().__init__()
        self.width, self.unit_m = config.widths[-1], config.unit_m
        sizes = (4, *config.widths)
        self.layers = nn.ModuleList(map(nn.Linear, sizes, sizes[1:]))

    def forward(self, cloud: torch.Tensor) -> torch.Tensor:
        """Encodes clouds.

        Args:
            cloud: (..., points, 4): the point (m), and a mask that is 0 where there is none.

        Returns:
            (..., width), zeros where no point is present.
        """
        mask = cloud[..., 3:]
        units = torch.cat([cloud[..., :3] / self.unit_m, mask], -1)
        for layer in self.layers:
            units = torch.relu(layer(units))
        # No unit is negative after ReLU, so a zero in an absent point's place wins over none.
        return (units * (mask != 0)).amax(-2)

    def symmetry(self, module: str, streams: bool = True) -> tuple[Table, str]:
        units = [f"point{i}" for i in range(len(self.layers))]
        names = [f"{module}.layers.{i}" for i in range(len(units))]
        return mlp(names, ["_xyz_mask", *units]), units[-1]
