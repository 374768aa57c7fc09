"""Folds different input and output statistics of models into weights, so that all scale alike.

An average of such models would misread its inputs. But a scaling before an affine map is an affine
map, too. Let z_i = D z + c, where model i gives z_i to the map and the common scaling z. Then
W z_i + b = (W D) z + (W c + b). So each model gets the common statistics, and weights with the same
outputs. Likewise, a scaling of the last map's outputs is folded into it.

Models may scale in any way, by means, ranges or quantiles. D and c are fitted to the inputs of
maps,
in double precision, also far outside of the example. If the fit is not exact, as after a clip, a
tanh or a norm, the scaling cannot be folded.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from fleet_merging.average import average
from fleet_merging.buffers import learned_tensors
from fleet_merging.errors import MergeError, SymmetryWarning
from fleet_merging.modules import (
    as_arguments,
    copied,
    load_tensors,
    tensors_of,
    uncompiled,
)
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.rows import applied_maps, reading
from fleet_merging.symmetry.table import State

_SPREADS = (1.0, 30.0, 1000.0)
"""Deviations of the noise added to the example in trials, relative to its numbers. Large ones
reveal
clips."""

_TOLERANCE = 1e-6
"""Tolerance of trials in double precision, relative to the largest number."""


def with_common_buffers(
    module: nn.Module,
    models: Sequence[nn.Module | State],
    states: Sequence[State],
    example: Any,
    output: Callable[[Any], Any],
) -> list[State]:
    """Returns models with equal buffers and unchanged outputs.

    Buffers are statistics if they are numbers, differ, and are no BatchNorm's.
    Buffers in state dicts are replaced by their mean, and buffers that are not persistent by the
    architecture's.

    Args:
        module: The architecture.
        models: The models, modules or state dicts.
        states: Their state dicts.
        example: See `folded`.
        output: Selects the outputs.

    Returns:
        The same models, if they have no such buffers; or, with a warning, if they cannot be folded.
    """
    if any(state.keys() != states[0].keys() for state in states):
        return list(states)  # refused later
    learned = learned_tensors(states[0])
    names = [name for name, _ in module.named_buffers() if name in learned]
    differing = [n for n in names if any(not torch.equal(states[0][n], s[n]) for s in states)]
    unstored = {n: b for n, b in module.named_buffers() if n not in states[0]}
    own = [dict(model.named_buffers()) if isinstance(model, nn.Module) else {} for model in models]
    hidden = [
        name
        for name, each in unstored.items()
        if each.is_floating_point() and any(not torch.equal(each, o.get(name, each)) for o in own)
    ]
    if not differing and not hidden:
        return list(states)
    mean = average([{name: state[name] for name in differing} for state in states])
    made = []
    for model, state in zip(models, states, strict=True):
        one = copied(model if isinstance(model, nn.Module) else module)
        common = copied(module)
        load_tensors(one, state)
        load_tensors(common, {**state, **mean})
        try:
            made.append({**folded(one, common, as_arguments(example), output), **mean})
        except Exception as error:  # such as of a model that does not run in double precision
            warnings.warn(
                f"The buffers {', '.join(differing + hidden)} differ between the models, as "
                f"scaling statistics do, and are merged like other entries: {error}",
                SymmetryWarning,
                stacklevel=2,
            )
            return list(states)
    return made


@torch.no_grad()
def folded(
    own: nn.Module,
    common: nn.Module,
    example: tuple[Any, ...],
    output: Callable[[Any], Any] = lambda outputs: outputs,
    unscaled: tuple[str, ...] = (),
) -> dict[str, torch.Tensor]:
    """Returns weights that make one module compute the same as another.

    Args:
        own: A model.
        common: The same model, but for scalings before affine maps and after the last one.
        example: Arguments of both.
        output: Selects the outputs.
        unscaled: Prefixes of the names of maps without scaled inputs, which saves time.

    Returns:
        A state dict of `common`.

    Raises:
        MergeError: No weights make them equal; the message names the difference.
    """
    own, trial = copied(own).double(), copied(common).double()
    trials = [_doubled(example, None)]
    for seed, spread in enumerate(_SPREADS):
        generator = torch.Generator().manual_seed(seed)
        trials.append(_doubled(example, lambda x: x + _noise(x, spread, generator)))  # noqa: B023
    with uncompiled():
        maps = [m for m in applied_maps(own, *trials[0]) if not m.name.startswith(unscaled)]
        if not maps:
            raise MergeError("the model has no affine map. Train models with the same statistics.")
        for each in maps:  # one at a time, as the patches of all convolutions are large
            wanted, _ = _read(own, each.name, trials, output)
            rows, _ = _read(trial, each.name, trials, output)
            if not _equal(rows, wanted):
                matrix = _behind(each, tensors_of(trial), rows, wanted)
                load_tensors(trial, each.with_matrix(tensors_of(trial), matrix))
        last = maps[-1]
        _, answers = _read(own, last.name, trials, output)
        rows, given = _read(trial, last.name, trials, output)
        if not _equal(given, answers):
            matrix = _before(last.matrix(tensors_of(trial)), rows, given, answers)
            load_tensors(trial, last.with_matrix(tensors_of(trial), matrix))
            _, given = _read(trial, last.name, trials, output)
    if not _equal(given, answers):
        raise MergeError(
            "its effect cannot be folded into an affine map, because of a clip, a tanh or a gate. "
            "Train the models with the same statistics."
        )
    form = tensors_of(common)
    return {name: tensor.to(form[name]) for name, tensor in tensors_of(trial).items()}


def _behind(
    each: AffineMap, state: State, rows: torch.Tensor, wanted: torch.Tensor
) -> torch.Tensor:
    """Returns a map's matrix for rows z, in place of z_i = D z + c; both (groups, n, in)."""
    matrix = each.matrix(state)
    width = each.weights[0].of(state)[0].numel()  # a hidden state follows, of the same numbers
    factor, offset = _fitted(rows[..., :width], wanted[..., :width])
    if not _equal(factor * rows[..., :width] + offset, wanted[..., :width]):
        raise MergeError(
            f"{each.name!r} has inputs that are not only shifted and scaled, because of a clip, a "
            "norm or zero padding. Train the models with the same statistics."
        )
    if bool(offset.any()) and not each.biases:
        raise MergeError(f"{each.name!r} has no bias for the shift. Give it one.")
    changed = matrix.clone()
    changed[:, -1] += (offset @ matrix[:, :width]).squeeze(1)
    changed[:, :width] *= factor.transpose(1, 2)
    return changed


