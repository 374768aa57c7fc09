"""SNOPT, and what counts as a solution: not its word, but the conditions themselves."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from pydrake.solvers import MathematicalProgram, SnoptSolver, SolverOptions

from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.kinematics import Kinematics
from fleet_tools.experts.terms import Condition

SLACK = 0.01
"""Fraction of a tolerance by which a condition may be exceeded: the solver's own rounding."""

LIMIT_TOLERANCE = 1e-6  # rad

_SNOPT = {
    # Drake squares distances and takes cosines of angles: 1 mm is bounded as 1e-6, 1 deg as 1.5e-4.
    "Major feasibility tolerance": 1e-9,
    "Minor feasibility tolerance": 1e-9,
    "Major iterations limit": 300,
}


class Violation(NamedTuple):
    """A condition that does not hold, and by how much."""

    name: str
    ratio: float
    """The error over its tolerance; above 1."""
    text: str


def violations(
    kinematics: Kinematics, q: np.ndarray, conditions: Iterable[Condition]
) -> list[Violation]:
    """What does not hold at positions q, (n,), of some conditions and the limits of positions."""
    X_WE = kinematics.forward(q)
    result = [
        Violation(condition.name, ratio, condition.describe(X_WE))
        for condition in conditions
        if (ratio := condition.ratio(X_WE)) > 1 + SLACK
    ]
    excess = float(np.max([kinematics.lower - q, q - kinematics.upper]))
    if excess > LIMIT_TOLERANCE:
        text = f"exceeded by {excess:.2g} rad, at most {LIMIT_TOLERANCE:g} rad"
        result.append(Violation("joint limits", excess / LIMIT_TOLERANCE, text))
    return result


def feasible(
    prog: MathematicalProgram,
    x: np.ndarray,
    guesses: Iterable[np.ndarray],
    check: Callable[[np.ndarray], Sequence[Violation]],
    failure: str,
) -> Iterator[np.ndarray]:
    """Yields the local minima, one per guess, that pass the check; each as x.

    Args:
        prog: The problem. All its variables are in x.
        x: Decision variables, of any shape.
        guesses: Where to start from, each of the shape of x.
        check: Says what is wrong with values of x.
        failure: What could not be done, for the error.

    Raises:
        InfeasibleError: None passes; it holds the violations of the one that came nearest.
    """
    options = SolverOptions()
    for name, value in _SNOPT.items():
        options.SetOption(SnoptSolver.id(), name, value)
    found, nearest = False, ()
    for guess in guesses:
        prog.SetInitialGuess(x, guess)
        solution = SnoptSolver().Solve(prog, None, options).GetSolution(x)
        wrong = check(solution)
        if not wrong:
            found = True
            yield solution
        elif not nearest or sum(v.ratio for v in wrong) < sum(v.ratio for v in nearest):
            nearest = wrong
    if not found:
        raise InfeasibleError(failure, {v.name: v.text for v in nearest})
