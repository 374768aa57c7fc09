"""Permutations that bring one linear controller near to another."""

import numpy as np
import scipy.optimize

from fleet_tools.baselines.linear_control.systems import Controller

AXES = {"A": "s s", "B": "s _y", "C": "_u s"}
"""Axes of a controller, in the notation of `merging.symmetry`: those of an Elman network without a
nonlinearity. A permutation matrix P there is the element T = P^T of GL(n) here."""


def align_by_assignment(source: Controller, target: Controller, P: np.ndarray) -> np.ndarray:
    """Returns the permutation of the paper's "Aligning step", (n, n).

    It solves one linear assignment, with the left side of P' A P held at the last permutation.
    Slip: this is no ascent of <P, A_s' P A_t> + <P, L>, whose gradient also has the term
    A_s P A_t'.

    Args:
        source: Controller to align.
        target: Controller to which it is aligned.
        P: Last permutation, (n, n).
    """
    linear = source.B @ target.B.T + source.C.T @ target.C
    return _best_permutation(source.A.T @ P @ target.A + linear)


def align_by_frank_wolfe(source: Controller, target: Controller, P: np.ndarray) -> np.ndarray:
    """Returns a permutation, (n, n), that is at least as good as P.

    The squared distance of `source.transformed(P)` to the target, a term of eq:linear_obj, is a
    constant minus twice <P, A_s' P A_t> + <P, B_s B_t' + C_s' C_t>: a quadratic assignment. Its
    objective is increased over doubly stochastic matrices by Frank-Wolfe steps with exact line
    search (Vogelstein et al. 2015), from P and from the barycenter, and the result is projected
    onto permutations.

    Args:
        source: Controller to align.
        target: Controller to which it is aligned.
        P: Permutation to start from, (n, n).
    """
    linear = source.B @ target.B.T + source.C.T @ target.C

    def quadratic(X: np.ndarray) -> float:
        return float(np.sum(X * (source.A @ X @ target.A.T)))

    def score(X: np.ndarray) -> float:
        return quadratic(X) + float(np.sum(X * linear))

    best, best_score = P, score(P)
    for X in (P, np.full_like(P, 1.0 / len(P))):
        for _ in range(50):
            gradient = source.A.T @ X @ target.A + source.A @ X @ target.A.T + linear
            direction = _best_permutation(gradient) - X
            slope, curvature = float(np.sum(direction * gradient)), quadratic(direction)
            if slope <= 1e-12 * (1.0 + abs(best_score)):
                break
            step = 1.0 if curvature >= 0.0 else min(1.0, -slope / (2.0 * curvature))
            X = X + direction * step
        candidate = _best_permutation(X)
        if score(candidate) > best_score + 1e-12 * abs(best_score):
            best, best_score = candidate, score(candidate)
    return best


def _best_permutation(score: np.ndarray) -> np.ndarray:
    """Returns the permutation matrix P that maximizes <P, score>."""
    rows, columns = scipy.optimize.linear_sum_assignment(score, maximize=True)
    P = np.zeros_like(score)
    P[rows, columns] = 1.0
    return P
