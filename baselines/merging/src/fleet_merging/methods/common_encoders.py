"""Models with the encoders of another one, and refitted matrices that read its features."""

from collections.abc import Sequence

from fleet_merging.errors import MergeError
from fleet_merging.methods.needs import required
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.measurement import Moments, solve
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.query import MomentQuery
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.symmetry.table import State

_RIDGE = 1e-3
"""Weight of a model's own matrix in the fit, as in the other methods."""


def with_common_encoders(
    problem: MergeProblem, encoding: State, meter: TrafficMeter
) -> tuple[State, ...]:
    """Returns the models with the encoders of another one.

    The matrix that reads features is fitted to its former outputs. The data holder is asked once
    for the second moments of the features of both models' encoders on its data, side by side. A
    model that has these encoders already is unchanged.

    Raises:
        MergeError: Encoders or data holders are missing, or the matrix has groups.
        MessageError: A data holder's answer is invalid.
    """
    encoders = problem.encoders
    if encoders is None:
        raise MergeError("The models' encoders are unknown. Give the problem's `encoders`.")
    reader = {each.name: each for each in problem.affine_maps}[encoders.reader]
    if reader.groups > 1:
        raise MergeError(f"{reader.name!r} reads features in groups. Use concatenation.")
    common = {name: encoding[name] for name in encoders.parameters}
    adopted: Sequence[State] = [{**model, **common} for model in problem.models]
    queries = [
        MomentQuery(new, (reader.name,), beside=(own,))
        for new, own in zip(adopted, problem.models, strict=True)
    ]
    holders = required(problem, "data_holders")
    answers = meter.ask_all_moments(holders, queries, problem.affine_maps)
    return tuple(
        _reading(reader, new, answer[reader.name])
        for new, answer in zip(adopted, answers, strict=True)
    )


def _reading(reader: AffineMap, model: State, moments: Moments) -> State:
    """Returns a model with a matrix fitted to its outputs for its own encoders' features.

    Moments are of the map's new inputs, its own former ones, and 1.
    """
    matrix, second = reader.matrix(model), moments.inputs[0]
    count = reader.weights[0].of(model).flatten(1).shape[1]  # without a memory's own units
    inputs, last = matrix.shape[1] - 1, len(second) - 1
    new, own = ([*range(first, first + count), last] for first in (0, inputs))
    entries = [*range(count), inputs]
    wanted = second[new][:, own] @ matrix[0, entries]
    fit = Moments(second[new][:, new][None], wanted[None])
    fitted = matrix.clone()
    fitted[0, entries] = solve(fit, matrix[:, entries], _RIDGE)[0]
    return reader.with_matrix(model, fitted)
