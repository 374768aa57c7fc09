"""Ensembles: all networks side by side, with equal weights or a gate, or one fitted last layer.

They have the parameters of all models together. They need a network with a last affine map that
returns the outputs. These are the actions of a linear head, or a denoising head's answers for noisy
actions at some time.

A fit of the last map minimizes the squared error of the labels that data holders have. For a head
that learns from drawn noise and times, batches hold such draws. Side by side, each model's last
hidden units read its own units, and the same noise and times; the one last matrix reads all of
them.
"""

from collections.abc import Sequence

import torch

from fleet_merging.errors import MergeError
from fleet_merging.methods.facts import ENSEMBLE, MOMENTS, method, require_moments
from fleet_merging.modules import copied
from fleet_merging.moments.affine_maps import RECURRENT, AffineMap
from fleet_merging.moments.gate import RowGate
from fleet_merging.moments.measurement import Moments, combine, solve
from fleet_merging.moments.rows import input_rows
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.query import MomentQuery
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.symmetry.table import State

SHARPNESS = 0.1
"""Power of the densities. The entries of a state are not independent, so a density of many of them
is overconfident."""

_SPREAD = 0.1
"""Variance added to each entry of the state, so that an entry that is constant for one model does
not rule out the others."""

_RIDGE = 1e-3
"""Weight of the mean of the last layers in their fit, as in the other methods."""


@method(
    "ensemble",
    "Deep ensemble",
    source="Lakshminarayanan et al. 2017",
    returns=ENSEMBLE,
    permutes=False,
)
def ensemble(problem: MergeProblem) -> MergeResult:
    """Averages the models' outputs, with equal weights.

    Lakshminarayanan et al., "Simple and Scalable Predictive Uncertainty Estimation using Deep
    Ensembles", 2017, where all models learn the same data. It sends no query.
    """
    return MergeResult(tuple(problem.models))


@method(
    "density_gated_ensemble",
    "Density-gated ensemble",
    source="Xu et al. 1995",
    needs=MOMENTS,
    returns=ENSEMBLE,
    asks="moments of states, once",
)
def density_gated_ensemble(problem: MergeProblem, *, sharpness: float = SHARPNESS) -> MergeResult:
    """Weighs the models' outputs by the densities of the present inputs in their data.

    Each data holder is asked once for second moments: of the inputs of one model's first affine
    map, or of its encoders' features. This model has the largest averaging weight;
    densities of different models' features would not compare. The gate follows Xu et al. (1995),
    "An Alternative Model for Mixtures of Experts", and needs no training.

    Args:
        problem: The models, their data holders and affine maps.
        sharpness: Power of the densities, above 0.

    Raises:
        MergeError: Data holders or affine maps are missing, or `sharpness` is not above 0.
        MessageError: A data holder's answer is invalid.
    """
    meter = TrafficMeter()
    gate = _density_gate(problem, sharpness, meter)
    return MergeResult(tuple(problem.models), traffic=meter.traffic, gate=gate)


@method(
    "gated_refit",
    "Density-gated ensemble with fitted last layers",
    source="this project",
    needs=MOMENTS,
    returns=ENSEMBLE,
    asks="moments of states; then with labels, of all networks",
)
def gated_refit(
    problem: MergeProblem, *, sharpness: float = SHARPNESS, ridge: float = _RIDGE
) -> MergeResult:
    """Weighs models by densities, with last layers fitted together by least squares.

    Each data holder is asked twice. The first query is for the moments of its model's inputs, as in
    `density_gated_ensemble`. The second one sends the gate and all models, for the moments of the
    weighted units and labels.

    Args:
        problem: The models, their data holders with labels, and affine maps.
        sharpness: Power of the densities, above 0.
        ridge: Weight of the models' own last layers.

    Raises:
        MergeError: Data holders or affine maps are missing, `sharpness` is not above 0, or the last
            affine map does not return the outputs.
        MessageError: A data holder's answer is invalid.
    """
    require_head(problem)
    meter = TrafficMeter()
    gate = _density_gate(problem, sharpness, meter)
    last = problem.affine_maps[-1]
    pooled = _moments_of_all(problem, meter, gate)
    matrices = [last.matrix(model) for model in problem.models]
    parts, common = _fitted(pooled, matrices, torch.zeros_like(matrices[0][:, -1:]), ridge)
    # The weights of the gate sum to 1.
    parts = [torch.cat([part[:, :-1], part[:, -1:] + common], 1) for part in parts]
    return MergeResult(_with_matrices(problem, parts), traffic=meter.traffic, gate=gate)


