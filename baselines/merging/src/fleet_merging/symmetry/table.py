"""Symmetry as data: a table of the axes of all parameters, for permutations of models.

A table has one string per parameter or buffer (see `axes`):

    0.weight "h _obs"    0.bias "h"    2.weight "_act h"    2.bias "_act"

The paper's transformation P = (P^0, ..., P^L), with P^0 = P^L = I, acts on such a network by
W^l -> P^(l+1) W^l (P^l)^T and b^l -> P^(l+1) b^l. A recurrent weight, "h h", becomes P W P^T
(eqs. perm_action, rnn_action). `check.check` verifies its Proposition 1 for a table.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from fleet_merging.errors import (
    AxisSyntaxError,
    ModelMismatchError,
    PermutationError,
    UncoveredParameterError,
)
from fleet_merging.symmetry.action import Layout, act, solve, unfold
from fleet_merging.symmetry.axes import Axis, Product, format_axes, parse_axes
from fleet_merging.symmetry.group import Permutation, PermutationGroup

State = Mapping[str, torch.Tensor]
"""A state dict, as `torch.nn.Module.state_dict` returns it."""

_SHAPE_REMEDIES = (
    "Merge models of one architecture.",
    "Adapters of other ranks are made alike by `adapters.alike` with their configurations; "
    "`lora.merged_products` merges them without loss as changes of the model's weights.",
)
"""Remedies for models, and for adapters of low rank."""


@dataclass(frozen=True)
class Symmetry:
    """The axes of every parameter and buffer of a kind of model.

    Methods that read a model raise an `UncoveredParameterError` if its parameters are not the
    table's, and an `AxisSizeError` if a shape does not fit its axes.

    Attributes:
        axes: Axes by the names of the state dict; `Symmetry.of` reads them from strings.
    """

    axes: Mapping[str, tuple[Axis, ...]]
    _known: dict[tuple[torch.Size, ...], tuple[Layout, PermutationGroup]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, *tables: Mapping[str, str]) -> "Symmetry":
        """Joins tables of axis strings, such as the functions of `layers` return.

        Raises:
            AxisSyntaxError: A string cannot be read, two tables have the same parameter, or a name
                has two owners.
        """
        axes: dict[str, tuple[Axis, ...]] = {}
        for table in tables:
            for name, text in table.items():
                if name in axes:
                    raise AxisSyntaxError(
                        f"{name} is given twice, as {format_axes(axes[name])!r} and as {text!r}. "
                        "Leave one of them out."
                    )
                if not isinstance(text, str):
                    raise AxisSyntaxError(
                        f"{name}: axes are a string, such as 'h _in'; given: {text!r}."
                    )
                try:
                    axes[name] = parse_axes(text)
                except AxisSyntaxError as error:
                    raise AxisSyntaxError(f"{name}: {error}") from None
        symmetry = cls(axes)
        symmetry.owners()
        return symmetry

    def table(self) -> dict[str, str]:
        """Returns the axes as strings, from which `of` makes an equal table."""
        return {name: format_axes(axes) for name, axes in self.axes.items()}

    def free(self, parameter: str) -> set[str]:
        """Returns the names of the free permutations along the axes of a parameter."""
        factors = (f for axis in self.axes[parameter] for product in axis for f in product)
        return {factor.name for factor in factors if not factor.fixed}

    def owners(self) -> dict[str, str]:
        """Returns the owner of each free name with an owner.

        Raises an `AxisSyntaxError` if a name has two owners, or an owner in one parameter only.
        """
        owners: dict[str, tuple[str | None, str]] = {}
        for name, axes in self.axes.items():
            for factor in (f for axis in axes for product in axis for f in product if not f.fixed):
                owner, parameter = owners.setdefault(factor.name, (factor.owner, name))
                if owner != factor.owner:
                    raise AxisSyntaxError(
                        f"{factor.name!r} belongs to {owner or 'no owner'} in {parameter} and to "
                        f"{factor.owner or 'no owner'} in {name}. Write the same in both."
                    )
        inner = {name: owner for name, (owner, _) in owners.items() if owner}
        for name, owner in inner.items():
            if owner in inner:
                raise AxisSyntaxError(
                    f"{name!r} belongs to {owner!r}, which itself belongs to {inner[owner]!r}. "
                    "Only one level is supported: fix the inner or the outer permutation."
                )
        return inner

    def group(self, state: State) -> PermutationGroup:
        """Returns the free permutations of a model, with their sizes."""
        return self._layout(state)[1]

    def apply(self, permutation: Permutation, state: State) -> dict[str, torch.Tensor]:
        """Permutes a model; the state dict and its tensors are not changed.

        Args:
            permutation: For every free name an index array (hard) or a matrix (soft), also mixed;
                gradients with respect to matrices flow.
            state: The model.

        Returns:
            New tensors of the same names, shapes, dtypes and devices, without shared memory.

        Raises:
            PermutationError: The permutation is not of this model's group, or is soft on integers.
        """
        layout, group = self._layout(state)
        tensors = group.tensors(permutation)
        soft = {name for name, value in tensors.items() if value.is_floating_point()}
        permuted = {}
        for name, tensor in state.items():
            axes = self.axes[name]
            if soft and not (tensor.is_floating_point() or soft.isdisjoint(self.free(name))):
                raise PermutationError(
                    f"{name} holds {tensor.dtype}, to which a soft permutation cannot be applied. "
                    f"Give index arrays for {', '.join(sorted(soft & self.free(name)))}."
                )
            permuted[name] = act(tensor, axes, layout.blocks[name], tensors)
        return permuted

    def unfold(self, state: State) -> list[tuple[Product, torch.Tensor]]:
        """Returns every floating-point tensor with one dimension for each factor of its axes.

        Factors and views are in the table's order, since files order state dicts at random. A
        tensor with a sum along an axis is split into its parts.
        """
        layout, _ = self._layout(state)
        return [
            part
            for name, axes in self.axes.items()
            if state[name].is_floating_point()
            for part in unfold(state[name], axes, layout.blocks[name])
        ]

    def sized_axes(self, state: State) -> dict[str, tuple[Axis, ...]]:
        """Returns the axes of all parameters with the sizes of all factors, by name."""
        layout, _ = self._layout(state)

        def sized(product: Product, block: tuple[int, ...]) -> Product:
            pairs = zip(product, block, strict=True)
            return tuple(replace(factor, size=size) for factor, size in pairs)

        return {
            name: tuple(
                tuple(map(sized, axis, blocks))
                for axis, blocks in zip(axes, layout.blocks[name], strict=True)
            )
            for name, axes in self.axes.items()
        }

    def _layout(self, state: State) -> tuple[Layout, PermutationGroup]:
        """Returns the numbers of units of a model, solved once for models of one form."""
        if state.keys() != self.axes.keys():
            require_covered(self, state)
        try:
            shapes = tuple(state[name].shape for name in self.axes)
        except AttributeError:
            require_tensors(state)
            raise
        if shapes not in self._known:
            require_tensors(state)
            layout = solve(self.axes, dict(zip(self.axes, map(tuple, shapes), strict=True)))
            owners = self.owners()
            sizes = {
                name: (layout.sizes[owners[name]], size) if name in owners else (size,)
                for name, size in sorted(layout.sizes.items())
            }
            self._known[shapes] = layout, PermutationGroup(sizes, owners)
        return self._known[shapes]


def require_covered(symmetry: Symmetry, state: State) -> None:
    """Raises an `UncoveredParameterError` unless a table has exactly the parameters of a model."""
    require_tensors(state)
    uncovered = [name for name in state if name not in symmetry.axes]
    absent = [name for name in symmetry.axes if name not in state]
    if uncovered:
        shapes = ", ".join(f"{name} {tuple(state[name].shape)}" for name in uncovered)
        raise UncoveredParameterError(
            f"The table lacks {shapes}. {_prefix_hint(symmetry.axes, state)}"
            "Add a string for each, with `_` for every axis that nothing permutes"
            + (f"; and remove {', '.join(absent)}, which the model lacks." if absent else ".")
        )
    if absent:
        raise UncoveredParameterError(
            f"The table has {', '.join(absent)}, and the model only "
            f"{', '.join(state) or 'nothing'}. Remove them from the table, or rename them."
        )


def require_tensors(state: State) -> None:
    """Raises an `UncoveredParameterError` unless a model holds nothing but tensors."""
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise UncoveredParameterError(
                f"{name} holds a {type(value).__name__}, but only tensors can be merged. Remove it "
                "from the state dict."
            )


def require_alike(states: Sequence[State]) -> None:
    """Raises a `ModelMismatchError` unless all models have the same names, shapes and dtypes."""
    for state in states:
        require_tensors(state)
    for index, state in enumerate(states[1:], start=1):
        differing = sorted(set(states[0]) ^ set(state))
        if differing:
            raise ModelMismatchError(
                f"Models 0 and {index} have different parameters: only one of them has "
                f"{', '.join(differing)}. {_prefix_hint(states[0], state)}"
                "Merge models of one architecture."
            )
        for name, tensor in states[0].items():
            for what in ("shape", "dtype"):
                first, other = getattr(tensor, what), getattr(state[name], what)
                if first != other:
                    remedy = (
                        _SHAPE_REMEDIES["lora_" in name]
                        if what == "shape"
                        else f"Cast one of them before it is stored: model.to({_plain(first)}), or "
                        f"state[{name!r}].to({_plain(first)}) for that tensor alone."
                    )
                    raise ModelMismatchError(
                        f"{name} has the {what} {_plain(first)} in model 0 and {_plain(other)} in "
                        f"model {index}. {remedy}"
                    )


def _prefix_hint(names: Iterable[str], others: Iterable[str]) -> str:
    """Returns a remedy for two sets of names that differ only by a wrapper's prefix."""
    names, others = set(names), set(others)
    for prefix, wrapper in (("module.", "DataParallel"), ("_orig_mod.", "torch.compile")):
        stripped = ({name.removeprefix(prefix) for name in each} for each in (names, others))
        if len(set(map(frozenset, stripped))) == 1:
            return (
                f"They differ by the prefix {prefix!r} of {wrapper} only: store the state dict of "
                f"the model inside it, or strip the names by name.removeprefix({prefix!r}). "
            )
    return ""


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, torch.Size) else value
