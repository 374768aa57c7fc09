"""Arguments and results of merging methods."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch

from fleet_merging.average import AveragingWeights, WeightedSum, normalize, weighted_sum
from fleet_merging.buffers import learned_tensors, require_mergeable
from fleet_merging.errors import MergeError, ModelMismatchError, listed
from fleet_merging.modules import copied, load_tensors, misfits, uncompiled
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.gate import RowGate
from fleet_merging.queries.data_holder import DataHolder
from fleet_merging.queries.traffic import Traffic
from fleet_merging.symmetry.group import Permutation, PermutationGroup
from fleet_merging.symmetry.table import State, Symmetry, require_alike

Teacher = Callable[..., torch.Tensor]
"""teacher(*arguments): the outputs of an ensemble."""

ArgumentsOf = Callable[[torch.Tensor, Teacher, np.random.Generator], tuple[Any, ...]]
"""See `MergeProblem.arguments_of`."""


@dataclass(frozen=True)
class MergeProblem:
    """Models of one form, and further facts about them besides their weights.

    Attributes:
        symmetry: Table of axes of all models.
        models: State dicts, at least one; they are not changed. Their names are sorted as in the
            table (files have a random order), since sums round in some order.
        averaging_weights: A number for each model, of any positive sum; equal ones if None.
        data_holders: A data holder for each model, with that model's own data, for `fleet_merge`.
        shared_data_holder: Holder of data common to all models, for losses of `sinkhorn_rebasin`.
        affine_maps: The affine maps of the models in the order in which they are applied, for
            methods that query moments; see `moments.affine_maps`. The last one's outputs are the
            model's, for which data holders have labels.
        seed: Seed of all random numbers.
        base: Common weights before training, for methods on task vectors; None if there are none.
            This is the common initialization, or in a fleet's later rounds the last merged weights.
            Their names are sorted as in the table, too.
        module: The architecture of the state dicts, for methods that run models and for
            `MergeResult.model`. It is not changed, and its own weights do not matter.
        example: Arguments of the module, a tuple; a single argument becomes one.
        output: Selects the outputs from the module's result: permutations must not change them.
        state_size: Number of first inputs of the first affine map that a density-gated ensemble
            reads; None for all except a recurrent layer's own state. With encoders, the number of
            features, the first inputs of `Encoders.reader`.
        inputs: Returns a pass over unlabelled inputs, each a tuple of arguments, for
            `distillation`.
        with_memory: Whether models remember earlier steps of an episode.
        arguments_of: Returns the models' arguments for states, (n, size), or with a memory for
            sequences, (n, steps, size), for `distillation`. None if the states are the arguments.
            With encoders, states are the features. Its further arguments are the ensemble to
            imitate, and a generator of other inputs.
        encoders: The encoders in the models; None if there are none.
        resized: An architecture of the result, of the models' kind with other numbers of hidden
            units: for `partition`, as many as all models together; for `structured_compression`, at
            most as many.
        at_width: Returns such an architecture of a given width, for the option `width` of
            `structured_compression`; raises a MergeError if there is none.
        finish: Postprocesses every average before it is measured or stored, such as
            `modules.recompute`.
        group: The free permutations of the models.
        normalized_weights: The averaging weights, with sum 1; shape (models,).

    Raises:
        MergeError: There are no models, the averaging weights are invalid, or the numbers of data
            holders and models differ.
        ModelMismatchError: The models, the base and the module are not of one form.
        UncoveredParameterError, AxisSizeError: The table does not fit them.
    """

    symmetry: Symmetry
    models: Sequence[State]
    averaging_weights: AveragingWeights | None = None
    data_holders: Sequence[DataHolder] = ()
    shared_data_holder: DataHolder | None = None
    affine_maps: Sequence[AffineMap] = ()
    seed: int = 0
    base: State | None = None
    module: torch.nn.Module | None = None
    example: Any = None
    output: Callable[[Any], Any] = lambda outputs: outputs
    state_size: int | None = None
    inputs: Callable[[], Iterable[tuple[Any, ...]]] | None = None
    with_memory: bool = False
    arguments_of: ArgumentsOf | None = None
    encoders: "Encoders | None" = None
    resized: torch.nn.Module | None = None
    at_width: Callable[[int], torch.nn.Module] | None = None
    finish: Callable[[State], State] = dict
    group: PermutationGroup = field(init=False, compare=False)
    normalized_weights: np.ndarray = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Checks the values, and orders the names of the models."""
        if not self.models:
            raise MergeError("A merge problem has no models. Give at least one state dict.")
        require_alike(self.models)
        require_mergeable(self.models[0])
        object.__setattr__(self, "group", self.symmetry.group(self.models[0]))

        def in_order(model: State) -> dict[str, torch.Tensor]:
            return {name: model[name] for name in self.symmetry.axes}

        object.__setattr__(self, "models", tuple(map(in_order, self.models)))
        if self.base is not None:
            _require_base_alike(self.models, self.base)
            object.__setattr__(self, "base", in_order(self.base))
        if self.module is not None:
            _require_module(self.module, self.models[0])
        weights = normalize(self.averaging_weights, len(self.models))
        object.__setattr__(self, "normalized_weights", weights)
        if self.example is not None and not isinstance(self.example, tuple):
            object.__setattr__(self, "example", (self.example,))
        if (count := len(self.data_holders)) not in (0, len(self.models)):
            raise MergeError(
                f"A merge problem with {len(self.models)} models has {count} data holders. Give "
                "one for each model, in the same order, or none."
            )

    def permuted(self, permutations: Sequence[Permutation]) -> list[dict[str, torch.Tensor]]:
        """Returns every model, permuted by its own permutation."""
        return [
            self.symmetry.apply(permutation, model)
            for permutation, model in zip(permutations, self.models, strict=True)
        ]

    def total(self, permutations: Sequence[Permutation] | None = None) -> WeightedSum:
        """Returns the sum of the models, as they are or permuted, by their normalized weights."""
        models: Iterable[State] = self.models
        if permutations is not None:  # one at a time: copies of many may not fit into memory
            models = map(self.symmetry.apply, permutations, self.models)
        return weighted_sum(models, self.normalized_weights.tolist())

    def mean(self, permutations: Sequence[Permutation] | None = None) -> dict[str, torch.Tensor]:
        """Returns the weighted average of the models, as they are or permuted."""
        return self.total(permutations).mean(self.models[0])

    def outputs(self, module: torch.nn.Module, state: State) -> Any:
        """Returns the outputs of a module with some weights for the example; it is not changed."""
        network = copied(module)
        load_tensors(network, state)
        with torch.no_grad(), uncompiled():
            return self.output(network(*self.example))


