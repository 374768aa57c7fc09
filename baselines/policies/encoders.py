"""Encoders of entries of the observation: the base class, and PointNet."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional

from fleet_merging.symmetry.layers import Table, mlp
from fleet_tools.baselines.policies.part_configs import PointNetConfig
from fleet_tools.perception.point_cloud import OBJECT_MASK, TOOL_MASK


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
        by_winners: Whether it computes by `maxima_over_points`: the same up to rounding, but
            faster. Training sets it. Merging needs the outputs of layers for all points.
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
            cloud: (..., points, 4): coordinates, m, and a mask: 1 tool, -1 object, -2 marked place,
                0 absent.

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
    masks = (cloud[..., 3] == mask for mask in (TOOL_MASK, OBJECT_MASK))
    of_parts = torch.stack(tuple(masks), -2).to(cloud.dtype)
    sums = (of_parts[..., None] * cloud[..., None, :, :3]).sum(-2)
    return sums / of_parts.sum(-1, keepdim=True).clamp(min=1)


_BLOCK = 2048
"""Number of points that pass through all layers together, for each thread."""

Winners = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Indices (N,) of clouds, units and points: in this cloud, the unit is largest for this point.

Equally large points have one entry each. Units that ReLU sets to 0 have none, as they receive no
gradient.
"""


def maxima_over_points(
    layers: Sequence[nn.Linear], points: torch.Tensor, present: torch.Tensor
) -> torch.Tensor:
    """Returns the largest outputs of linear layers with ReLU over the points of each cloud.

    A maximum over points depends on few of them: of 1,024 points, between 100 and 250 have the
    largest output of any unit. A first pass without gradients finds these, and leaves out absent
    points. It works in blocks that fit the processor's cache. Only the points that it found pass
    through the hidden layers again, with gradients. In the last layer, each output needs only one
    point: the gradients of its inputs and weights are weighted sums of rows. Outputs and gradients
    are as for all points, up to rounding. Under autocast, the first pass runs in its precision;
    gradients have the weights'.

    Points with the same largest output receive equal parts of its gradient, as in `torch.amax`.

    Args:
        layers: The layers.
        points: (clouds, points, n), inputs of the first layer, without gradients.
        present: (clouds, points) bool; other points are left out.

    Returns:
        (clouds, units) in the precision of the weights; zeros where no point is present.
    """
    *hidden, last = layers
    gradients = torch.is_grad_enabled()
    with torch.no_grad():
        largest, (clouds, units, chosen) = _find(hidden, last, points, present)
        if not gradients:
            return torch.relu(largest + last.bias)
        flat = clouds * points.shape[1] + chosen
        won = present.new_zeros(present.numel())
        won[flat] = True
        rows = (won.cumsum(0) - 1)[flat]
    with torch.autocast(points.device.type, enabled=False):
        inputs = points.flatten(0, 1)[won]
        for layer in hidden:
            inputs = torch.relu(layer(inputs))
        maxima: Any = _Maximum.apply(inputs, last.weight, largest, clouds, units, rows)
        return torch.relu(maxima + last.bias)