def _before(
    matrix: torch.Tensor, rows: torch.Tensor, given: torch.Tensor, answers: torch.Tensor
) -> torch.Tensor:
    """Returns the matrix of the last map for a scaling P h + p of its outputs h, not Q h + q."""
    units = rows @ matrix[:, :-1] + matrix[:, -1:]
    shape = (1, -1, units.shape[-1])
    if len(matrix) > 1 or given.numel() != units.numel():
        return matrix
    (P, p), (Q, q) = (_fitted(units, each.reshape(shape)) for each in (answers, given))
    if not bool((Q != 0).all()):
        return matrix
    changed = matrix * (P / Q)
    changed[:, -1] += ((p - q) / Q).squeeze(1)
    return changed


def _fitted(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns factors and offsets of each column, (groups, 1, in), by its two farthest rows."""
    low, high = x.argmin(1, keepdim=True), x.argmax(1, keepdim=True)
    first, second = x.gather(1, low), x.gather(1, high)
    reach = second - first
    varies = reach > 0
    factor = (y.gather(1, high) - y.gather(1, low)) / reach.where(varies, torch.ones_like(reach))
    factor = factor.where(varies, torch.ones_like(factor))
    middle = (x - first).abs().argmin(1, keepdim=True)
    return factor, y.gather(1, middle) - factor * x.gather(1, middle)


def _read(
    model: nn.Module,
    name: str,
    trials: Sequence[tuple[Any, ...]],
    output: Callable[[Any], Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the inputs of a map in all trials, (groups, n, in), and the outputs, flat."""
    with reading(model, [name]) as found:
        answers = [output(model(*each)).flatten() for each in trials]
    return torch.cat(found[name], 1), torch.cat(answers)


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    scale = max(float(other.abs().max()), 1e-30) if other.numel() else 1.0
    return one.shape == other.shape and float((one - other).abs().max()) <= _TOLERANCE * scale


def _noise(x: torch.Tensor, spread: float, generator: torch.Generator) -> torch.Tensor:
    return spread * (1 + x.abs()) * torch.randn(x.shape, generator=generator).to(x)


def _doubled(value: Any, change: Callable[[torch.Tensor], torch.Tensor] | None) -> Any:
    """Returns arguments in double precision, with numbers perhaps changed."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double() if change is None else change(value.double())
    if isinstance(value, Mapping):
        return {key: _doubled(each, change) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_doubled(each, change) for each in value)
    return value
