"""Functions that `merge` calls by name, as a user would write them, for tests of the program."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from merging_support.problems import WIDE, make_data_holder, maps_of, noisy

from fleet_merging import MergeProblem, Symmetry

State = dict[str, torch.Tensor]
MLP = WIDE["mlp"]


def table(models: Sequence[State]) -> MergeProblem:
    """Returns a problem with nothing but a table of axes."""
    return MergeProblem(MLP.symmetry, models)


def with_data(models: Sequence[State]) -> MergeProblem:
    """Returns a problem with data of a teacher that both models imitate, on shared inputs."""
    holder = make_data_holder(MLP, MLP.outputs(MLP.build(5)))
    return MergeProblem(
        MLP.symmetry,
        models,
        data_holders=[holder, holder],
        shared_data_holder=holder,
        affine_maps=maps_of(MLP),
        base=MLP.build(6).state_dict(),
        module=MLP.build(),
        example=MLP.example(),
    )


def wrong_table(models: Sequence[State]) -> MergeProblem:
    """Returns a problem with a table in which the first bias is fixed, although all sizes fit."""
    axes = Symmetry.of(MLP.symmetry.table() | {"0.bias": "_"})
    return MergeProblem(axes, models, data_holders=with_data(models).data_holders)


def checked(models: Sequence[State]) -> MergeProblem:
    """Returns a problem whose table can be checked."""
    return MergeProblem(MLP.symmetry, models, module=MLP.build(), example=MLP.example())


def false_table(models: Sequence[State]) -> MergeProblem:
    """Returns a problem with a false table, which its own model refutes."""
    return replace(checked(models), symmetry=wrong_table(models).symmetry)


def fixed(models: Sequence[State]) -> MergeProblem:
    """Returns a problem with a table that fixes every axis."""
    axes = {name: " ".join("_" * value.dim()) for name, value in MLP.build().state_dict().items()}
    return replace(checked(models), symmetry=Symmetry.of(axes))


def misspelt(models: Sequence[State]) -> MergeProblem:
    """Returns a problem with a wrong name of a parameter."""
    axes = {name.replace("2.bias", "2.bais"): each for name, each in MLP.symmetry.table().items()}
    return MergeProblem(Symmetry.of(axes), models)


def small(models: Sequence[State]) -> MergeProblem:
    """Returns a problem whose module is another one than the models'."""
    return replace(checked(models), module=small_model()[0])


def data() -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Returns data of two models: batches of inputs and targets."""
    inputs = MLP.example()
    return [[(inputs, MLP.outputs(MLP.build(5)))]] * 2


def poisoned(problem: MergeProblem, *, how: str = "nan") -> object:
    """A method that drops, reshapes or poisons a parameter."""
    from fleet_merging import MergeResult

    state = problem.mean([problem.group.identity() for _ in problem.models])
    if how == "nan":
        state["2.bias"] = state["2.bias"] * torch.nan
    elif how == "reshape":
        state["2.weight"] = state["2.weight"].T
    elif how == "drop":
        del state["0.bias"]
    elif how == "more":
        state["more"] = torch.zeros(1)
    return MergeResult.network(state)


def model_alone() -> torch.nn.Module:
    """Returns a model without an example."""
    return MLP.build()


def model() -> tuple[torch.nn.Module, torch.Tensor]:
    """Returns a model as the files hold it, and an example."""
    return MLP.build(), MLP.example()


def small_model() -> tuple[torch.nn.Module, torch.Tensor]:
    """Returns a model with another width."""
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    return layers, MLP.example()


def broken(*models: object) -> float:
    """Raises an error."""
    return 1 / 0


def number(*models: object) -> int:
    """Returns what is neither a problem nor a model."""
    return 3


def models() -> tuple[State, State]:
    """Returns two models of one function, except for noise and the order of their units."""
    teacher = MLP.build(5).state_dict()
    generator = np.random.default_rng(0)
    group = MLP.symmetry.group(teacher)
    return teacher, MLP.symmetry.apply(group.random(generator), noisy(teacher, 0.01, 1))
