"""Byzantine-robust aggregation.

A rule takes the vectors of all robots, up to f of them arbitrary, and returns one, see `RULES`. Of
n robots, coordinate_median and trimmed_mean need n >= 2 f + 1, krum and multi_krum n >= 2 f + 3.
Only `mean` uses weights: robots report their own numbers of steps, so that with weights, a single
false one could decide the result.

Rules compare vectors, and not policies. They miss a robot with a small error, and leave out a
single robot that is right.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cmp_to_key, partial

import numpy as np
import torch

from fleet_merging.buffers import learned_tensors
from fleet_merging.errors import MergeError, UnknownChoiceError
from fleet_merging.methods.facts import method, variant
from fleet_merging.methods.rebasin import align
from fleet_merging.moments.measurement import Moments, combine
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.symmetry.group import Permutation
from fleet_merging.symmetry.table import State

_YIN = "Yin et al. 2018"

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""rule(vectors, weights): one vector (k,) from the vectors of n robots, (n, k), and their averaging
weights, (n,), float64."""


def mean(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the weighted mean, sum_i w_i v_i / sum_i w_i: with f = 1, a robot decides it."""
    return weights @ vectors / weights.sum()


def norm_bound(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the mean of v_i min(1, b / norm(v_i)), where b is the median of the norms.

    Sun et al., "Can You Really Backdoor Federated Learning?", 2019. If fewer than half of the
    robots are false, b is at most the longest of the others' norms. So f robots move the mean by at
    most f b / n each, in any direction.
    """
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)  # squares of huge numbers do not fit
    norms = scale * np.linalg.norm(vectors / scale[:, None], axis=1)
    bound = np.median(norms)
    factors = np.where(norms > bound, bound / np.where(norms > 0, norms, 1.0), 1.0)
    return (vectors * factors[:, None]).mean(axis=0)


