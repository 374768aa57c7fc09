"""Spec functions as a user would write them, for the tests of the program."""

from dataclasses import replace

import numpy as np
import torch
from support.merging_cases import WIDE, make_data_holder, maps_of, noisy

from fleet_tools.baselines.merging.matching.activations import record
from fleet_tools.baselines.merging.spec import ModelSpec
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry

MLP = WIDE["mlp"]


def table() -> dict[str, str]:
    """Returns a table of axis strings."""
    return MLP.symmetry.table()


def symmetry() -> Symmetry:
    """Returns a table of axes."""
    return MLP.symmetry


def with_data() -> ModelSpec:
    """Returns a spec with data of a teacher that both models imitate, on shared inputs."""
    holder = make_data_holder(MLP, MLP.outputs(MLP.build(5)))
    return ModelSpec(
        MLP.symmetry,
        data_holders=[holder, holder],
        shared_data_holder=holder,
        affine_maps=maps_of(MLP),
        activations=lambda state: record(MLP.build(), state, MLP.example(), {"h1": "1", "h2": "3"}),
        base=MLP.build(6).state_dict(),
    )


def wrong_table() -> ModelSpec:
    """Returns a spec with a table in which the first bias is fixed, although all sizes fit."""
    axes = MLP.symmetry.table() | {"0.bias": "_"}
    return ModelSpec(axes, data_holders=with_data().data_holders)


def checked() -> ModelSpec:
    """Returns a spec whose table can be checked."""
    return ModelSpec(MLP.symmetry, model=MLP.build(), example=MLP.example())


def false_table() -> ModelSpec:
    """Returns a spec with a false table, which its own model refutes."""
    return replace(checked(), symmetry=wrong_table().symmetry)


def fixed() -> dict[str, str]:
    """Returns a table that fixes every axis."""
    return {name: " ".join("_" * value.dim()) for name, value in MLP.build().state_dict().items()}


def misspelt() -> dict[str, str]:
    """Returns a table with a wrong name of a parameter."""
    return {name.replace("2.bias", "2.bais"): axes for name, axes in table().items()}


def model() -> tuple[torch.nn.Module, torch.Tensor]:
    """Returns a model as the files hold it, and an example."""
    return MLP.build(), MLP.example()


def small_model() -> tuple[torch.nn.Module, torch.Tensor]:
    """Returns a model with another width."""
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    return layers, MLP.example()


def broken() -> float:
    """Raises an error."""
    return 1 / 0


def number() -> int:
    """Returns what is no spec."""
    return 3


def models() -> tuple[State, State]:
    """Returns two models of one function, except for noise and the order of their units."""
    teacher = MLP.build(5).state_dict()
    generator = np.random.default_rng(0)
    group = MLP.symmetry.group(teacher)
    return teacher, MLP.symmetry.apply(group.random(generator), noisy(teacher, 0.01, 1))
