"""Permutations that bring one linear controller near to another."""

import numpy as np
import scipy.optimize

from fleet_tools.baselines.linear_control.systems import Controller

AXES = {"A": "s s", "B": "s _y", "C": "_u s"}
"""A controller as `merging.symmetry` tables have it: an Elman network without a nonlinearity, whose
permutations P are GL(n)'s elements T = P^T."""


def _permutation(score: np.ndarray) -> np.ndarray:
    """Returns the P that maximizes <P, score>."""
    rows, columns = scipy.optimize.linear_sum_assignment(score, maximize=True)
    P = np.zeros_like(score)
    P[rows, columns] = 1.0
    return P


def assign_one_sided(source: Controller, target: Controller, P: np.ndarray) -> np.ndarray:
    """Returns the paper's aligning step ("Aligning step"), (n, n).

    One linear assignment with the left side of P' A P held at the last permutation. Slip: it is
    no ascent of <P, A_s' P A_t> + <P, L>, whose gradient has the term A_s P A_t' too.
    """
    linear = source.B @ target.B.T + source.C.T @ target.C
    return _permutation(source.A.T @ P @ target.A + linear)


def climb(source: Controller, target: Controller, P: np.ndarray) -> np.ndarray:
    """Returns a permutation, (n, n), at least as near to the target as P.

    The distance of `source.transformed(P)` to the target, a term of eq:linear_obj, is a constant
    less twice <P, A_s' P A_t> + <P, B_s B_t' + C_s' C_t>: a quadratic assignment. It is climbed
    over doubly stochastic matrices by Frank-Wolfe steps with exact line search (Vogelstein et al.
    2015), from P and from their barycenter; the permutation nearest to the summit counts.
    """
    linear = source.B @ target.B.T + source.C.T @ target.C

    def quadratic(X: np.ndarray) -> float:
        return float(np.sum(X * (source.A @ X @ target.A.T)))

    def score(X: np.ndarray) -> float:
        return quadratic(X) + float(np.sum(X * linear))

    best, best_score = P, score(P)
    for X in (P, np.full_like(P, 1.0 / len(P))):
        for _ in range(50):
            slope = source.A.T @ X @ target.A + source.A @ X @ target.A.T + linear
            direction = _permutation(slope) - X
            rise, bend = float(np.sum(direction * slope)), quadratic(direction)
            if rise <= 1e-12 * (1.0 + abs(best_score)):
                break
            X = X + direction * (1.0 if bend >= 0.0 else min(1.0, -rise / (2.0 * bend)))
        candidate = _permutation(X)
        if score(candidate) > best_score + 1e-12 * abs(best_score):
            best, best_score = candidate, score(candidate)
    return best
