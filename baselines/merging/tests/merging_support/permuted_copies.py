"""Problems of merging permuted copies of a model, or unrelated models."""

import numpy as np
import torch
from merging_support.problems import WIDE, make_data_holder, maps_of

from fleet_merging.matching.soft_descent import Descent
from fleet_merging.problem import MergeProblem

SHORT = Descent(steps=2)


def copies(kind, count, seed=0, **fields):
    """Returns the problem of merging permuted copies of a model, which fits all data exactly."""
    architecture = WIDE[kind]
    model = architecture.build()
    state = model.state_dict()
    group = architecture.symmetry.group(state)
    generator = np.random.default_rng(seed)
    models = [architecture.symmetry.apply(group.random(generator), state) for _ in range(count)]
    data_holder = make_data_holder(architecture, architecture.outputs(model))
    return MergeProblem(
        architecture.symmetry,
        models,
        data_holders=[data_holder] * count,
        shared_data_holder=data_holder,
        affine_maps=maps_of(architecture),
        module=model,
        example=architecture.example(),
        base=architecture.build(9).state_dict(),
        **fields,
    )


def different_models(count, **fields):
    """Returns the problem of merging unrelated models with different data."""
    models = [WIDE["mlp"].build(seed).state_dict() for seed in range(count)]
    targets = [torch.full((40, 2), float(i)).double() for i in range(count)]
    data_holders = [make_data_holder(WIDE["mlp"], each) for each in targets]
    return MergeProblem(
        WIDE["mlp"].symmetry,
        models,
        data_holders=data_holders,
        shared_data_holder=data_holders[0],
        affine_maps=maps_of(WIDE["mlp"]),
        base=WIDE["mlp"].build(9).state_dict(),
        **fields,
    )


def outputs(kind, state):
    return WIDE[kind].outputs(WIDE[kind].build(), state)
