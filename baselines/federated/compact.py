"""Robots' answers in few bytes: weights in few bits, second moments by their principal axes.

Numbers are rounded to the nearest level, without noise. The integers are then packed like raw
demonstrations (`storage.integers`).

    matrices         levels of the largest number of each row
    second moments   the root mean square of each number, and a factor F of their correlations
                     F^T F + D. These stay positive semidefinite; D is diagonal.
    others           bit for bit

If robots and server know the weights before training (`Known`), the difference is rounded instead.
Unchanged tensors are then not sent.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from fleet_merging.errors import MessageError
from fleet_merging.queries import wire
from fleet_tools.baselines.federated.messages import CODECS, Answer, LocalUpdate
from fleet_tools.baselines.federated.vectors import top_level
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.config.values import CountOrZero, Value
from fleet_tools.storage.integers import packed, unpacked
from fleet_tools.storage.strict_json import loads

MOST_NUMBERS = 2**27
"""Largest number of numbers in an answer."""

_MATRICES, _TARGETS = ("inputs.", "covariances"), "targets."
"""Names of second moments in messages, and of products of inputs and targets."""
_ROOT, _FACTOR, _SCALED = "root:", "factor:", "scaled:"
"""Prefixes of these names for moments by their axes."""
_LEFT, _RIGHT = "left:", "right:"
"""Prefixes of a weight's name for the two factors of its change."""

_OF_DATA, _LEAST_BITS = ("moments", "mixture"), 8
"""Kinds of answers that describe data, and their fewest bits: fits to moments of 4 bits fail."""