@dataclass(frozen=True)
class Encoders:
    """Encoders of models, which turn each observation into features.

    Attributes:
        parameters: Names of their tensors.
        reader: Name of the affine map with all features as its first inputs.
    """

    parameters: tuple[str, ...]
    reader: str


@dataclass(frozen=True, eq=False)
class MergeResult:
    """Result of a merging method: a network, or several ones as an ensemble.

    Attributes:
        members: State dicts of the networks; a single one is a merged network.
        permutations: The permutation of each model before averaging; empty if the method has none.
        traffic: Traffic to and from data holders.
        gate: Weights of the members' outputs; None for their mean.
        module: The architecture of the members, for `model`; `registry.merge` sets it.
        output: See `MergeProblem`.
    """

    members: tuple[State, ...]
    permutations: tuple[Permutation, ...] = ()
    traffic: Traffic = field(default_factory=Traffic)
    gate: RowGate | None = None
    module: torch.nn.Module | None = None
    output: Callable[[Any], Any] = lambda outputs: outputs

    def __post_init__(self) -> None:
        """Checks that there are members."""
        if not self.members:
            raise MergeError("A merge has no members. Give at least one state dict.")

    @classmethod
    def network(
        cls, state: State, permutations: Sequence[Permutation] = (), traffic: Traffic | None = None
    ) -> Self:
        """Returns a result with one network."""
        return cls((state,), tuple(permutations), traffic or Traffic())

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """State dict of the merged network; an ensemble has none and raises a `MergeError`."""
        if self.is_ensemble:
            raise MergeError(
                f"The merge is an ensemble of {len(self.members)} networks, so it has no single "
                "state dict. Use its `model` or its `members`, or choose a method that returns a "
                "network, such as git_rebasin or distillation."
            )
        return dict(self.members[0])

    @property
    def is_ensemble(self) -> bool:
        """Whether it has several members, or weights them by densities."""
        return len(self.members) > 1 or self.gate is not None

    @property
    def model(self) -> torch.nn.Module:
        """A new module that computes the merge: a network, or an `ensembles.Ensemble`.

        Raises a `MergeError` if only state dicts are known.
        """
        if self.module is None:
            raise MergeError(
                "The merge was made from state dicts alone, so its module is unknown. Give the "
                "merge problem's `module`, or load `state` into your own model."
            )
        if self.is_ensemble:
            from fleet_merging.ensembles import Ensemble

            return Ensemble(self.module, self.members, self.gate, self.output)
        model = copied(self.module)
        load_tensors(model, self.members[0])
        return model

    @property
    def parameters(self) -> int:
        """Number of learned parameters of all members; shared ones count once.

        The entries of `gate` do not count, since they are measured and not learned.
        """
        tensors = {
            (each.data_ptr(), each.shape): each.numel()
            for member in self.members
            for each in learned_tensors(member).values()
        }
        return sum(tensors.values())


def _require_module(module: torch.nn.Module, model: State) -> None:
    if differing := misfits(module, model):
        raise ModelMismatchError(
            "The module has other names or shapes than the models to merge: "
            f"{listed(differing)}. Make it with the same sizes."
        )


def _require_base_alike(models: Sequence[State], base: State) -> None:
    try:
        require_alike((*models, base))
    except ModelMismatchError as error:
        raise ModelMismatchError(
            f"The base, here model {len(models)}, does not match the models: {error} Give the "
            "weights from which they were trained."
        ) from None