def coordinate_median(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the median of each coordinate; of an even number, the mean of the middle two.

    Yin et al., "Byzantine-Robust Distributed Learning", 2018.
    """
    return np.median(vectors, axis=0)


def trimmed_mean(vectors: np.ndarray, weights: np.ndarray, byzantine: int = 1) -> np.ndarray:
    """Returns the mean of each coordinate without its f smallest and f largest values.

    Yin et al., "Byzantine-Robust Distributed Learning", 2018. Raises a `MergeError` for fewer than
    2 f + 1 robots.
    """
    _require_robots(len(vectors), 2 * byzantine + 1, byzantine, "trimmed_mean")
    return np.sort(vectors, axis=0)[byzantine : len(vectors) - byzantine].mean(axis=0)


def krum(vectors: np.ndarray, weights: np.ndarray, byzantine: int = 1) -> np.ndarray:
    """Returns the vector v_i with the smallest score.

    Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
    2017. The score s(i) is the sum of squared distances from v_i to the n - f - 2 vectors nearest
    to it. Raises a `MergeError` for fewer than 2 f + 3 robots.
    """
    return vectors[_by_score(vectors, byzantine, "krum")[0]]


def multi_krum(vectors: np.ndarray, weights: np.ndarray, byzantine: int = 1) -> np.ndarray:
    """Returns the mean of the n - f vectors with the smallest scores, see `krum`."""
    best = _by_score(vectors, byzantine, "multi_krum")[: len(vectors) - byzantine]
    return vectors[np.sort(best)].mean(axis=0)


RULES: Mapping[str, Callable[..., np.ndarray]] = {
    "mean": mean,
    "norm_bound": norm_bound,
    "coordinate_median": coordinate_median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
    "multi_krum": multi_krum,
}
"""Rules by name."""

_OF_COORDINATES = ("coordinate_median", "trimmed_mean")
_COUNT_BYZANTINE = ("trimmed_mean", "krum", "multi_krum")


_DAMPING = 1e-6
"""Size of inputs in a direction, relative to the largest, below which they are ignored."""

_TINY = 1e-300


def rule_of(name: str, byzantine: int = 1) -> Rule:
    """Returns a rule.

    Args:
        name: One of `RULES`.
        byzantine: Largest number f of robots that may send arbitrary vectors.

    Raises:
        UnknownChoiceError: There is no such rule.
        MergeError: f is negative. When the rule is called: there are too few robots for it, or a
            vector is not finite.
    """
    if name not in RULES:
        raise UnknownChoiceError.of("rule of robust aggregation", name, RULES)
    if byzantine < 0:
        raise MergeError(f"{byzantine} robots cannot be Byzantine. Give a whole number, 0 or more.")
    rule = RULES[name]
    chosen = partial(rule, byzantine=byzantine) if name in _COUNT_BYZANTINE else rule

    def checked(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
        if not np.isfinite(vectors).all():
            wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()
            raise MergeError(f"The vectors of {wrong} are not finite. Leave these robots out.")
        with np.errstate(over="ignore"):  # distances from huge numbers are infinite
            return chosen(vectors, weights)

    return checked


@variant("norm_bound", "Mean of bounded changes", source="Sun et al. 2019", rule="norm_bound")
@variant("trimmed_mean", "Trimmed mean", source=_YIN, rule="trimmed_mean")
@variant("coordinate_median", "Median of each coordinate", source=_YIN, rule="coordinate_median")
@variant("multi_krum", "Multi-Krum", rule="multi_krum")
@method("krum", "Krum", source="Blanchard et al. 2017", start="common", rule="krum")
def robust_average(
    problem: MergeProblem,
    *,
    rule: str = "coordinate_median",
    byzantine: int = 1,
    alignment: str = "none",
) -> MergeResult:
    """Merges models by a rule; a method of the registry, which has each rule by its name.

    Args:
        problem: The models.
        rule: One of `RULES`.
        byzantine: Largest number of arbitrary models.
        alignment: "none", "weights" or "activations" before, see `rebasin.align`.

    Raises:
        UnknownChoiceError, MergeError: See `rule_of`; or `alignment` is unknown.
    """
    meter = TrafficMeter()
    permutations = align(problem, alignment, meter)
    state = robust_state(problem, permutations, rule, byzantine)
    return MergeResult.network(state, permutations, meter.traffic)


def robust_state(
    problem: MergeProblem, permutations: Sequence[Permutation], rule: str, byzantine: int = 1
) -> dict[str, torch.Tensor]:
    """Aggregates the permuted models by a rule; buffers are averaged.

    The rule gets differences from the base, or else from the median of each weight. Only
    `norm_bound` depends on this choice.

    Args:
        problem: The models.
        permutations: One for each.
        rule: One of `RULES`; with "mean", the result is `problem.mean`'s, to the bit.
        byzantine: Largest number of robots that may send arbitrary weights.

    Raises:
        UnknownChoiceError, MergeError: See `rule_of`.
    """
    chosen, merged = rule_of(rule, byzantine), problem.mean(permutations)
    if rule == "mean":
        return merged
    names = list(learned_tensors(problem.models[0]))
    vectors = np.stack([_vector(model, names) for model in problem.permuted(permutations)])
    origin = np.median(vectors, axis=0) if problem.base is None else _vector(problem.base, names)
    found = torch.from_numpy(origin + chosen(vectors - origin, problem.normalized_weights))
    parts = found.split([merged[name].numel() for name in names])
    learned = {
        name: part.view(merged[name].shape).to(merged[name])
        for name, part in zip(names, parts, strict=True)
    }
    return merged | learned


def robust_moments(
    moments: Iterable[Moments], weights: Sequence[float], rule: str, byzantine: int = 1
) -> Moments:
    """Returns moments of all robots by a rule, in place of `measurement.combine`.

    For inputs, the nearest positive semidefinite matrix is returned, without negative eigenvalues
    (Higham, "Computing a Nearest Symmetric Positive Semidefinite Matrix", 1988, Theorem 2.1).
    Medians of such matrices and false answers may have some.

    Separate medians of inputs and targets would belong to no map from the ones to the others. So
    rules by coordinate get each robot's own map M_i = G_i^-1 C_i instead of its targets C_i. The
    returned targets G M belong to their map M.

    Args:
        moments: Moments of each robot, of one shape.
        weights: Averaging weights, which sum to 1, for "mean".
        rule: One of `RULES`; with "mean", the result is `combine`'s, to the bit.
        byzantine: Largest number of robots that may send arbitrary moments.

    Raises:
        UnknownChoiceError, MergeError: See `rule_of`.
    """
    chosen = rule_of(rule, byzantine)
    if rule == "mean":
        return combine(moments, weights)
    given, of_coordinates = list(moments), rule in _OF_COORDINATES
    inputs, targets = given[0].inputs, given[0].targets
    parts = [(each.inputs, _map(each) if of_coordinates else each.targets) for each in given]
    vectors = torch.stack([torch.cat([each.flatten() for each in pair]) for pair in parts])
    found = torch.from_numpy(chosen(vectors.double().numpy(), np.asarray(weights, float)))
    products = _nearest_semidefinite(found[: inputs.numel()].view(inputs.shape))
    rest = found[inputs.numel() :].view(targets.shape)
    return Moments(products, products @ rest if of_coordinates else rest)


def _nearest_semidefinite(matrices: torch.Tensor) -> torch.Tensor:
    values, axes = torch.linalg.eigh((matrices + matrices.mT) / 2)
    return (axes * values.clamp(min=0.0).unsqueeze(-2)) @ axes.mT


def _map(moments: Moments) -> torch.Tensor:
    """Returns the map that fits moments; it is short in directions with hardly any inputs."""
    values, axes = torch.linalg.eigh((moments.inputs + moments.inputs.mT).double() / 2)
    damping = _DAMPING * values.abs().amax(-1, keepdim=True)
    scaled = values.clamp(min=0.0) / (values.square() + damping.square()).clamp(min=_TINY)
    return torch.nan_to_num(axes @ (scaled.unsqueeze(-1) * (axes.mT @ moments.targets.double())))


def _by_score(vectors: np.ndarray, byzantine: int, name: str) -> np.ndarray:
    """Returns the robots by ascending score; the first differing number breaks ties.

    So ties move with all vectors, and the order of the robots does not matter.
    """
    count = len(vectors)
    _require_robots(count, 2 * byzantine + 3, byzantine, name)
    scores = np.empty(count)
    for robot, vector in enumerate(vectors):
        squares = np.square(vectors - vector).sum(axis=1)
        scores[robot] = np.sort(np.delete(squares, robot))[: count - byzantine - 2].sum()

    def compared(one: int, other: int) -> int:
        if scores[one] != scores[other]:
            return -1 if scores[one] < scores[other] else 1
        differing = np.flatnonzero(vectors[one] != vectors[other])[:1]
        return int(np.sign(vectors[one, differing] - vectors[other, differing]).sum())

    return np.array(sorted(range(count), key=cmp_to_key(compared)))


def _require_robots(count: int, fewest: int, byzantine: int, name: str) -> None:
    if count < fewest:
        raise MergeError(
            f"{name} with `byzantine` = {byzantine} needs at least {fewest} robots; given: "
            f"{count}. Give more robots, or a smaller `byzantine`."
        )


def _vector(state: State, names: Sequence[str]) -> np.ndarray:
    return torch.cat([state[name].detach().flatten().double() for name in names]).cpu().numpy()
