"""Spec functions, as a user would write them, for the program's tests."""

import numpy as np
from merging_cases import WIDE, noisy, robot

from fleet_tools.baselines.merging.matching.activations import record
from fleet_tools.baselines.merging.spec import Spec

MLP = WIDE["mlp"]


def table():
    return MLP.symmetry.table()


def symmetry():
    return MLP.symmetry


def with_data():
    """Two robots whose models imitate one teacher, on inputs that they share."""
    teacher = MLP.build(5)
    targets = MLP.outputs(teacher)
    own = robot(MLP, targets)
    return Spec(
        MLP.symmetry,
        robots=[own, own],
        shared=own,
        activations=lambda state: record(MLP.build(), state, MLP.example(), {"h1": "1", "h2": "3"}),
    )


def wrong_table():
    """The first bias stays while its weights move: sizes fit, and the function does not."""
    spec = with_data()
    axes = MLP.symmetry.table() | {"0.bias": "_"}
    return Spec(axes, robots=spec.robots)


def broken():
    return 1 / 0


def number():
    return 3


def models():
    teacher = MLP.build(5).state_dict()
    generator = np.random.default_rng(0)
    group = MLP.symmetry.group(teacher)
    return teacher, MLP.symmetry.apply(group.random(generator), noisy(teacher, 0.01, 1))
