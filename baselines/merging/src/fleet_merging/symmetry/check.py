"""Check of a table against a model, by random permutations: Proposition 1 of the paper."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fleet_merging.errors import (
    NotInvariantError,
    SymmetryWarning,
    UncoveredParameterError,
    WithoutEffectError,
    listed,
)
from fleet_merging.modules import tensors_of
from fleet_merging.symmetry.group import PermutationGroup
from fleet_merging.symmetry.table import Symmetry, require_covered
from fleet_merging.symmetry.trial import Outputs, SymmetryTrial, make_trial, redrawn

_TOLERANCE = 1e-5
"""Largest allowed change of the outputs, relative to the largest one or 1."""

_SEEN = 1e3
"""Ratio for tested axes: the change of the outputs by a permutation of one parameter alone,
relative to its change by a permutation of all."""

_ROUNDING = 1e-15
"""Least change of the outputs that counts as one, in float64."""


@dataclass(frozen=True)
class CheckReport:
    """Findings of a check of a true table.

    Attributes:
        sizes: Shape of every permutation, see `PermutationGroup`.
        parameters: Number of parameters and buffers.
        fixed: Parameters and buffers without a free axis.
        unused: Parameters and buffers without effect on the outputs for the example, such as of an
            uncalled module or an unused branch. Their axes are untested.
    """

    sizes: Mapping[str, tuple[int, ...]]
    parameters: int
    fixed: tuple[str, ...]
    unused: tuple[str, ...]

    @property
    def cautions(self) -> tuple[str, ...]:
        """Untested properties, a sentence each; `check` warns of them."""
        cautions = []
        if not self.sizes:
            cautions.append(
                f"The table fixes every axis of all {self.parameters} parameters, so there is "
                "nothing to test and nothing to align. Name the axes of hidden units."
            )
        if self.unused:
            verb = "does" if len(self.unused) == 1 else "do"
            cautions.append(
                f"{len(self.unused)} of {self.parameters} parameters {verb} not affect the outputs "
                f"for this example, so their axes are not tested: {listed(self.unused)}. Give an "
                "example that reaches them."
            )
        return tuple(cautions)

    def __str__(self) -> str:
        """Returns the counts, for people."""
        return (
            f"{len(self.sizes)} permutations; {len(self.fixed)} of {self.parameters} parameters "
            f"have no free axis, {len(self.unused)} no effect on the outputs"
        )


def check(
    symmetry: Symmetry | Mapping[str, str],
    model: torch.nn.Module,
    example: Any,
    *,
    output: Callable[[Any], Any] = lambda outputs: outputs,
    draws: int = 3,
    seed: int = 0,
) -> CheckReport:
    """Checks that random permutations change no output, and that the table is complete.

    The model itself is not changed. A copy runs in evaluation mode, in float64 if the model
    supports that, at weights for which every layer affects the outputs (see `trial`). Each
    permutation is tested alone, then all together. Applied to one parameter only, each must change
    the outputs a thousand times more than applied to all.

    Args:
        symmetry: The table.
        model: Any module that gives the same outputs for the same inputs.
        example: Its argument, or a tuple of its arguments; a batch of a few different ones.
        output: Selects the outputs to compare from the model's result. A recurrent model's hidden
            state is permuted with its units, so select only the outputs.
        draws: Number of random elements.
        seed: Seed of the draws.

    Raises:
        UncoveredParameterError: A parameter or buffer is missing in the table; the message names it
            and its layer.
        AxisSizeError: A shape does not fit its axes.
        NotInvariantError: The outputs change, are not finite, or are no function of the inputs. Or
            they do not depend on a permutation's units at all, or tied weights have different axes.

    Warns:
        SymmetryWarning: The table is true, but has no free axis, or parameters have no effect on
            the outputs for the example; see `CheckReport.cautions`.
    """
    symmetry = symmetry if isinstance(symmetry, Symmetry) else Symmetry.of(symmetry)
    _require_layers_covered(symmetry, model)
    trial = make_trial(model, example, output, seed)
    _require_tied(symmetry, trial)
    group = symmetry.group(trial.state)
    expected = trial.run(trial.state)
    _require_usable(expected, trial.run(trial.state))
    _test(symmetry, group, trial, expected, draws, seed)
    report = CheckReport(
        dict(group.sizes),
        len(symmetry.axes),
        tuple(name for name in symmetry.axes if not symmetry.free(name)),
        _unused(trial, expected, seed + 1),
    )
    for caution in report.cautions:
        warnings.warn(caution, SymmetryWarning, stacklevel=2)
    return report


def _test(
    symmetry: Symmetry,
    group: PermutationGroup,
    trial: SymmetryTrial,
    expected: Outputs,
    draws: int,
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    changes: dict[str, float] = {}
    effects: dict[str, float] = {}
    moved: dict[str, list[str]] = {}
    for _ in range(draws):
        element = _draw(group, generator)
        for name in group.sizes:
            alone = symmetry.apply(group.identity() | {name: element[name]}, trial.state)
            change = _change(expected, trial.run(alone))
            _keep_largest(changes, name, change)
            moved[name] = [
                key for key, value in trial.state.items() if not torch.equal(value, alone[key])
            ]
            for key in moved[name]:
                if effects.get(name, 0.0) > _SEEN * max(changes[name], _ROUNDING):
                    break
                single = {other: alone[other] for other in trial.aliases[key]}
                effect = _change(expected, trial.run({**trial.state, **single}))
                _keep_largest(effects, name, effect)
        together = symmetry.apply(element, trial.state)
        _keep_largest(changes, "all together", _change(expected, trial.run(together)))
    failing = {name: change for name, change in changes.items() if not change <= _TOLERANCE}
    if failing:
        raise NotInvariantError(_report(symmetry, failing))
    # If the units had no effect, any table would pass. (Units of one parameter only, such as
    # queries beside their keys, may be permuted in it without an effect.)
    idle = {
        name: keys
        for name, keys in moved.items()
        if len(keys) > 1 and effects[name] <= _SEEN * max(changes[name], _ROUNDING)
    }
    for name, keys in idle.items():
        raise WithoutEffectError(
            f"The outputs hardly depend on the units of {name!r} ({listed(keys)}), so any axes "
            "would pass. Give an example that activates them, or compare more outputs.",
            list(idle),
        )


def _unused(trial: SymmetryTrial, expected: Outputs, seed: int) -> tuple[str, ...]:
    """Returns the parameters that do not affect a single bit of the outputs.

    A bias that cancels out, such as of attention's keys, changes rounding errors.
    """
    changed, sensitive = redrawn(trial.state, seed), trial.sensitive()

    def affects(name: str) -> bool:
        single = {other: changed[other] for other in trial.aliases[name]}
        actual = trial.run({**trial.state, **single})
        return not all(map(torch.equal, expected, actual))

    return tuple(
        name
        for name, tensor in trial.state.items()
        if tensor.is_floating_point()
        and tensor.numel()
        and sensitive.isdisjoint(trial.aliases[name])
        and not affects(name)
    )


def _draw(group: PermutationGroup, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns a random element without an identity under any name of more than one unit."""
    element, ordered = group.random(generator), group.identity()
    for name, shape in group.sizes.items():
        while shape[-1] > 1 and np.array_equal(element[name], ordered[name]):
            element[name] = generator.permuted(ordered[name], axis=-1)
    return element


