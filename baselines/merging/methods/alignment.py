"""Alignment of models before their matrices are combined, for methods that ask for moments."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.matching.moments import match_moments
from fleet_tools.baselines.merging.methods.git_rebasin import match_models
from fleet_tools.baselines.merging.moments.affine_maps import AffineMap, require_measurable
from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.merging.queries.data_holder import TrafficMeter
from fleet_tools.baselines.merging.queries.query import MomentQuery
from fleet_tools.baselines.merging.symmetry.group import Permutation

Alignment = Literal["none", "weights", "activations"]


def align(problem: MergeProblem, by: str, meter: TrafficMeter) -> tuple[Permutation, ...]:
    """Returns a permutation for each model.

    Args:
        problem: The models and their data holders.
        by: "none", for models that began with the same weights; "weights", see `match_models`; or
            "activations": each model is matched with the one of the largest averaging weight, by
            covariances that its data holder measures.
        meter: Counts the traffic.

    Raises:
        MergeError: `by` is unknown, or data holders or affine maps are missing.
        MessageError: A data holder's answer is invalid.
    """
    if by not in get_args(Alignment):
        raise MergeError(
            f"Models are aligned by {by!r}; known are {', '.join(get_args(Alignment))}."
        )
    if by == "weights":
        return match_models(problem)
    identity = problem.group.identity()
    if by == "none":
        return tuple(identity for _ in problem.models)
    require_moments(problem)
    largest = int(np.argmax(problem.normalized_weights))
    reference = problem.models[largest]
    names = tuple(each.name for each in problem.affine_maps)
    permutations: list[Permutation] = []
    for index, model in enumerate(problem.models):
        if index == largest:
            permutations.append(identity)
            continue
        query = MomentQuery(reference, names, "inputs", model)
        moments = meter.ask_moments(problem.data_holders[index], query, problem.affine_maps)
        products = {name: each.targets for name, each in moments.items()}
        permutations.append(
            match_moments(
                problem.symmetry,
                reference,
                model,
                problem.affine_maps,
                products,
                np.random.default_rng((problem.seed, index)),
            )
        )
    return tuple(permutations)


def require_moments(problem: MergeProblem, maps: Sequence[AffineMap] | None = None) -> None:
    """Raises an error unless data holders can be asked for moments.

    Args:
        problem: The models and their data holders.
        maps: Affine maps whose moments are wanted; None for all.

    Raises:
        MergeError: There are no data holders or no affine maps, or moments are too large.
    """
    if not problem.data_holders or not problem.affine_maps:
        missing = "data holders" if not problem.data_holders else "affine maps"
        raise MergeError(
            f"The merge problem has no {missing}, whose moments determine the merged model. Give "
            "a data holder with `batches` for each model, and the models' "
            "`moments.affine_maps.affine_maps` in the order in which they are applied."
        )
    require_measurable(problem.affine_maps if maps is None else maps, problem.models[0])
