"""Whether a table is true of a model: Proposition 1, tried out."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fleet_tools.baselines.merging.errors import NotInvariantError, UncoveredParameterError
from fleet_tools.baselines.merging.symmetry.group import PermutationGroup
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry, require_covered


def check(
    symmetry: Symmetry | Mapping[str, str],
    model: torch.nn.Module,
    example: Any,
    *,
    output: Callable[[Any], Any] = lambda outputs: outputs,
    draws: int = 3,
    tolerance: float = 1e-5,
    seed: int = 0,
) -> None:
    """Draws random permutations, and demands the same outputs and that nothing is left out.

    The model itself stays as it is: a copy is tried in evaluation mode, in float64 where the model
    can compute with that, and with every weight and statistic moved a little, since those of a new
    model (a BatchNorm's ones and zeros) are the same however they are ordered. Each permutation is
    tried alone, then all at once; each must matter to the outputs.

    Args:
        symmetry: The table.
        model: Any module that gives the same outputs for the same inputs.
        example: Its argument, or a tuple of its arguments; a batch of a few different ones.
        output: Takes what is to stay equal from what the model returns. A recurrent model's hidden
            state is permuted with its units, so take the outputs beside it.
        draws: How many random elements are tried of each kind.
        tolerance: Largest allowed difference, relative to the largest output or 1.
        seed: Of the draws.

    Raises:
        UncoveredParameterError: A parameter or buffer is missing from the table; the message names
            it and its layer.
        AxisSizeError: A shape does not fit its axes.
        NotInvariantError: Outputs change, are not finite, are no function of the inputs, or do not
            depend on a permutation's units at all.
    """
    symmetry = symmetry if isinstance(symmetry, Symmetry) else Symmetry.of(symmetry)
    _require_layers_covered(symmetry, model)
    function, state = _trial(model, example, output, seed)
    expected = function(state)
    _require_usable(expected, function(state))
    group = symmetry.group(state)
    generator = np.random.default_rng(seed)
    changes: dict[str, float] = {}
    for _ in range(draws):
        element = _draw(group, generator)
        for name in group.sizes:
            alone = symmetry.apply(group.identity() | {name: element[name]}, state)
            _note(changes, name, _change(expected, function(alone)))
            # Were the units not to matter, any table would pass. (What lies in one parameter
            # alone, as queries beside their keys do, may be permuted there without effect.)
            moved = [key for key in state if not torch.equal(state[key], alone[key])]
            felt = (_change(expected, function({**state, key: alone[key]})) for key in moved)
            if len(moved) > 1 and not any(change > tolerance for change in felt):
                raise NotInvariantError(_unfelt(name, moved))
        together = symmetry.apply(element, state)
        _note(changes, "all at once", _change(expected, function(together)))
    failing = {name: change for name, change in changes.items() if not change <= tolerance}
    if failing:
        raise NotInvariantError(_report(symmetry, failing, tolerance))


def _draw(group: PermutationGroup, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """A random element that reorders something under every name of more than one unit."""
    element, ordered = group.random(generator), group.identity()
    for name, shape in group.sizes.items():
        while shape[-1] > 1 and np.array_equal(element[name], ordered[name]):
            element[name] = generator.permuted(ordered[name], axis=-1)
    return element


def _note(changes: dict[str, float], name: str, change: float) -> None:
    changes[name] = float(np.maximum(change, changes.get(name, 0.0)))  # not a number stays so


def _unfelt(name: str, moved: list[str]) -> str:
    return (
        f"The outputs hardly depend on the units of {name!r} ({_some(moved)}), so any axes would "
        "pass. Give an example that stirs them, or compare more outputs."
    )


def _require_layers_covered(symmetry: Symmetry, model: torch.nn.Module) -> None:
    state = model.state_dict()
    try:
        require_covered(symmetry, state)
    except UncoveredParameterError as error:
        modules = dict(model.named_modules())
        layers = {name.rpartition(".")[0] for name in state if name not in symmetry.axes}
        kinds = [
            f"{layer or 'the model'} is a {type(modules.get(layer)).__name__}"
            for layer in sorted(layers)
        ]
        raise UncoveredParameterError(
            str(error) + (f" There, {'; '.join(kinds)}." if kinds else "")
        ) from None


def _trial(
    model: torch.nn.Module, example: Any, output: Callable[[Any], Any], seed: int
) -> tuple[Callable[[State], list[torch.Tensor]], dict[str, torch.Tensor]]:
    """The outputs as a function of a state dict, and the state to try it with."""
    arguments = example if isinstance(example, tuple) else (example,)

    def prepare(dtype: torch.dtype | None):
        trial = copy.deepcopy(model).eval()
        trial = trial if dtype is None else trial.to(dtype)
        inputs = [_cast(argument, dtype) for argument in arguments]

        @torch.no_grad()
        def function(state: State) -> list[torch.Tensor]:
            trial.load_state_dict(state)
            return [tensor.detach().clone() for tensor in _tensors(output(trial(*inputs)))]

        return function, _moved(trial.state_dict(), seed)

    function, state = prepare(torch.float64)
    try:
        function(state)
    except RuntimeError:  # it computes with a precision of its own
        return prepare(None)
    return function, state


def _cast(value: Any, dtype: torch.dtype | None) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if dtype is not None and value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {name: _cast(item, dtype) for name, item in value.items()}
    if type(value) in (tuple, list):  # and no named tuple, which is made in another way
        return type(value)(_cast(item, dtype) for item in value)
    return value


def _moved(state: State, seed: int) -> dict[str, torch.Tensor]:
    # Upwards only, so that variances stay positive.
    generator = torch.Generator().manual_seed(seed)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor.clone()
        scale, shift = torch.rand((2, *tensor.shape), generator=generator, dtype=torch.float64)
        scale, shift = scale.to(tensor), shift.to(tensor)
        # By the tensor's own measure, lest a wide layer's sums grow and its tanh saturate.
        size = float(tensor.abs().mean()) or 1.0
        return tensor * (1 + 0.3 * scale) + 0.1 * min(size, 1.0) * shift

    return {name: moved(tensor) for name, tensor in state.items()}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def _require_usable(outputs: list[torch.Tensor], again: list[torch.Tensor]) -> None:
    if not outputs:
        raise NotInvariantError(
            "The model returns no tensor to compare. Pass `output`, which takes them from what it "
            "returns."
        )
    if not all(bool(torch.isfinite(tensor).all()) for tensor in outputs):
        raise NotInvariantError("The model's outputs are not finite. Give another example.")
    if _change(outputs, again) > 0:
        raise NotInvariantError(
            "The model's outputs differ between two calls with the same inputs. Make what it draws "
            "an argument, or take its mean with `output`."
        )


def _change(expected: list[torch.Tensor], got: list[torch.Tensor]) -> float:
    """The largest difference, relative to the largest output or 1; not a number stays so."""
    changes = [
        (ours.double() - theirs.double()).abs().max() / ours.double().abs().max().clamp(min=1)
        for ours, theirs in zip(expected, got, strict=True)
        if ours.numel()
    ]
    return float(torch.stack(changes).max()) if changes else 0.0


def _report(symmetry: Symmetry, failing: Mapping[str, float], tolerance: float) -> str:
    lines = []
    for name, change in failing.items():
        where = [
            f"{parameter} {text!r}"
            for parameter, text in symmetry.table().items()
            if any(
                name == factor.name
                for axis in symmetry.axes[parameter]
                for product in axis
                for factor in product
            )
        ]
        lines.append(f"{name} changes them by {change:.2g}" + f" ({_some(where)})" * bool(where))
    return (
        f"The outputs are not the same, to {tolerance:g}, under the permutations of the table: "
        f"{'; '.join(lines)}. Mend the axes named, or fix them with a leading `_`."
    )


def _some(items: list[str]) -> str:
    rest = f" and {len(items) - 6} more" if len(items) > 6 else ""
    return ", ".join(items[:6]) + rest
