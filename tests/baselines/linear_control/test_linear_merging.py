"""Merging of linear controllers: what each group can align, and the arena that compares them."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.linear_cases import (
    assert_same_controller,
    assert_same_law,
    finite_differences,
    noisy,
    random_controller,
    random_transform,
    seeds,
)
from support.shares import few

from fleet_tools.baselines.experiments.form import Experiment, planned_runs
from fleet_tools.baselines.linear_control.alignment import (
    align,
    alignment_loss,
    balancing_transform,
)
from fleet_tools.baselines.linear_control.arena import LinearControl
from fleet_tools.baselines.linear_control.learning import learn_by_gradient
from fleet_tools.baselines.linear_control.lqg import (
    cost,
    optimal_controller,
    optimal_cost,
    simulate,
)
from fleet_tools.baselines.linear_control.merging import (
    METHODS,
    average,
    central_index,
    merge_by_gradient,
    merge_by_least_squares,
    merge_by_permutation,
)
from fleet_tools.baselines.linear_control.systems import (
    Controller,
    LinearControlError,
    paper_system,
)
from fleet_tools.config.values import parse
from fleet_tools.errors import FleetToolsError

signs = st.sampled_from([-1, 1])
over_gl = pytest.mark.parametrize("merge", [merge_by_gradient, merge_by_least_squares])
every_method = pytest.mark.parametrize("merge", METHODS.values(), ids=METHODS)


def permutation(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.eye(n)[rng.permutation(n)]


@given(seeds, signs)
def test_alignment_recovers_the_transform_whatever_its_determinant(seed, sign):
    rng = np.random.default_rng(seed)
    controller = random_controller(rng)
    T = random_transform(rng, controller.shape[0], sign)
    found = align(controller, controller.transformed(T))
    assert np.sign(np.linalg.det(found)) == sign
    np.testing.assert_allclose(found, T, rtol=0, atol=1e-6)


def test_alignment_is_exact_for_an_optimal_controller():
    for unstable, outputs in ((True, 50), (False, 50), (True, 3)):
        controller = optimal_controller(paper_system(unstable=unstable, outputs=outputs))
        n = controller.shape[0]
        for sign in (-1, 1):
            T = random_transform(np.random.default_rng(0), n, sign)
            found = align(controller, controller.transformed(T))
            np.testing.assert_allclose(found, T, rtol=0, atol=1e-11)


@given(seeds)
def test_alignment_minimizes_its_loss(seed):
    rng = np.random.default_rng(seed)
    source, target = random_controller(rng, 3, 2, 2), random_controller(rng, 3, 2, 2)
    T = align(source, target)
    loss, gradient = alignment_loss(target, T[None], [source])
    assert np.abs(gradient).max() < 1e-9 * (1.0 + loss)


def test_alignment_of_what_determines_nothing_is_the_identity():
    nothing = Controller(np.eye(3), np.zeros((3, 1)), np.zeros((1, 3)))
    np.testing.assert_array_equal(align(nothing, nothing), np.eye(3))


@over_gl
@pytest.mark.parametrize("outputs", [3, 50])
def test_opposite_coordinates_average_to_infinite_cost_and_align_to_the_optimum(merge, outputs):
    """The two lie in different components of the stabilizing controllers.

    In three dimensions -I has a negative determinant (paper, "Gradient-based approach v.s. LQG
    Landscape").
    """
    system = paper_system(unstable=True, outputs=outputs)
    best = optimal_controller(system)
    fleet = [best] * 5 + [best.transformed(-np.eye(3))] * 5
    assert cost(system, average(fleet).controller) == np.inf
    assert cost(system, merge_by_permutation(fleet).controller) == np.inf
    merged = merge(fleet)
    assert cost(system, merged.controller) == pytest.approx(optimal_cost(system), rel=1e-9)
    determinants = np.sign(np.linalg.det(merged.transforms))
    first = determinants[0]
    assert (determinants[:5] == first).all() and (determinants[5:] == -first).all()


@over_gl
@given(seed=seeds)
def test_transforms_of_one_controller_merge_to_its_law(merge, seed):
    rng = np.random.default_rng(seed)
    system = paper_system(unstable=True, outputs=3, seed=seed)
    best = optimal_controller(system)
    fleet = [best.transformed(random_transform(rng, 3)) for _ in range(5)]
    merged = merge(fleet)
    assert_same_law(best, merged.controller, 1e-5)
    for controller, T in zip(fleet, merged.transforms, strict=True):
        assert_same_controller(controller.transformed(T), merged.controller, 1e-4)


@given(seeds)
def test_permuted_copies_merge_to_their_law_by_permutation(seed):
    rng = np.random.default_rng(seed)
    controller = random_controller(rng, 4, 3, 2)
    fleet = [controller.transformed(permutation(rng, 4)) for _ in range(5)]
    merged = merge_by_permutation(fleet)
    assert_same_law(controller, merged.controller, 1e-10)
    for T in merged.transforms:
        np.testing.assert_array_equal(T @ T.T, np.eye(4))


@every_method
@given(seed=seeds)
def test_equal_controllers_merge_to_themselves(merge, seed):
    controller = random_controller(np.random.default_rng(seed))
    merged = merge([controller] * 3)
    assert_same_law(controller, merged.controller, 1e-7)
    for T in merged.transforms:
        np.testing.assert_allclose(T, merged.transforms[0], atol=1e-6)


@every_method
@given(seed=seeds)
@few(15)
def test_order_does_not_matter(merge, seed):
    rng = np.random.default_rng(seed)
    best = optimal_controller(paper_system(unstable=True, outputs=3))
    fleet = [noisy(best, rng, 0.02).transformed(random_transform(rng, 3)) for _ in range(4)]
    second = merge([fleet[i] for i in rng.permutation(4)])
    assert_same_law(merge(fleet).controller, second.controller, 1e-3)


@over_gl
@given(seed=seeds)
@few(15)
def test_the_robots_coordinates_do_not_matter(merge, seed):
    rng = np.random.default_rng(seed)
    best = optimal_controller(paper_system(unstable=True, outputs=3))
    fleet = [noisy(best, rng, 0.02) for _ in range(4)]
    moved = [k.transformed(random_transform(rng, 3)) for k in fleet]
    assert_same_law(merge(fleet).controller, merge(moved).controller, 1e-3)


@given(seeds)
def test_balanced_coordinates_are_as_strongly_reached_as_seen(seed):
    controller = random_controller(np.random.default_rng(seed), n=3, p=3, m=3)
    k = controller.transformed(balancing_transform(controller))
    powers = [np.linalg.matrix_power(k.A, i) for i in range(6)]
    reachability = np.sum([A @ k.B @ k.B.T @ A.T for A in powers], axis=0)
    observability = np.sum([A.T @ k.C.T @ k.C @ A for A in powers], axis=0)
    scale = np.abs(reachability).max()
    np.testing.assert_allclose(reachability, observability, rtol=0, atol=1e-6 * scale)
    diagonal = np.diag(np.diag(reachability))
    np.testing.assert_allclose(reachability, diagonal, rtol=0, atol=1e-6 * scale)


@over_gl
def test_learned_controllers_merge_better_than_they_are(merge):
    system = paper_system(unstable=True, outputs=50)
    best, rng, fleet = optimal_controller(system), np.random.default_rng(1), []
    for _ in range(3):
        data = simulate(system, best, rng, episodes=3, steps=100)
        fleet.append(learn_by_gradient(data.y, data.u, 3, rng, iterations=100))
    singles = [cost(system, k) for k in fleet]
    merged = cost(system, merge(fleet).controller)
    assert merged < np.mean(singles) and merged < 1.001 * optimal_cost(system)
    assert cost(system, average(fleet).controller) > 2 * optimal_cost(system)


@given(seeds)
def test_the_gradient_of_the_merging_loss_is_that_of_finite_differences(seed):
    rng = np.random.default_rng(seed)
    merged = random_controller(rng)
    fleet = [random_controller(rng, *merged.shape) for _ in range(3)]
    T = rng.standard_normal((3, *merged.A.shape))

    def of_vector(vector):
        return alignment_loss(merged, vector.reshape(T.shape), fleet)[0]

    numeric = finite_differences(of_vector, T.ravel())
    scale = 1.0 + np.abs(numeric).max()
    analytic = alignment_loss(merged, T, fleet)[1].ravel()
    np.testing.assert_allclose(analytic, numeric, rtol=0, atol=1e-7 * scale)


@given(seeds)
def test_the_loss_at_true_transforms_is_zero_and_the_degenerate_limit_cheats(seed):
    """The slip in the remark: small transforms reduce the loss below that of any true alignment."""
    rng = np.random.default_rng(seed)
    controller = random_controller(rng, 3, 2, 2)
    Ts = np.stack([random_transform(rng, 3) for _ in range(3)])
    copies = [controller.transformed(np.linalg.inv(T)) for T in Ts]
    assert alignment_loss(controller, Ts, copies)[0] < 1e-18 * np.sum(controller.to_vector() ** 2)
    unrelated = [random_controller(rng, 3, 2, 2) for _ in range(3)]
    aligned = merge_by_least_squares(unrelated, iterations=5)
    small = 1e-3
    shrunk = aligned.controller.transformed(small * np.eye(3))
    before = alignment_loss(aligned.controller, aligned.transforms, unrelated)[0]
    assert alignment_loss(shrunk, small * aligned.transforms, unrelated)[0] < before


@given(seeds)
def test_alternations_never_raise_their_objective(seed):
    rng = np.random.default_rng(seed)
    fleet = [random_controller(rng, 4, 2, 2) for _ in range(4)]
    for merge in (merge_by_permutation, merge_by_least_squares):
        losses = merge(fleet, iterations=20).losses
        assert all(b <= a * (1.0 + 1e-9) for a, b in pairwise(losses))


def test_the_central_controller_is_found_in_any_coordinates():
    rng = np.random.default_rng(0)
    best = optimal_controller(paper_system(outputs=3))
    fleet = [noisy(best, rng, 0.1) for _ in range(5)]
    index = central_index(fleet)
    assert central_index([k.transformed(random_transform(rng, 4)) for k in fleet]) == index


@every_method
def test_controllers_that_do_not_fit_are_refused(merge):
    rng = np.random.default_rng(0)
    small, large = random_controller(rng, 2, 1, 1), random_controller(rng, 3, 1, 1)
    for controllers in ([], [small, large]):
        with pytest.raises(LinearControlError, match="same shape"):
            merge(controllers)


def costs(folder, **base) -> dict[str, float]:
    """Returns J / J* of each method and reference, of seed 0."""
    arms = {name: {"method": name} for name in ("average", "permutation", "least_squares")}
    content = {"arms": arms, "base": base, "references": ["single", "joint"], "seeds": 1}
    arena = LinearControl(experiment := parse(Experiment, content, "The test"))
    found = {
        run.arm: arena.measure(arena.plan(run), folder)["cost"] for run in planned_runs(experiment)
    }
    return {arm: math.inf if cost is None else cost for arm, cost in found.items()}


def test_static_laws_of_one_task_are_the_optimum_however_they_are_merged(tmp_path):
    assert costs(tmp_path, controllers="static") == pytest.approx(
        dict.fromkeys(("average", "permutation", "least_squares", "single", "joint"), 1.0)
    )


def test_no_static_law_is_optimal_for_ten_tasks(tmp_path):
    found = costs(tmp_path, controllers="static", tasks=10)
    assert found.pop("single") == pytest.approx(1.0)
    assert all(1.1 < cost < 1.5 for cost in found.values())


def test_components_that_no_path_joins_are_merged_over_gl_alone(tmp_path):
    found = costs(tmp_path, controllers="opposite", unstable=True)
    assert found["average"] == found["permutation"] == math.inf
    assert found["least_squares"] == pytest.approx(1.0)


def test_fleets_are_learned_once(tmp_path, monkeypatch):
    first = costs(tmp_path, controllers="static", tasks=10)
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert len(cells) == 2  # the robots' controllers, and the joint one
    assert costs(tmp_path, controllers="static", tasks=10) == first
    assert all(path.stat().st_mtime_ns == then for path, then in cells.items())


def test_unknown_methods_and_keys_are_refused(tmp_path):
    for base in ({"tasks": 3}, {"controllers": "fuzzy"}):
        with pytest.raises(FleetToolsError):
            costs(tmp_path, **base)
    arena = LinearControl(experiment := parse(Experiment, {"arms": {"a": {"method": "x"}}}, "T"))
    with pytest.raises(FleetToolsError, match="least_squares"):
        arena.plan(planned_runs(experiment)[0])
