"""Families: tools fit the hand, objects stand, and keypoints are where the work is done.

Each family has a check, which members that ship and random ones pass, and refuses parameters.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bench import Bench

from fleet_tools.assets.families import find_family, hammer, knife, nut, slab, spatula, wrench
from fleet_tools.assets.families.wrench.wrench_parts import PAD, WrenchParams
from fleet_tools.assets.model_description import LinkDescription, ModelDescription, PartDescription
from fleet_tools.assets.parametric import GRIP, GRIP_END
from fleet_tools.assets.solids import Solid

seeds = st.integers(0, 2**32 - 1)


def surface_points(solid: Solid, per_edge: int = 8) -> np.ndarray:
    """Returns points on all triangles of a solid, (n, 3), m, with so many segments of an edge."""
    steps = range(per_edge + 1)
    weights = [(i, j, per_edge - i - j) for i in steps for j in steps if i + j <= per_edge]
    corners = solid.vertices[solid.triangles]
    return np.einsum("wc,tci->twi", np.array(weights) / per_edge, corners).reshape(-1, 3)


def points_of(model: ModelDescription, *names: str) -> list[np.ndarray]:
    """Returns keypoints in the frames of their links, (3,) each."""
    return [np.array(model.keypoints[name].position) for name in names]


def part_of(link: LinkDescription, name: str) -> PartDescription:
    (found,) = [part for part in link.parts if part.name == name]
    return found


def check_hammer(model: ModelDescription) -> None:
    (link,) = model.links
    assert hammer.MASS_BOUNDS[0] <= model.mass <= hammer.MASS_BOUNDS[1]
    for part in link.parts:
        for solid in (part.solid, *part.collision):
            x, _, z = surface = surface_points(solid).T
            assert not np.any((np.abs(x) < 0.035) & (z < -0.02)), part.name
            held = surface[1:, np.abs(x) < 0.035]
            assert np.all(np.abs(held) <= GRIP + 1e-9), part.name
            if part.name == "handle" and solid is part.solid:
                assert np.abs(held[0]).max() == pytest.approx(GRIP)
    head, tail, side = points_of(model, "head", "tail", "side")
    assert np.array_equal((head - side)[:2], [0, 0]) and head[2] > 0 > side[2]
    assert 0.12 < head[0] < 0.22 and tail[0] < -0.04
    # In both geometries, the striking face is the highest part, flat, and centred on its keypoint.
    striker = part_of(link, "striker")
    for solid in (striker.solid, *striker.collision):
        face = solid.vertices[solid.vertices[:, 2] > head[2] - 1e-9]
        assert len(face) >= 8 and np.ptp(face[:, 2]) < 1e-12
        np.testing.assert_allclose(face.mean(axis=0), head, atol=1e-12)
        assert solid.vertices[:, 2].max() == face[0, 2]


def check_knife(model: ModelDescription) -> None:
    (link,) = model.links
    handle, bolster, blade = link.parts
    assert knife.MASS_BOUNDS[0] <= model.mass <= knife.MASS_BOUNDS[1]
    # Only the handle is between the fingers, and it fills their opening.
    x, y, z = handle.solid.vertices.T
    assert x.min() < -GRIP_END and np.abs(y).max() == pytest.approx(GRIP)
    assert np.hypot(y, z).max() < 0.017
    assert min(part.solid.vertices[:, 0].min() for part in (bolster, blade)) > GRIP_END
    # Both geometries of the blade are the same symmetric wedge, thinner towards its edge.
    (collision,) = blade.collision
    assert collision is blade.solid
    edge, spine, heel, tip = points_of(model, "edge", "spine", "heel", "tip")
    bottom = collision.vertices[collision.vertices[:, 2] > edge[2] - 1e-9]
    top = collision.vertices[collision.vertices[:, 2] < spine[2] + 1e-9]
    assert len(bottom) == len(top) == 4
    assert 0 < np.ptp(bottom[:, 1]) < 0.0011 < np.ptp(top[:, 1]) < 0.0041
    np.testing.assert_allclose(collision.vertices[:, 1].mean(), 0, atol=1e-12)
    # The edge from heel to tip is parallel to the handle, and further from it than the spine.
    np.testing.assert_allclose(edge, (heel + tip) / 2, atol=1e-9)
    assert heel[2] == tip[2] and tip[0] - heel[0] > 0.08
    assert np.array_equal((edge - spine)[:2], [0, 0]) and edge[2] - spine[2] > 0.03


def check_spatula(model: ModelDescription) -> None:
    (link,) = model.links
    assert 0.05 <= model.mass <= 0.5
    edge, heel, sole, face, tail = points_of(model, "edge", "heel", "sole", "face", "tail")
    along = (edge - heel) / np.linalg.norm(edge - heel)
    np.testing.assert_allclose(sole, (edge + heel) / 2, atol=1e-9)
    # The face is straight above the sole; up is from the blade towards the handle.
    up = (face - sole) / np.linalg.norm(face - sole)
    assert abs(along @ up) < 1e-6 and up[2] < -0.9
    assert tail[0] < 0 < heel[0] < edge[0] and (tail - sole) @ up > 0.03
    assert -(sole @ up) >= spatula.CLEARANCE - 1e-9  # the fingers have room around the grip
    for part in link.parts:  # nothing is below the plane of the sole, which can lie on a table
        for solid in (part.solid, *part.collision):
            assert ((solid.vertices - sole) @ up).min() > -1e-8, part.name
    handle, blade = part_of(link, "handle").solid.vertices, part_of(link, "blade")
    held = handle[np.abs(handle[:, 0]) <= GRIP_END + 1e-9]
    assert np.abs(held[:, 1]).max() == pytest.approx(GRIP)
    # In both geometries, the edge is thin, straight and centred on its keypoint.
    for solids in ((blade.solid,), blade.collision):
        vertices = np.concatenate([solid.vertices for solid in solids])
        rim = vertices[vertices[:, 0] > edge[0] - 1e-9]
        assert np.ptp(rim[:, 2]) == pytest.approx(spatula.EDGE, abs=1e-8)
        assert rim[:, 2].max() == pytest.approx(edge[2], abs=1e-8)
        assert rim[:, 1].max() == -rim[:, 1].min() > 0.02


def check_wrench(model: ModelDescription) -> None:
    (link,) = model.links
    assert wrench.MASS_BOUNDS[0] <= model.mass <= wrench.MASS_BOUNDS[1]
    widest = 0.0
    for part in link.parts:
        for solid in (part.solid, *part.collision):
            x, y, z = surface_points(solid).T
            held = np.abs(x) < GRIP_END
            assert not np.any(held & (np.abs(z) > 0.02)), part.name  # clear of the palm
            assert np.all(np.abs(y[held]) <= GRIP + 1e-9), part.name
            widest = max(widest, np.abs(y[held]).max(initial=0.0))
    assert widest == pytest.approx(GRIP)
    jaw, left, right, upper, lower = points_of(model, "jaw", "left", "right", "upper", "lower")
    np.testing.assert_allclose((left + right) / 2, jaw, atol=1e-12)
    assert np.linalg.norm(right - left) == pytest.approx(2 * PAD)
    assert (right - left)[1] > 0 and np.array_equal((upper - lower)[:2], [0, 0])
    assert upper[2] < lower[2]


def heights(link: LinkDescription, part: str) -> np.ndarray:
    found = part_of(link, part)
    solids = (found.solid, *found.collision)
    return link.origin[2] + np.concatenate([solid.vertices[:, 2] for solid in solids])


def check_nail(model: ModelDescription) -> None:
    (slide,), (block, pin) = model.joints, model.links
    travel, top = slide.limits[1], heights(block, "block").max()
    head, shaft = heights(pin, "head"), heights(pin, "shaft")
    assert heights(block, "block").min() == 0
    assert slide.limits[0] == 0 and 0.030 <= travel <= 0.035
    assert 0.040 <= head.max() - top <= 0.055 + 1e-12
    assert head.min() - travel - top >= 0.005 - 1e-9
    assert shaft.min() - travel >= 0.005 - 1e-9 and shaft.min() < top
    assert shaft.max() == pytest.approx(head.min(), abs=1e-3)
    assert model.keypoints["head"].position == (0, 0, pytest.approx(head.max() - top))
    assert model.keypoints["base"].position == (0, 0, top)
    for part in pin.parts:  # both geometries are equally high
        top_of_collision = max(solid.vertices[:, 2].max() for solid in part.collision)
        assert top_of_collision == part.solid.vertices[:, 2].max()


def check_nut(model: ModelDescription) -> None:
    base, turned = model.links
    body = part_of(turned, "nut")
    centre, left, right = points_of(model, "nut", "left", "right")
    assert left[1] - right[1] == pytest.approx(nut.FLATS, abs=nut.DEVIATION + 1e-6)
    np.testing.assert_allclose((left + right) / 2, centre, atol=1e-12)
    assert np.array_equal(centre[:2], [0, 0])
    # In both geometries, the flats are plane and vertical, and the keypoints are at mid-height.
    for solid in (body.solid, body.collision[0]):
        on_flat = solid.vertices[np.abs(solid.vertices[:, 1] - left[1]) < 1e-9]
        low, high = on_flat[:, 2].min(), on_flat[:, 2].max()
        assert high - low >= 0.019 - 1e-9
        assert centre[2] == pytest.approx((low + high) / 2)
    assert base.parts[0].solid.vertices[:, 2].min() == 0
    top, foot = model.keypoints["top"], model.keypoints["base"]
    highest = max(heights(link, part.name).max() for link in model.links for part in link.parts)
    (link_of_top,) = [link for link in model.links if link.name == top.link]
    assert link_of_top.origin[2] + top.position[2] == pytest.approx(highest)
    assert foot.position == (0, 0, 0) and top.position[:2] == (0, 0)


def check_pair(model: ModelDescription) -> None:
    assert not model.joints
    left, right = model.links
    assert (left.name, right.name) == ("left", "right")
    for link, side in ((left, 1), (right, -1)):
        (part,) = link.parts
        assert 0.03 <= link.mass_properties().mass <= 0.5
        for solid in (part.solid, *part.collision):
            x, y, z = (solid.vertices + link.origin).T
            assert z.min() == 0 and np.abs(x).max() < 0.05
            # Each block reaches the seam at its base, and is clear of it above.
            assert (side * y).min() == pytest.approx(0, abs=1e-9)
            assert (side * y)[z > 0].min() > 1e-5
        (collision,) = part.collision
        assert collision.vertices[:, 2].max() == part.solid.vertices[:, 2].max()
        # The base has more than two triangles, so that the block can rest.
        assert np.sum(collision.vertices[:, 2] == 0) == 8
    origins = {link.name: link.origin for link in model.links}
    points = {name: np.add(origins[p.link], p.position) for name, p in model.keypoints.items()}
    for side in ("left", "right"):
        np.testing.assert_allclose(points[f"{side}_seam"], 0, atol=1e-9)
        rise = points[side] - points[f"{side}_foot"]
        assert np.array_equal(rise[:2], [0, 0]) and rise[2] > 0.02
    assert points["left"][1] > 0 > points["right"][1]
    along = points["seam_end"] - points["left_seam"]
    assert along[0] > 0.015 and np.array_equal(along[1:], [0, 0])


def check_slab(model: ModelDescription) -> None:
    (link,) = model.links
    (part,) = link.parts
    (collision,) = part.collision
    assert slab.MASS_BOUNDS[0] <= model.mass <= slab.MASS_BOUNDS[1]
    base, top = points_of(model, "base", "top")
    assert np.array_equal(base, np.zeros(3)) and np.array_equal(top[:2], np.zeros(2))
    for solid in (part.solid, collision):
        z = solid.vertices[:, 2]
        assert (z.min(), z.max()) == (0.0, pytest.approx(top[2]))
        # The base is centred, so that the slab lies stably.
        np.testing.assert_allclose(solid.vertices[z < 1e-9].mean(axis=0), base, atol=1e-9)
    np.testing.assert_allclose(link.mass_properties().centre[:2], 0, atol=1e-9)
    # The collision geometry is a prism, as wide as the visual geometry.
    lower = collision.vertices[collision.vertices[:, 2] == 0]
    for other in (collision, part.solid):
        np.testing.assert_allclose(np.ptp(lower, axis=0)[:2], np.ptp(other.vertices, axis=0)[:2])
    assert len(lower) == len(collision.vertices) / 2


CHECKS: dict[str, Callable[[ModelDescription], None]] = {
    "hammer": check_hammer,
    "knife": check_knife,
    "nail": check_nail,
    "nut": check_nut,
    "pair": check_pair,
    "slab": check_slab,
    "spatula": check_spatula,
    "wrench": check_wrench,
}


@pytest.mark.parametrize("family", CHECKS)
def test_members_that_ship(family: str) -> None:
    found = find_family(family)
    for name in found.catalogue:
        model = found.member(name)
        assert (model.family, model.kind, model.name) == (family, found.kind, name)
        assert model.keypoints.keys() == found.keypoints.keys()
        CHECKS[family](model)


@pytest.mark.parametrize("family", CHECKS)
@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_random_members(family: str, seed: int) -> None:
    found = find_family(family)
    CHECKS[family](found.build(found.sample(np.random.default_rng(seed)), "any"))


IMPOSSIBLE = {
    "hammer/ball_peen": [
        ({"peen": "bill"}, "'bill'.*ball"),
        ({"neck_y": 0.02}, "neck_y < cheek_y"),
        ({"butt_x": 0.01}, "butt_x"),
        ({"peen_z": 0.02}, "peen_z behind the cheek"),
    ],
    "knife/chef": [
        ({"butt_x": 0.01}, "butt_x < -GRIP_END"),
        ({"edge": 0.002}, "edge < spine"),
        ({"depth": 0.015}, "spine_z < depth"),
        ({"nose_x": 0.08}, "middle of the edge below the spine"),
    ],
    "nail/round_nail": [
        ({"crown": "gold"}, "crown one of flat, rose, dome"),
        ({"travel": 0.05}, "head above block at full travel"),
        ({"head": 0.002}, "shaft < head"),
        ({"block_height": 0.04}, "point above table"),
    ],
    "nut/hex_nut": [
        ({"crown": "gold"}, "crown one of stud, dome, boss"),
        ({"sides": 5}, "6 or 4 sides"),
        ({"flats": 0.036}, "flats within DEVIATION"),
        ({"height": 0.015}, "room for a jaw"),
        ({"flange": 0.020, "flange_height": 0.005}, "wider than the corners"),
        ({"flange_height": 0.005}, "flange with a height"),
        ({"base": 0.020}, "nut on its base"),
    ],
    "pair/tofu": [
        ({"height": 0.06}, "higher than it is wide"),
        ({"draft_deg": 0.0}, "draft_deg"),
        ({"chamfer": 0.0}, "chamfer"),
        ({"bevel": 0.02}, "bevel"),
        ({"chamfer": 0.03}, "left at the top"),
    ],
    "slab/patty": [
        ({"roundness": 1.2}, "roundness"),
        ({"dome": 0.8}, "dome"),
        ({"height": 0.06}, "height < half_x"),
    ],
    "spatula/turner": [
        ({"butt_x": 0.01}, "butt_x"),
        ({"handle_x": 0.2}, "handle_x < heel_x"),
        ({"thickness": 0.0002}, "thickness > EDGE"),
        ({"slots": 3}, "slots even"),
        ({"drop": 0.02}, "clear of the table"),
    ],
    "wrench/open_end": [
        ({"tail": "hook"}, "tail one of plain, ring, fork"),
        ({"butt_x": -0.03}, "butt_x behind the grip"),
        ({"jaw_x": 0.10}, "fingers clear of the base"),
        ({"neck_z": 0.01}, "neck within the head"),
        ({"reach": 0.005}, "pads as long as"),
        ({"outer": 0.022}, "throat within the head"),
        ({"lips": True}, "lips without"),
    ],
}


@pytest.mark.parametrize("member", IMPOSSIBLE)
def test_impossible_parameters_are_refused_by_name(member: str) -> None:
    family, name = member.split("/")
    params: Any = find_family(family).catalogue[name]
    for change, message in IMPOSSIBLE[member]:
        with pytest.raises(ValueError, match=message):
            replace(params, **change)


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


@settings(max_examples=20, deadline=None)
@given(seeds, seeds)
def test_random_wrenches_fit_random_nuts(seed: int, nut_seed: int) -> None:
    check_fit(
        wrench.sample(np.random.default_rng(seed)), nut.sample(np.random.default_rng(nut_seed))
    )


JOINTED = [
    f"{family}/{name}" for family in ("nail", "nut") for name in find_family(family).catalogue
]


@pytest.mark.parametrize("member", JOINTED)
def test_drake_has_the_joint_as_described_and_its_brake_holds(member: str) -> None:
    family, name = member.split("/")
    model = find_family(family).member(name)
    bench, (described,) = Bench(model), model.joints
    assert not bench.scene_graph.model_inspector().GetCollisionCandidates()  # across the joint
    joint = bench.plant.GetJointByName(described.name, bench.instance)
    actuator = bench.plant.GetJointActuatorByName(described.name, bench.instance)
    assert joint.position_lower_limits() == pytest.approx([described.limits[0]])
    assert joint.position_upper_limits() == pytest.approx([described.limits[1]])
    assert actuator.effort_limit() == described.resistance
    assert actuator.default_rotor_inertia() == described.inertia
    assert actuator.default_gear_ratio() == 1
    assert (actuator.get_controller_gains().p, actuator.get_controller_gains().d) == (0, 1e5)

    context, origin = bench.plant.CreateDefaultContext(), np.array(model.links[1].origin)
    body, far = bench.plant.GetBodyByName(family, bench.instance), described.limits[1]
    force = described.resistance
    if family == "nail":
        bench.plant.SetPositions(context, [far])
        p_WN = body.EvalPoseInWorld(context).translation()
        np.testing.assert_allclose(p_WN, origin - [0, 0, far], atol=1e-12)
        assert bench.press(0.9 * force, 0.05) < 1e-4
        assert bench.press(-0.9 * force, 0.05) > -1e-4
        assert bench.press(1.1 * force, 0.05) > 1e-2
        assert bench.press(3 * force, 0.15) == pytest.approx(far, abs=1e-3)
    else:  # positive is clockwise, as seen from above
        (left,) = points_of(model, "left")
        bench.plant.SetPositions(context, [np.pi / 2])
        turned = np.add(origin, [left[1], 0, left[2]])
        np.testing.assert_allclose(body.EvalPoseInWorld(context) @ left, turned, atol=1e-12)
        for sign in (1, -1):
            assert abs(bench.press(0.9 * sign * force, 0.2)) < 1e-3
            assert sign * bench.press(1.1 * sign * force, 0.2) > 0.5