class _Maximum(torch.autograd.Function):
    """Outputs of a linear layer without bias, each for the input row that is largest."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        largest: torch.Tensor,
        clouds: torch.Tensor,
        units: torch.Tensor,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(inputs, weight, clouds, units, rows)
        return largest.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (slopes,) = grad_outputs
        inputs, weight, clouds, units, rows = ctx.saved_tensors
        outputs = clouds * slopes.shape[1] + units
        equal = torch.bincount(outputs, minlength=slopes.numel())[outputs]
        shares = slopes.flatten()[outputs] / equal
        of_inputs = None  # Points need no gradient.
        if ctx.needs_input_grad[0]:
            of_inputs = weighted_sums(weight, units, shares, rows, len(inputs))
        of_weight = weighted_sums(inputs, rows, shares, units, len(weight))
        return of_inputs, of_weight, None, None, None, None


def weighted_sums(
    rows: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    targets: torch.Tensor,
    count: int,
) -> torch.Tensor:
    """Returns weighted sums of rows: result[targets[i]] is the sum of weights[i] rows[chosen[i]].

    Args:
        rows: (r, n).
        chosen: (N,) indices of rows.
        weights: (N,) weights of the chosen rows.
        targets: (N,) indices of sums.
        count: Number of sums.

    Returns:
        (count, n).
    """
    order = targets.argsort(stable=True)
    counts = torch.bincount(targets, minlength=count)
    return functional.embedding_bag(
        chosen[order],
        rows,
        counts.cumsum(0) - counts,
        mode="sum",
        per_sample_weights=weights[order],
    )


def _find(
    hidden: Sequence[nn.Linear], last: nn.Linear, points: torch.Tensor, present: torch.Tensor
) -> tuple[torch.Tensor, Winners]:
    """Returns the largest outputs without bias, (clouds, units), and their points.

    They are -inf in clouds without points.
    """
    largest = points.new_full((len(points), last.out_features), -torch.inf)
    found: list[Winners] = []
    for clouds, kept, there in _blocks(present):
        units = points[clouds[:, None], kept].flatten(0, 1)
        for layer in hidden:
            units = layer(units).relu_()
        outputs = functional.linear(units, last.weight).unflatten(0, kept.shape)
        if not bool(there.all()):
            outputs[~there] = -torch.inf
        block, winners = _winners(outputs, last.bias)
        largest[clouds] = block.to(largest.dtype)
        found += [(clouds[cloud], unit, kept[cloud, point]) for cloud, unit, point in winners]
    if not found:
        none = torch.zeros(0, dtype=torch.int64, device=points.device)
        return largest, (none, none, none)
    clouds, units, chosen = (torch.cat(parts) for parts in zip(*found, strict=True))
    return largest, (clouds, units, chosen)


def _blocks(present: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yields clouds with about as many points each, without empty clouds.

    Args:
        present: (clouds, points) bool.

    Yields:
        Indices of c clouds; the indices of their points, (c, p), present ones first; and a mask of
        the present ones, (c, p) bool.
    """
    counts = present.sum(1)
    order = counts.argsort(descending=True)
    sizes = counts[order].tolist()
    kept = present.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    places = torch.arange(present.shape[1], device=present.device)
    at_once = _BLOCK * torch.get_num_threads()
    first = 0
    while first < len(sizes) and (size := sizes[first]) > 0:
        clouds = order[first : first + max(1, at_once // size)]
        yield clouds, kept[clouds, :size], places[:size] < counts[clouds, None]
        first += len(clouds)


def _winners(
    outputs: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, list[tuple[torch.Tensor, ...]]]:
    """Returns the largest outputs of clouds, (c, units), and their points.

    Args:
        outputs: (c, p, units); they are changed.
        bias: (units,).

    Returns:
        The largest outputs, and `Winners` in two parts, the first points and the others.
    """
    rows = outputs.unsqueeze(2).permute(0, 3, 1, 2)  # as an image, whose pooling is fast
    largest, first = functional.max_pool2d(rows, (outputs.shape[1], 1), return_indices=True)
    largest, first = largest[..., 0, 0], first[..., 0, 0]
    alive = largest + bias > 0
    clouds, units = alive.nonzero().unbind(1)
    winners = [(clouds, units, first[clouds, units])]
    if outputs.dtype == bias.dtype:  # under autocast, most are equal only by rounding
        outputs.scatter_(1, first[:, None], -torch.inf)
        clouds, units = (alive & (outputs.amax(1) == largest)).nonzero().unbind(1)
        equal = outputs[clouds, :, units] == largest[clouds, units, None]
        pairs, points = equal.nonzero().unbind(1)
        winners.append((clouds[pairs], units[pairs], points))
    return largest, winners