@method(
    "concatenation",
    "Ensemble with one fitted last layer",
    source="this project",
    needs=MOMENTS,
    returns=ENSEMBLE,
    asks="moments with labels, of all networks",
)
def concatenation(problem: MergeProblem, *, ridge: float = _RIDGE) -> MergeResult:
    """Fits one last layer to the last hidden units of all models side by side.

    Each data holder is asked once. It gets all models, and returns the second moments of their last
    layers' inputs and of the labels. The result is the mean of models with the fitted layers.

    Args:
        problem: The models, their data holders with labels, and affine maps.
        ridge: Weight of the mean of the models' own last layers.

    Raises:
        MergeError: Data holders or affine maps are missing, or the last map does not return the
            outputs.
        MessageError: A data holder's answer is invalid.
    """
    require_head(problem)
    meter = TrafficMeter()
    last = problem.affine_maps[-1]
    pooled = _moments_of_all(problem, meter, None)
    count, matrices = len(problem.models), [last.matrix(model) for model in problem.models]
    bias = torch.stack([matrix[:, -1:] for matrix in matrices]).mean(0)
    priors = [matrix[:, :-1] / count for matrix in matrices]
    parts, bias = _fitted(pooled, priors, bias, ridge)
    parts = [torch.cat([part * count, bias], 1) for part in parts]
    return MergeResult(_with_matrices(problem, parts), traffic=meter.traffic)


def require_head(problem: MergeProblem) -> None:
    """Raises a `MergeError` unless the last affine map returns the outputs of the models.

    It cannot be known without module and example. Data holders and affine maps are required, too.
    """
    require_moments(problem, problem.affine_maps[-1:])
    if problem.module is None or problem.example is None:
        return
    last, model = problem.affine_maps[-1], problem.models[0]
    module, example = copied(problem.module), problem.example
    read = input_rows(module, model, example, [last.name])[last.name].double()
    outputs = problem.outputs(problem.module, model)
    computed = torch.nn.functional.pad(read, (0, 1), value=1.0) @ last.matrix(model)
    computed = computed.transpose(0, 1).flatten(1)
    if (
        not isinstance(outputs, torch.Tensor)
        or outputs.numel() != computed.numel()
        or not torch.allclose(
            outputs.double().reshape(computed.shape), computed, rtol=1e-2, atol=1e-3
        )
    ):
        raise MergeError(
            f"This method fits the last affine map, {last.name!r}, to the labels, but the model "
            "returns something else. Give a model that returns the outputs of its last layer (such "
            "as logits), an `output` that selects them, or use density_gated_ensemble."
        )


def _density_gate(problem: MergeProblem, sharpness: float, meter: TrafficMeter) -> RowGate:
    """Asks data holders for moments of the inputs of one model; returns the gate."""
    if not 0 < sharpness < float("inf"):
        raise MergeError(f"The sharpness of the gate is {sharpness}. Give a number above 0.")
    require_moments(problem, problem.affine_maps[:1])
    first, encoders = problem.affine_maps[0], problem.encoders
    if encoders is not None:
        first = next(each for each in problem.affine_maps if each.name == encoders.reader)
    _require_rows_in_order(problem, first)
    inputs = first.weights[0].of(problem.models[0])[0].numel()
    size = min(problem.state_size or inputs, inputs)
    reader = int(problem.normalized_weights.argmax())
    queries = [MomentQuery(problem.models[reader], (first.name,))] * len(problem.models)
    answers = meter.ask_all_moments(problem.data_holders, queries, problem.affine_maps)
    moments = [answer[first.name] for answer in answers]
    scale = torch.ones(size, dtype=torch.float64)
    if encoders is not None:  # features have any scale
        pooled = combine(moments, problem.normalized_weights.tolist())
        deviations = _of_states(pooled, size)[1].diagonal().clamp(min=0).sqrt()
        scale = deviations.clamp(min=max(1e-3 * float(deviations.max()), 1e-12))
    gaussians = [_gaussian(each, size, scale) for each in moments]
    means, factors = map(torch.stack, zip(*gaussians, strict=True))
    return RowGate(first.name, means, factors, sharpness, reader)


