"""Data holders of loaders: batches of inputs and labels, held in memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fleet_merging.errors import MergeError, MergingError
from fleet_merging.modules import copied, load_tensors, tensors_in, tensors_of, uncompiled
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.measurement import LabelledBatch
from fleet_merging.queries.data_holder import LocalDataHolder, Policy
from fleet_merging.symmetry.table import State

BatchLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""loss(outputs, labels): a differentiable scalar, the mean over a batch."""

_IGNORED = -100
"""Label that PyTorch's cross entropy ignores."""


@dataclass(frozen=True, eq=False)
class LabelledInputs:
    """A batch of a loader: arguments of a model, and labels.

    Labels are class numbers (n, ...), or targets of the outputs' shape.
    """

    arguments: tuple[Any, ...]
    labels: torch.Tensor


def read_loader(loader: Any, name: str) -> tuple[LabelledInputs, ...]:
    """Reads all batches (inputs, labels) of a loader into memory; messages call it `name`.

    Inputs are the model's argument or a tuple of its arguments, labels integers or floating-point
    numbers. Raises a `MergeError` if it is no such iterable, has no batches, or holds NaN or
    infinity.
    """
    if isinstance(loader, torch.Tensor | Mapping | str) or not isinstance(loader, Iterable):
        raise MergeError(
            f"{name} is a {type(loader).__name__}. Give an iterable of batches (inputs, labels), "
            "such as a torch.utils.data.DataLoader or a list, or a data holder."
        )
    batches = tuple(_read_batch(batch, f"batch {i} of {name}") for i, batch in enumerate(loader))
    if not batches:
        again = " It is an iterator, which is read only once." if iter(loader) is loader else ""
        raise MergeError(f"{name} has no batches.{again} Give at least one.")
    return batches


def _read_batch(batch: Any, name: str) -> LabelledInputs:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        shown = f"{len(batch)} values" if isinstance(batch, tuple | list) else type(batch).__name__
        raise MergeError(
            f"{name} is {shown}; expected a pair of inputs and labels. Give (inputs, labels)."
        )
    inputs, labels = batch
    if not isinstance(labels, torch.Tensor) or labels.dtype == torch.bool or labels.is_complex():
        kind = labels.dtype if isinstance(labels, torch.Tensor) else type(labels).__name__
        raise MergeError(
            f"The labels of {name} are {kind}. Give a tensor of class numbers (integers) or of "
            "targets (floating-point numbers)."
        )
    arguments = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    for tensor in (*tensors_in(arguments), labels):
        if not bool(torch.isfinite(tensor).all()):
            raise MergeError(f"{name} holds NaN or infinity. Leave such rows out.")
    return LabelledInputs(arguments, labels)


def read_data(data: Sequence[Any] | None, count: int) -> list[Any]:
    """Returns for each model its batches as a tuple, or its data holder.

    Raises a `MergeError` if data are no list, or not one for each model; or see `read_loader`.
    """
    if data is None:
        return []
    if not isinstance(data, Sequence):
        raise MergeError(
            f"The data are one {type(data).__name__}. Give a list with the data of each model: "
            "[loader_one, loader_other]."
        )
    if len(data) != count:
        raise MergeError(
            f"There are data for {len(data)} models, but {count} models. Give each model its own "
            "data, in the same order."
        )
    return [
        each if hasattr(each, "answer") else read_loader(each, f"The data of model {index}")
        for index, each in enumerate(data)
    ]


