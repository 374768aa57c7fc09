"""Check of a table against a model, by random permutations: Proposition 1 of the paper."""

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
    """Checks that random permutations change no output, and that the table is complete.

    The model itself is not changed: a copy is run in evaluation mode, in float64 if the model
    supports that, with every weight and statistic changed a little, since those of a new model (a
    BatchNorm's ones and zeros) are the same in any order. Each permutation is tested alone, then
    all together; each must have an effect on the outputs if it is applied to one parameter only.

    Args:
        symmetry: The table.
        model: Any module that gives the same outputs for the same inputs.
        example: Its argument, or a tuple of its arguments; a batch of a few different ones.
        output: Selects what must not change from what the model returns. A recurrent model's
            hidden state is permuted with its units, so select only the outputs.
        draws: Number of random elements.
        tolerance: Largest allowed change, relative to the largest output or 1.
        seed: Seed of the draws.

    Raises:
        UncoveredParameterError: A parameter or buffer is missing in the table; the message names
            it and its layer.
        AxisSizeError: A shape does not fit its axes.
        NotInvariantError: The outputs change, are not finite, are no function of the inputs, or do
            not depend on a permutation's units at all.
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
            _keep_largest(changes, name, _change(expected, function(alone)))
            # If the units had no effect, any table would pass. (Units of one parameter only, such
            # as queries beside their keys, may be permuted in it without an effect.)
            moved = [key for key in state if not torch.equal(state[key], alone[key])]
            effects = (_change(expected, function({**state, key: alone[key]})) for key in moved)
            if len(moved) > 1 and not any(change > tolerance for change in effects):
                raise NotInvariantError(_without_effect(name, moved))
        together = symmetry.apply(element, state)
        _keep_largest(changes, "all together", _change(expected, function(together)))
    failing = {name: change for name, change in changes.items() if not change <= tolerance}
    if failing:
        raise NotInvariantError(_report(symmetry, failing, tolerance))


def _draw(group: PermutationGroup, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns a random element without an identity under any name of more than one unit."""
    element, ordered = group.random(generator), group.identity()
    for name, shape in group.sizes.items():
        while shape[-1] > 1 and np.array_equal(element[name], ordered[name]):
            element[name] = generator.permuted(ordered[name], axis=-1)
    return element


def _keep_largest(changes: dict[str, float], name: str, change: float) -> None:
    changes[name] = float(np.maximum(change, changes.get(name, 0.0)))  # preserves NaN


def _without_effect(name: str, moved: list[str]) -> str:
    return (
        f"The outputs hardly depend on the units of {name!r} ({_listing(moved)}), so any axes "
        "would pass. Give an example that activates them, or compare more outputs."
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
            str(error) + (f" In this model, {'; '.join(kinds)}." if kinds else "")
        ) from None


def _trial(
    model: torch.nn.Module, example: Any, output: Callable[[Any], Any], seed: int
) -> tuple[Callable[[State], list[torch.Tensor]], dict[str, torch.Tensor]]:
    """Returns the outputs as a function of a state dict, and the state at which to test it."""
    arguments = example if isinstance(example, tuple) else (example,)

    def prepare(
        dtype: torch.dtype | None,
    ) -> tuple[Callable[[State], list[torch.Tensor]], dict[str, torch.Tensor]]:
        trial = copy.deepcopy(model).eval()
        trial = trial if dtype is None else trial.to(dtype)
        inputs = [_cast(argument, dtype) for argument in arguments]

        @torch.no_grad()
        def function(state: State) -> list[torch.Tensor]:
            trial.load_state_dict(state)
            return [tensor.detach().clone() for tensor in _tensors(output(trial(*inputs)))]

        return function, _perturbed(trial.state_dict(), seed)

    function, state = prepare(torch.float64)
    try:
        function(state)
    except RuntimeError:  # it computes in its own precision
        return prepare(None)
    return function, state


def _cast(value: Any, dtype: torch.dtype | None) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if dtype is not None and value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {name: _cast(item, dtype) for name, item in value.items()}
    if type(value) in (tuple, list):  # not a named tuple, whose constructor differs
        return type(value)(_cast(item, dtype) for item in value)
    return value


def _perturbed(state: State, seed: int) -> dict[str, torch.Tensor]:
    # Upwards only, so that variances stay positive.
    generator = torch.Generator().manual_seed(seed)

    def perturbed(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor.clone()
        scale, shift = torch.rand((2, *tensor.shape), generator=generator, dtype=torch.float64)
        scale, shift = scale.to(tensor), shift.to(tensor)
        # Relative to the tensor's mean, or else a wide layer's sums would saturate its tanh.
        size = float(tensor.abs().mean()) or 1.0
        return tensor * (1 + 0.3 * scale) + 0.1 * min(size, 1.0) * shift

    return {name: perturbed(tensor) for name, tensor in state.items()}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def _require_usable(outputs: list[torch.Tensor], repeated: list[torch.Tensor]) -> None:
    if not outputs:
        raise NotInvariantError(
            "The model returns no tensor to compare. Pass `output`, which selects tensors from "
            "what it returns."
        )
    if not all(bool(torch.isfinite(tensor).all()) for tensor in outputs):
        raise NotInvariantError("The model's outputs are not finite. Give another example.")
    if _change(outputs, repeated) > 0:
        raise NotInvariantError(
            "The model's outputs differ between two calls with the same inputs. Make what it draws "
            "an argument, or select its mean with `output`."
        )


def _change(expected: list[torch.Tensor], actual: list[torch.Tensor]) -> float:
    """Returns the largest difference, relative to the largest output or 1; NaN if there is one."""
    changes = [
        (one.double() - other.double()).abs().max() / one.double().abs().max().clamp(min=1)
        for one, other in zip(expected, actual, strict=True)
        if one.numel()
    ]
    return float(torch.stack(changes).max()) if changes else 0.0


def _report(symmetry: Symmetry, failing: Mapping[str, float], tolerance: float) -> str:
    lines = []
    for name, change in failing.items():
        parameters = [
            f"{parameter} {text!r}"
            for parameter, text in symmetry.table().items()
            if any(
                name == factor.name
                for axis in symmetry.axes[parameter]
                for product in axis
                for factor in product
            )
        ]
        listed = f" ({_listing(parameters)})" if parameters else ""
        lines.append(f"{name} changes them by {change:.2g}{listed}")
    return (
        f"The outputs are not the same, to {tolerance:g}, under the permutations of the table: "
        f"{'; '.join(lines)}. Correct the axes, or fix them with a leading `_`."
    )


def _listing(items: list[str]) -> str:
    rest = f" and {len(items) - 6} more" if len(items) > 6 else ""
    return ", ".join(items[:6]) + rest