_SAME_BITS = {
    torch.bool: torch.uint8,
    torch.uint8: torch.uint8,
    torch.int64: torch.int64,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
_TYPES = {str(dtype): dtype for dtype in _SAME_BITS}


class UploadConfig(Value):
    """Compression of robots' answers, see `compact`.

    Attributes:
        bits: Number of bits of each number of a matrix, before packing; at least 8 of moments and
            mixtures. None loses nothing.
        rank: Largest number of principal axes of second moments that are sent, with `bits`; 0 for
            all axes that do not round to zero.
    """

    bits: Literal[4, 8, 16] | None = None
    rank: CountOrZero = 0

    @property
    def rounding(self) -> float:
        """Largest error of a rounded number, as a fraction of the largest of its row."""
        return 0.0 if self.bits is None else 0.5 / top_level(self.bits)


@dataclass(frozen=True, eq=False)
class Known:
    """Weights that robots and server share before training.

    Attributes:
        weights: The weights, by name.
        rank: Rank of the change of each matrix, which is sent as two factors; None for any rank.
    """

    weights: Tensors
    rank: int | None = None

    def changes(self, weights: Tensors) -> Tensors:
        """Returns the differences of weights from these.

        Raises:
            MessageError: They have other names or shapes.
        """
        if {k: each.shape for k, each in weights.items()} != self._shapes:
            raise MessageError("The weights have other names or shapes than the shared ones.")
        found: dict[str, torch.Tensor] = {}
        for name, each in weights.items():
            change = each - self.weights[name]
            if not change.any():
                continue
            rows = change.flatten(1) if change.dim() > 1 else None
            if rows is None or self.rank is None or self.rank * sum(rows.shape) >= rows.numel():
                found[name] = change
                continue
            U, sizes, V = torch.linalg.svd(rows.double(), full_matrices=False)
            roots = sizes[: self.rank].sqrt()
            found[_LEFT + name] = (U[:, : self.rank] * roots).T.to(change)
            found[_RIGHT + name] = (roots[:, None] * V[: self.rank]).to(change)
        return found

    def changed(self, changes: Tensors) -> Tensors:
        """Returns these weights with differences added.

        Raises:
            MessageError, RuntimeError: A difference has another name or shape.
        """
        found, shapes = dict(self.weights), self._shapes
        for name, each in changes.items():
            own, change = name.removeprefix(_LEFT), each
            if name.startswith(_RIGHT):
                continue
            if name.startswith(_LEFT):
                product = each.T @ changes[_RIGHT + own]
                change = product.reshape(shapes.get(own, product.shape))
            if change.shape != shapes.get(own):
                raise MessageError(f"{own}, of shape {tuple(change.shape)}, is no shared weight.")
            found[own] = self.weights[own] + change
        return found

    @property
    def _shapes(self) -> dict[str, torch.Size]:
        return {name: each.shape for name, each in self.weights.items()}


def encode(answer: Answer, config: UploadConfig, known: Known | None = None) -> bytes:
    """Returns an answer in few bytes.

    Args:
        answer: The answer.
        config: Its compression.
        known: Weights that robots and server share before; None if they share none.

    Raises:
        MessageError: It is not an answer.
    """
    if known is not None and isinstance(answer, LocalUpdate):
        answer = replace(answer, weights=known.changes(answer.weights))
    kind, tensors = wire.contents(answer, CODECS)
    bits = config.bits or 0
    if bits and kind in _OF_DATA:
        bits, tensors = max(bits, _LEAST_BITS), _by_axes(tensors, config.rank)
    fields, columns = [], []
    for name, tensor in tensors.items():
        rounded = tensor.dtype == torch.float32 and tensor.dim() > 1 and tensor.numel() > 0
        rounded &= not name.startswith(_ROOT) and bool(torch.isfinite(tensor).all())
        own = bits if rounded else 0
        fields.append([name, str(tensor.dtype), list(tensor.shape), own])
        if own:
            rows = tensor.flatten(1).double()
            largest = rows.abs().amax(1)
            levels = rows / _nonzero(largest)[:, None] * top_level(own)
            columns += [_integers(largest.float()), levels.round().long().flatten().numpy()]
        else:
            columns.append(_integers(tensor))
    header = json.dumps([kind, fields], separators=(",", ":")).encode()
    return packed([np.frombuffer(header, np.uint8), *columns])


def decode(data: bytes, known: Known | None = None) -> Any:
    """Returns the answer that arrives.

    Args:
        data: The bytes.
        known: See `encode`.

    Raises:
        MessageError: The bytes are no answer.
    """
    try:
        header, *columns = unpacked(data, MOST_NUMBERS)
        kind, fields = loads(header.astype(np.uint8).tobytes().decode())
        tensors, left = dict[str, torch.Tensor](), iter(columns)
        for name, dtype, shape, bits in fields:
            if bits == 0:
                numbers = torch.from_numpy(next(left))
                same = numbers.to(_SAME_BITS[_TYPES[dtype]]).view(_TYPES[dtype])
                tensors[name] = same.reshape(shape)
            else:
                largest = torch.from_numpy(next(left)).to(torch.int32).view(torch.float32)
                levels = torch.from_numpy(next(left)).reshape(len(largest), -1).double()
                rows = levels * largest.double()[:, None] / top_level(bits)
                tensors[name] = rows.float().reshape(shape)
        answer = wire.value_of(kind, _from_axes(tensors), CODECS)
        if known is not None and isinstance(answer, LocalUpdate):
            answer = replace(answer, weights=known.changed(answer.weights))
        return answer
    except (ValueError, TypeError, KeyError, RuntimeError, StopIteration) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(f"{len(data)} bytes are not a valid answer: {error}.") from None


def _by_axes(tensors: wire.Tensors, rank: int) -> wire.Tensors:
    """Returns content with second moments by their axes, and products in the same scale."""
    found: wire.Tensors = {}
    for name, tensor in tensors.items():
        if name.startswith(_MATRICES):
            matrices = wire.symmetric(tensor, name).double()
            root = matrices.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
            scale = _nonzero(root)
            values, vectors = torch.linalg.eigh(matrices / scale[:, :, None] / scale[:, None, :])
            axes = vectors * values.clamp(min=0).sqrt()[:, None, :]
            axes = axes.flip(2)[:, :, : rank or None].transpose(1, 2)
            found |= {_ROOT + name: root.float(), _FACTOR + name: axes.float()}
    for name, tensor in tensors.items():
        if name.startswith(_TARGETS):
            root = _nonzero(found[_ROOT + _MATRICES[0] + name.removeprefix(_TARGETS)])
            found[_SCALED + name] = (tensor / root[:, :, None]).transpose(1, 2).flatten(0, 1)
        elif not name.startswith(_MATRICES):
            found[name] = tensor
    return found


def _from_axes(tensors: wire.Tensors) -> wire.Tensors:
    """Returns content with second moments and products in the form of messages."""
    found: wire.Tensors = {}
    for name, tensor in tensors.items():
        if name.startswith(_FACTOR):
            root = tensors[_ROOT + name.removeprefix(_FACTOR)].double()
            axes = tensor.double()
            squares = axes.square().sum(1)
            axes = axes / squares.clamp(min=1.0).sqrt()[:, None, :]  # rounding may exceed 1
            matrices = axes.transpose(1, 2) @ axes
            matrices.diagonal(dim1=1, dim2=2).fill_(1.0)
            matrices = matrices * root[:, :, None] * root[:, None, :]
            found[name.removeprefix(_FACTOR)] = wire.triangles_of(matrices).float()
        elif name.startswith(_SCALED):
            own = name.removeprefix(_SCALED)
            root = tensors[_ROOT + _MATRICES[0] + own.removeprefix(_TARGETS)]
            products = tensor.unflatten(0, (len(root), -1)).transpose(1, 2)
            found[own] = (products * root[:, :, None]).contiguous()
        elif not name.startswith(_ROOT):
            found[name] = tensor
    return found


def _nonzero(numbers: torch.Tensor) -> torch.Tensor:
    return torch.where(numbers > 0, numbers, 1.0)


def _integers(tensor: torch.Tensor) -> np.ndarray:
    """Returns the numbers of a tensor as integers of the same bits."""
    same = tensor.contiguous().view(_SAME_BITS[tensor.dtype])
    return same.flatten().long().numpy()