def _keep_largest(changes: dict[str, float], name: str, change: float) -> None:
    changes[name] = float(np.maximum(change, changes.get(name, 0.0)))  # preserves NaN


def _require_layers_covered(symmetry: Symmetry, model: torch.nn.Module) -> None:
    state = tensors_of(model)
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


def _require_tied(symmetry: Symmetry, trial: SymmetryTrial) -> None:
    table = symmetry.table()
    for names in trial.aliases.values():
        if len({table[name] for name in names}) > 1:
            given = " and ".join(f"{name} {table[name]!r}" for name in names)
            raise NotInvariantError(
                f"{given} are one tensor (tied weights). Give them the same axes."
            )


def _require_usable(outputs: Outputs, repeated: Outputs) -> None:
    if not outputs:
        raise NotInvariantError(
            "The model returns no tensor to compare. Pass an `output` that selects "
            "tensors from its result."
        )
    if not all(bool(torch.isfinite(tensor).all()) for tensor in outputs):
        raise NotInvariantError("The model's outputs are not finite. Give another example.")
    if _change(outputs, repeated) > 0:
        raise NotInvariantError(
            "The model's outputs differ between two calls with the same inputs. Make its random "
            "numbers an argument, or select its mean with `output`."
        )


def _change(expected: Outputs, actual: Outputs) -> float:
    """Returns the largest difference, relative to the largest output or 1; NaN if there is one."""
    changes = [
        (_exact(one) - _exact(other)).abs().max() / _exact(one).abs().max().clamp(min=1)
        for one, other in zip(expected, actual, strict=True)
        if one.numel()
    ]
    return float(torch.stack(changes).max()) if changes else 0.0


def _exact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float64))


def _report(symmetry: Symmetry, failing: Mapping[str, float]) -> str:
    lines = []
    for name, change in failing.items():
        parameters = [
            f"{parameter} {text!r}"
            for parameter, text in symmetry.table().items()
            if name in symmetry.free(parameter)
        ]
        places = f" ({listed(parameters)})" if parameters else ""
        lines.append(f"{name} changes them by {change:.2g}{places}")
    return (
        f"The outputs are not the same, to {_TOLERANCE:g}, under the permutations of the table: "
        f"{'; '.join(lines)}. Correct the axes, or fix them with a leading `_`."
    )