def _require_rows_in_order(problem: MergeProblem, first: AffineMap) -> None:
    if first.groups != 1:
        raise MergeError(
            f"The first affine map, {first.name!r}, reads its inputs in {first.groups} groups, "
            "which a gate does not support. Use concatenation."
        )
    modules = {} if problem.module is None else dict(problem.module.named_modules())
    module = modules.get(first.name.rpartition(".l0")[0])
    if isinstance(module, RECURRENT) and not module.batch_first:
        raise MergeError(
            f"{first.name!r} has its inputs in the order (steps, trajectories); a gate needs "
            "(trajectories, steps). Build the module with batch_first=True."
        )


def _of_states(moments: Moments, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns mean and covariance of the first inputs of a map."""
    products = moments.inputs[0]
    mean = products[-1, :size]
    return mean, products[:size, :size] - mean.outer(mean)


def _gaussian(
    moments: Moments, size: int, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns mean and whitening factor of the first inputs of a map, in float32.

    `scale` is the unit of each of these inputs, (size,).
    """
    mean, covariance = _of_states(moments, size)
    covariance = covariance / scale.outer(scale)
    values, axes = torch.linalg.eigh(covariance)
    covariance = covariance + _SPREAD * torch.eye(size, dtype=covariance.dtype)
    factor, failed = torch.linalg.cholesky_ex(torch.linalg.inv_ex(covariance).inverse)
    if failed or float(values[0]) < -_SPREAD / 100:  # by noise, or the rounding of large numbers
        roots = axes * (values.clamp(min=0) + _SPREAD).rsqrt()
        upper = torch.linalg.qr(roots.T).R
        factor = (upper * upper.diagonal().sign()[:, None]).T
    return mean.float(), (factor / scale[:, None]).float()


def _moments_of_all(problem: MergeProblem, meter: TrafficMeter, gate: RowGate | None) -> Moments:
    """Returns pooled moments of the inputs of all models' last maps, and of the labels."""
    last = problem.affine_maps[-1]
    first, *others = problem.models
    query = MomentQuery(first, (last.name,), "labels", beside=tuple(others), gate=gate)
    shares = problem.normalized_weights.tolist()
    return meter.ask_pooled(problem.data_holders, query, problem.affine_maps, shares)[last.name]


def _fitted(
    pooled: Moments, parts: Sequence[torch.Tensor], bias: torch.Tensor, ridge: float
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Returns the matrix that fits moments of inputs side by side best, in the parts of its prior.

    These are rows for each model, (groups, inputs, outputs), and the bias, (groups, 1, outputs).
    """
    if not 0 < ridge < float("inf"):
        raise MergeError(f"The ridge is {ridge}. Give a number above 0, such as 0.001.")
    fitted = solve(pooled, torch.cat([*parts, bias], 1), ridge)
    *rows, bias = torch.split(fitted, [*(part.shape[1] for part in parts), 1], dim=1)
    return rows, bias


def _with_matrices(problem: MergeProblem, matrices: Sequence[torch.Tensor]) -> tuple[State, ...]:
    last = problem.affine_maps[-1]
    if not last.biases:
        raise MergeError(
            f"The last affine map, {last.name!r}, has no bias to fit. Add a bias of zeros to the "
            "models' last layer, or use density_gated_ensemble."
        )
    return tuple(
        last.with_matrix(model, matrix)
        for model, matrix in zip(problem.models, matrices, strict=True)
    )
