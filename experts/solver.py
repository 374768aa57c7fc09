"""Solves programs with SNOPT, and checks each solution against the conditions themselves."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from pydrake.solvers import MathematicalProgram, SnoptSolver, SolverOptions

from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.kinematics import Kinematics
from fleet_tools.experts.terms import Condition

SLACK = 0.01
"""Fraction of a tolerance by which rounding of the solver may exceed it."""

LIMIT_TOLERANCE = 1e-6  # rad

_SNOPT = {
    # Drake squares distances and takes cosines of angles: 1 mm is bounded as 1e-6, 1 deg as 1.5e-4.
    "Major feasibility tolerance": 1e-9,
    "Minor feasibility tolerance": 1e-9,
    "Major iterations limit": 300,
}


class Violation(NamedTuple):
    """A condition that does not hold.

    Attributes:
        name: Name of the condition.
        ratio: Error divided by its tolerance, above 1.
        text: Error and tolerance, for people.
    """

    name: str
    ratio: float
    text: str


def violations(
    kinematics: Kinematics, q: np.ndarray, conditions: Iterable[Condition]
) -> list[Violation]:
    """Returns which conditions and position limits are violated at positions q, (n,)."""
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
    """Yields the feasible local minima, at most one per guess, each with the shape of x.

    Args:
        prog: The program, with all its variables in x.
        x: Decision variables, of any shape.
        guesses: Initial guesses, each of the shape of x.
        check: Returns the violations of a value of x.
        failure: Description of the failure, for the error.

    Raises:
        InfeasibleError: None is feasible; it holds the violations of the best one.
    """
    options = SolverOptions()
    for name, value in _SNOPT.items():
        options.SetOption(SnoptSolver.id(), name, value)
    found = False
    nearest: Sequence[Violation] = ()
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