def loss_of(outputs: Any, batch: LabelledInputs, loss: BatchLoss | None) -> torch.Tensor:
    """Returns the loss of a batch: cross entropy for class numbers, otherwise squared errors.

    Raises a `MergeError` if outputs do not fit the labels, or the loss is no scalar.
    """
    if loss is not None:
        value = loss(outputs, batch.labels)
        if not isinstance(value, torch.Tensor) or value.dim():
            kind = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise MergeError(f"The loss returned {kind}. Return a scalar tensor, such as a mean.")
        return value
    if not isinstance(outputs, torch.Tensor):
        raise MergeError(
            f"The model returned a {type(outputs).__name__}. Give an `output` that selects one "
            "tensor."
        )
    labels, shape = batch.labels, outputs.shape
    if labels.is_floating_point():
        if shape != labels.shape:
            raise MergeError(
                f"The model returned {tuple(shape)} for labels {tuple(labels.shape)}, so their "
                "difference would have another shape. Reshape the labels, or give a `loss`."
            )
        return (outputs - labels.to(outputs)).square().mean()
    if shape[:-1] == labels.shape:
        outputs = outputs.flatten(0, -2) if outputs.dim() > 1 else outputs[None]
        number = shape[-1]
    elif outputs.dim() > 2 and (shape[0], *shape[2:]) == tuple(labels.shape):
        number, outputs = shape[1], outputs.movedim(1, -1).flatten(0, -2)
    else:
        raise MergeError(
            f"The model returned {tuple(shape)} for class numbers of the shape "
            f"{tuple(labels.shape)}. Return one score for each class, or give a `loss`."
        )
    flat = labels.flatten().long()
    if bool(((flat >= number) | ((flat < 0) & (flat != _IGNORED))).any()):
        raise MergeError(
            f"Labels range from {int(flat.min())} to {int(flat.max())}, but the model has {number} "
            "classes, numbered from 0."
        )
    return functional.cross_entropy(outputs, flat)


def make_holder(
    module: torch.nn.Module,
    batches: Sequence[LabelledInputs],
    last: AffineMap | None,
    loss: BatchLoss | None = None,
    output: Callable[[Any], Any] = lambda outputs: outputs,
    resized: torch.nn.Module | None = None,
) -> LocalDataHolder:
    """Returns a data holder of batches, with a copy of a module in evaluation mode.

    A query without a seed gets the mean over all batches, weighted by their numbers of labels. A
    query with a seed gets a batch that the seed draws.

    `last` is the affine map that returns the outputs, with a label for each row. Class numbers
    become rows of zeros and a one. None refuses queries for moments. `resized` is an architecture
    of other sizes for these queries.
    """
    model = copied(module)
    other = None if resized is None else copied(resized)

    def of_batch(policy: Policy, batch: LabelledInputs) -> torch.Tensor:
        return loss_of(output(policy(*batch.arguments)), batch, loss)

    def of_all(policy: Policy, seed: int | None) -> torch.Tensor:
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            return of_batch(
                policy, batches[int(torch.randint(len(batches), (), generator=generator))]
            )
        counts = [max(1, batch.labels.numel()) for batch in batches]
        losses = [
            of_batch(policy, batch) * (count / sum(counts))
            for batch, count in zip(batches, counts, strict=True)
        ]
        return torch.stack(losses).sum()

    if last is None:
        return LocalDataHolder(model, of_all)
    width = last.matrix(tensors_of(model)).shape[2] * last.groups

    def labelled() -> Iterator[LabelledBatch]:
        for batch in batches:
            yield _labelled(batch, width)

    return LocalDataHolder(model, of_all, labelled, resized=lambda state: other)


def _labelled(batch: LabelledInputs, width: int) -> LabelledBatch:
    if batch.labels.is_floating_point():
        if batch.labels.numel() % width:
            raise MergeError(
                f"Labels of the shape {tuple(batch.labels.shape)} do not fit the last affine map, "
                f"which returns rows of {width} numbers."
            )
        return LabelledBatch(batch.arguments, batch.labels.reshape(-1, width))
    flat = batch.labels.flatten().long()
    kept = flat != _IGNORED
    if bool((kept & ((flat >= width) | (flat < 0))).any()):
        raise MergeError(f"Some labels exceed the {width} outputs of the last affine map.")
    rows = functional.one_hot(flat.where(kept, torch.zeros_like(flat)), width).float()
    return LabelledBatch(batch.arguments, rows, None if bool(kept.all()) else kept.float())


def require_usable_data(
    module: nn.Module,
    state: State,
    pool: Sequence[LabelledInputs],
    loss: BatchLoss | None,
    output: Callable[[Any], Any],
) -> None:
    """Raises a `MergeError` unless a model runs on the first batch, with a finite loss."""
    batch = pool[0]
    try:
        trial = copied(module)
        load_tensors(trial, state)
        with torch.no_grad(), uncompiled():
            outputs = trial(*batch.arguments)
            value = loss_of(output(outputs), batch, loss)
    except MergingError:
        raise
    except Exception as error:
        raise MergeError(
            f"The model fails on the first batch of its data ({type(error).__name__}: {error}). "
            "Give batches of its arguments and labels, or a `loss` that fits them."
        ) from error
    if not bool(torch.isfinite(value)):
        raise MergeError(f"The loss of a model on the first batch of its data is {float(value)}.")
