"""Laws of the action of GL(n), and checks of the arguments of plants and controllers."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from support.linear_cases import (
    assert_same_controller,
    assert_same_law,
    random_controller,
    random_transform,
    seeds,
)

import fleet_tools.baselines.linear_control as linear_control
from fleet_tools.baselines.linear_control.lqg import spectral_radius
from fleet_tools.baselines.linear_control.systems import (
    A_STABLE,
    A_UNSTABLE,
    Controller,
    LinearControlError,
    controller_from_vector,
    paper_system,
    static_controller,
)


@given(seeds)
def test_transforms_act_as_a_group(seed):
    rng = np.random.default_rng(seed)
    controller = random_controller(rng)
    n = controller.shape[0]
    S, T = random_transform(rng, n), random_transform(rng, n)
    assert_same_controller(controller.transformed(np.eye(n)), controller, 1e-14)
    twice = controller.transformed(S).transformed(T)
    assert_same_controller(twice, controller.transformed(S @ T), 1e-10)
    assert_same_controller(twice.transformed(np.linalg.inv(S @ T)), controller, 1e-10)


@given(seeds)
def test_a_transform_leaves_the_law(seed):
    rng = np.random.default_rng(seed)
    controller = random_controller(rng)
    T = random_transform(rng, controller.shape[0])
    assert_same_law(controller, controller.transformed(T), 1e-11)


@given(seeds)
def test_vectors_and_controllers_are_inverse(seed):
    controller = random_controller(np.random.default_rng(seed))
    again = controller_from_vector(controller.to_vector(), controller.shape)
    assert_same_controller(again, controller, 0.0)


def test_a_static_law_answers_at_once_and_forgets():
    K = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 5.0]])
    responses = static_controller(K).responses(3)
    np.testing.assert_array_equal(responses[0], K)
    assert not responses[1:].any()


def test_the_papers_plants():
    assert spectral_radius(A_STABLE) < 1.0 < spectral_radius(A_UNSTABLE)
    lqr, lqg = paper_system(), paper_system(outputs=50, alpha=0.1)
    assert (lqr.n, lqr.m, lqr.p) == (4, 2, 4) and not lqr.V.any()
    assert (lqg.n, lqg.m, lqg.p) == (4, 2, 50) and lqg.Q[0, 0] == 0.1
    assert (paper_system(unstable=True).n, paper_system(unstable=True).m) == (3, 2)


def test_values_are_copies_and_cannot_be_written():
    A = np.eye(2)
    controller = Controller(A, np.ones((2, 1)), np.ones((1, 2)))
    A[0, 0] = 7.0
    assert controller.A[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        controller.A[0, 0] = 7.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"B": np.ones((3, 2))}, "B has shape"),
        ({"Q": np.full((4, 4), np.nan)}, "finite"),
        ({"Q": np.triu(np.ones((4, 4)))}, "not symmetric"),
        ({"W": -np.eye(4)}, "W is not positive semidefinite"),
        ({"R": np.zeros((2, 2))}, "R is not positive definite"),
    ],
)
def test_what_is_no_plant_is_refused(change, message):
    with pytest.raises(LinearControlError, match=message):
        replace(paper_system(), **change)


def test_what_is_no_transform_is_refused():
    controller = random_controller(np.random.default_rng(0), n=2)
    with pytest.raises(LinearControlError, match="singular"):
        controller.transformed(np.zeros((2, 2)))
    with pytest.raises(LinearControlError, match="shape"):
        controller.transformed(np.eye(3))


def test_the_library_needs_numpy_and_scipy_alone():
    allowed = {"numpy", "scipy", "argparse", "collections", "dataclasses", "typing"}
    folder = Path(linear_control.__file__).parent
    for path in set(folder.glob("*.py")) - {folder / "arena.py"}:  # which joins the experiments
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            for name in names:
                within = name.startswith(
                    ("fleet_tools.baselines.linear_control", "fleet_tools.errors")
                )
                assert within or name.split(".")[0] in allowed, (path.name, name)
