"""Specs: what a program has to know of models beside their weights, from a user's function.

    def spec():                                   # in policies.py: --spec policies:spec
        return Symmetry.of(linear("0", "_obs", "h"), linear("2", "h", "_act"))

The function returns a table of axes, or a `ModelSpec` if losses are to be measured or the method
needs data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fleet_tools.baselines.merging.average import AveragingWeights
from fleet_tools.baselines.merging.barrier import Measure
from fleet_tools.baselines.merging.errors import (
    MergeError,
    ModelMismatchError,
    UnsoundMergeError,
)
from fleet_tools.baselines.merging.modules import tensors_of, tied_to
from fleet_tools.baselines.merging.moments.affine_maps import AffineMap
from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.merging.queries.data_holder import DataHolder, TrafficMeter
from fleet_tools.baselines.merging.soundness import require_sound
from fleet_tools.baselines.merging.symmetry.check import CheckReport, check
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry
from fleet_tools.baselines.merging.symmetry.trial import faulty_output
from fleet_tools.errors import FleetToolsError
from fleet_tools.utils.imports import load_user_function


@dataclass(frozen=True)
class ModelSpec:
    """A kind of model, and the holders of its data.

    Attributes:
        symmetry: Table of axes.
        data_holders: A data holder for each model, in the order of the models.
        shared_data_holder: Holder of data common to all models.
        affine_maps: The affine maps of the models, for methods that ask for moments; see
            `MergeProblem`.
        activations: Returns the activations of a model's units by free name, on the same inputs
            for every model.
        finish: Postprocesses every average before it is measured or stored, such as
            `batch_norm.recompute`.
        base: Weights from which all models were trained; see `MergeProblem`.
        model: A module with these weights, by which the table is checked; None skips the check.
        example: Its argument, or a tuple of its arguments.
        output: Selects what permutations must not change from what it returns.
    """

    symmetry: Symmetry | Mapping[str, str]
    data_holders: Sequence[DataHolder] = ()
    shared_data_holder: DataHolder | None = None
    affine_maps: Sequence[AffineMap] = ()
    activations: Callable[[State], Mapping[str, torch.Tensor]] | None = None
    finish: Callable[[State], State] = dict
    base: State | None = None
    model: torch.nn.Module | None = None
    example: Any = None
    output: Callable[[Any], Any] = lambda outputs: outputs

    def check(self, state: State) -> CheckReport | None:
        """Checks the table by the model.

        Args:
            state: Weights of one of the models to merge, which are left as they are.

        Returns:
            What `check` found; None without a model.

        Raises:
            ModelMismatchError: The weights are those of another model.
            SymmetryError: The table is false or incomplete; see `symmetry.check.check`.
        """
        if self.model is None:
            return None
        own, state = tensors_of(self.model), self.with_tied(state)
        if differing := [
            name
            for name in sorted({*own, *state})
            if name not in own or name not in state or own[name].shape != state[name].shape
        ]:
            raise ModelMismatchError(
                f"The model that checks the table has other names or shapes than the models to "
                f"merge: {', '.join(differing)}. Make it with the same sizes."
            )
        return check(self.symmetry, self.model, self.example, output=self.output)

    def with_tied(self, state: State) -> State:
        """Returns weights with all names of tied ones, of which files hold one."""
        tied = {} if self.model is None else tied_to(self.model)
        missing = {
            name: next((state[other] for other in names if other in state), None)
            for name, names in tied.items()
            if name not in state
        }
        found = {name: tensor for name, tensor in missing.items() if tensor is not None}
        return {**state, **found}

    def require_sound(self, state: State, form: State, maker: str) -> None:
        """Raises an error unless a merged model is usable.

        Args:
            state: The merged model, after `finish`.
            form: One of the models.
            maker: What made it, for the message.

        Raises:
            UnsoundMergeError: See `soundness.require_sound`; or weights that are tied in the model
                differ, or its outputs for the example are not finite.
        """
        require_sound(state, self.with_tied(form), maker)
        if self.model is None:
            return
        for name, (first, *_) in tied_to(self.model).items():
            if not torch.equal(state[name], state[first]):
                raise UnsoundMergeError(
                    f"{maker} made no usable model: {first} and {name} are tied in the model, and "
                    "differ. Choose a method that treats them alike, such as git_rebasin."
                )
        if faulty := faulty_output(self.model, state, self.example, self.output):
            raise UnsoundMergeError(
                f"{maker} made no usable model: for the example, the outputs of {faulty} are not "
                "finite. Choose another method, or measure statistics of data anew by `finish`."
            )

    def problem(
        self,
        models: Sequence[State],
        averaging_weights: AveragingWeights | None = None,
        seed: int = 0,
    ) -> MergeProblem:
        """Returns the problem of merging models.

        Args:
            models: See `MergeProblem`; of tied weights one name is enough if `model` is given.
            averaging_weights: See `MergeProblem`.
            seed: See `MergeProblem`.

        Raises:
            FleetToolsError: The models do not fit the spec, or one another; see `MergeProblem`.
        """
        symmetry = self.symmetry
        if not isinstance(symmetry, Symmetry):
            symmetry = Symmetry.of(symmetry)
        problem = MergeProblem(
            symmetry,
            [self.with_tied(model) for model in models],
            averaging_weights,
            self.data_holders,
            self.shared_data_holder,
            self.affine_maps,
            seed=seed,
            base=None if self.base is None else self.with_tied(self.base),
        )
        if self.activations is None:
            return problem
        activations = [self.activations(model) for model in problem.models]
        return replace(problem, activations=activations)

    def pooled_loss(self, problem: MergeProblem) -> Measure | None:
        """Returns the function that measures a model's loss on all data.

        These are the shared data if there are any, or else those of all data holders, weighted by
        the averaging weights.

        Returns:
            None if there are no data holders.
        """
        if self.shared_data_holder is not None:
            holders, weights = [self.shared_data_holder], [1.0]
        elif self.data_holders:
            holders, weights = self.data_holders, problem.normalized_weights.tolist()
        else:
            return None

        def loss(model: State) -> float:
            answers = (
                TrafficMeter().ask(holder, model, None, gradient=False) for holder in holders
            )
            return sum(
                weight * answer.loss for weight, answer in zip(weights, answers, strict=True)
            )

        return loss


def load_spec(name: str) -> ModelSpec:
    """Imports a module and calls its function, whose code has to be trusted, unlike models.

    Args:
        name: "module:function"; `python -m` also finds modules of the working directory.

    Raises:
        MergeError: The name has another form, the module cannot be imported, the function needs
            arguments or fails, or it returns something else.
        UnknownNameError: The module has no such function.
        SymmetryError: The returned table cannot be read.
    """
    returned = _called(name, "spec")
    if isinstance(returned, ModelSpec):
        return returned
    if isinstance(returned, Symmetry):
        return ModelSpec(returned)
    if isinstance(returned, Mapping):
        return ModelSpec(Symmetry.of(returned))
    raise MergeError(
        f"The spec {name!r} returned a {type(returned).__name__}. Return a Symmetry, a table of "
        "axis strings, or a merging.spec.ModelSpec."
    )


def load_model(name: str) -> tuple[torch.nn.Module, Any]:
    """Imports a module and calls its function, whose code has to be trusted.

    Args:
        name: "module:factory"; see `load_spec`.

    Returns:
        A model, and its argument or a tuple of its arguments.

    Raises:
        MergeError: See `load_spec`.
        UnknownNameError: The module has no such function.
    """
    returned = _called(name, "model")
    if (
        isinstance(returned, tuple)
        and len(returned) == 2
        and isinstance(returned[0], torch.nn.Module)
    ):
        return returned
    raise MergeError(
        f"The model {name!r} returned a {type(returned).__name__}. Return a tuple: the model, a "
        "torch.nn.Module, and an example, its argument or a tuple of its arguments."
    )


def _called(name: str, what: str) -> Any:
    function = load_user_function(name, what, MergeError)
    try:
        return function()
    except FleetToolsError:
        raise
    except Exception as error:
        raise MergeError(
            f"The {what} {name!r} failed ({type(error).__name__}: {error}). It is called without "
            "arguments."
        ) from error
