"""Families: tools fit the hand, objects stand, and keypoints are where the work is done.

Each family has a check, which members that ship and random ones pass.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bench import Bench
from support.families import FAMILIES
from support.family_geometry import part_of, points_of, surface_points
from support.shares import few

from fleet_tools.assets.families import family_names, find_family, nut, spatula, wrench
from fleet_tools.assets.families.wrench import PAD, WrenchParams
from fleet_tools.assets.solids import Solid

seeds = st.integers(0, 2**32 - 1)


def test_every_family_has_its_tests() -> None:
    assert FAMILIES.keys() == {*family_names()}


@pytest.mark.parametrize("family", FAMILIES)
def test_members_that_ship(family: str) -> None:
    found = find_family(family)
    for name in found.catalogue:
        model = found.member(name)
        assert (model.family, model.kind, model.name) == (family, found.kind, name)
        assert model.keypoints.keys() == found.keypoints.keys()
        FAMILIES[family].check(model)


@pytest.mark.parametrize("family", FAMILIES)
@few(5)
@given(seed=seeds)
def test_random_members(family: str, seed: int) -> None:
    found = find_family(family)
    FAMILIES[family].check(found.build(found.sample(np.random.default_rng(seed)), "any"))


def test_slots_save_material_and_do_not_change_the_collision_geometry() -> None:
    turner = spatula.CATALOGUE["turner"]
    solid, slotted = (spatula.build(replace(turner, slots=slots), "one") for slots in (0, 4))
    assert 0.7 * solid.mass < slotted.mass < solid.mass
    one, other = (model.links[0].parts[-1].collision[0] for model in (solid, slotted))
    np.testing.assert_array_equal(one.vertices, other.vertices)


def gap(solid: Solid, points: np.ndarray) -> float:
    """Returns the distance of the innermost of points (n, 3) outside a convex solid, m."""
    a, b, c = np.moveaxis(solid.vertices[solid.triangles], 1, 0)
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return np.einsum("ti,nti->nt", normals, points[:, None] - a).max(axis=1).min()


def check_fit(wrench_params: WrenchParams, nut_params: nut.NutParams) -> None:
    """Checks that a nut in the middle of the jaw touches nothing, with both pads near its flats."""
    model = nut.build(nut_params, "any")
    (centre,) = points_of(model, "nut")
    surface = surface_points(part_of(model.links[1], "nut").collision[0]) - centre  # flats
    clearance = 2 * PAD - 2 * nut_params.half
    assert 0.0009 < clearance < 0.0015
    surface[:, 2] = 0.0  # a jaw has the same width at every height
    p_T = surface @ wrench_params.R_TJ.T + wrench_params.p_TJ
    parts = wrench.build(wrench_params, "any").links[0].parts
    gaps = [(part.name, gap(piece, p_T)) for part in parts for piece in part.collision]
    assert min(gap for _, gap in gaps) > 0.0004, gaps
    nearest = sorted(gap for name, gap in gaps if name in ("head", "slide"))
    np.testing.assert_allclose(nearest[:2], clearance / 2, atol=1e-6)
    # The jaw is above the base, or above the flange.
    assert centre[2] - wrench_params.thickness > nut_params.levels[1]


@pytest.mark.parametrize("name", wrench.CATALOGUE)
def test_every_wrench_fits_every_nut(name: str) -> None:
    for nut_params in nut.CATALOGUE.values():
        check_fit(wrench.CATALOGUE[name], nut_params)


@given(seeds, seeds)
def test_random_wrenches_fit_random_nuts(seed: int, nut_seed: int) -> None:
    generators = np.random.default_rng(seed), np.random.default_rng(nut_seed)
    check_fit(wrench.FAMILY.sample(generators[0]), nut.draw(generators[1]))


JOINTED = [
    f"{family}/{name}"
    for family in FAMILIES
    for name in find_family(family).catalogue
    if find_family(family).member(name).joints
]


@pytest.mark.parametrize("member", JOINTED)
def test_drake_has_the_joint_as_described_and_its_brake_holds(member: str) -> None:
    family, name = member.split("/")
    model = find_family(family).member(name)
    bench, (described,) = Bench(model), model.joints
    assert not bench.scene_graph.model_inspector().GetCollisionCandidates()  # across the joint
    joint = bench.plant.GetJointByName(described.name, bench.instance)
    actuator = bench.plant.GetJointActuatorByName(described.name, bench.instance)
    if described.kind != "screw":  # whose limits `add_model` sets, as Drake reads none
        assert joint.position_lower_limits() == pytest.approx([described.limits[0]])
        assert joint.position_upper_limits() == pytest.approx([described.limits[1]])
    assert actuator.effort_limit() == described.resistance
    assert actuator.default_rotor_inertia() == described.inertia
    assert actuator.default_gear_ratio() == 1
    assert (actuator.get_controller_gains().p, actuator.get_controller_gains().d) == (0, 1e5)

    context, origin = bench.plant.CreateDefaultContext(), np.array(model.links[1].origin)
    body, far = joint.child_body(), described.limits[1]
    force = described.resistance
    if described.kind == "prismatic":
        bench.plant.SetPositions(context, [far])
        p_WN = body.EvalPoseInWorld(context).translation()
        np.testing.assert_allclose(p_WN, origin - [0, 0, far], atol=1e-12)
        assert bench.press(0.9 * force, 0.05) < 1e-4
        assert bench.press(-0.9 * force, 0.05) > -1e-4
        assert bench.press(1.1 * force, 0.05) > 1e-2
        assert bench.press(3 * force, 0.15) == pytest.approx(far, abs=1e-3)
    else:
        child = model.links[1].name
        point = np.array(next(k.position for k in model.keypoints.values() if k.link == child))
        bench.plant.SetPositions(context, [np.pi / 2])
        axis = np.array(described.axis)
        turned = np.cross(axis, point) + (axis @ point + described.lead / 4) * axis
        np.testing.assert_allclose(
            body.EvalPoseInWorld(context) @ point, origin + turned, atol=1e-12
        )
        for sign in (1, -1):
            assert abs(bench.press(0.9 * sign * force, 0.2)) < 1e-3
            if sign * described.limits[(sign + 1) // 2] > 0.5:  # else it cannot move so far
                assert sign * bench.press(1.1 * sign * force, 0.2) > 0.5
