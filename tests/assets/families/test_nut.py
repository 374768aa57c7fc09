"""Nuts: flats of one size, and the brake that resists turning them, in a plant of Drake."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.bench import Bench
from support.family_laws import family_laws, shipped_models

from fleet_tools.assets.families import nut
from fleet_tools.assets.model_description import ModelDescription

SHIPPED = shipped_models("nut")


def check(model: ModelDescription) -> None:
    base, turned = model.links
    (body,) = [part for part in turned.parts if part.name == "nut"]
    centre, left, right = (
        np.array(model.keypoints[name].position) for name in ("nut", "left", "right")
    )
    flats = left[1] - right[1]
    assert flats == pytest.approx(nut.FLATS, abs=nut.DEVIATION + 1e-6)
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
    highest = max(
        link.origin[2] + part.solid.vertices[:, 2].max()
        for link in model.links
        for part in link.parts
    )
    (link_of_top,) = [link for link in model.links if link.name == top.link]
    assert link_of_top.origin[2] + top.position[2] == pytest.approx(highest)
    assert foot.position == (0, 0, 0) and top.position[:2] == (0, 0)


@pytest.fixture(scope="module", params=SHIPPED, ids=lambda model: model.name)
def model(request: pytest.FixtureRequest) -> ModelDescription:
    return request.param


test_shipped, test_random = family_laws("nut", check, examples=25)


def test_positive_is_clockwise_as_seen_from_above(model: ModelDescription, bench: Bench) -> None:
    context = bench.plant.CreateDefaultContext()
    left = np.array(model.keypoints["left"].position)
    body = bench.plant.GetBodyByName("nut", bench.instance)
    bench.plant.SetPositions(context, [np.pi / 2])
    p_W = body.EvalPoseInWorld(context) @ left
    origin = np.array(model.links[1].origin)
    np.testing.assert_allclose(p_W, np.add(origin, [left[1], 0, left[2]]), atol=1e-12)


def test_nut_and_base_do_not_collide(bench: Bench) -> None:
    assert not bench.scene_graph.model_inspector().GetCollisionCandidates()


def test_brake_holds_below_its_resistance_and_gives_way_above(
    model: ModelDescription, bench: Bench
) -> None:
    torque = model.joints[0].resistance
    for sign in (1, -1):
        assert abs(bench.press(0.9 * sign * torque, 0.2)) < 1e-3
        assert sign * bench.press(1.1 * sign * torque, 0.2) > 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"crown": "gold"}, "crown one of stud, dome, boss"),
        ({"sides": 5}, "6 or 4 sides"),
        ({"flats": 0.036}, "flats within DEVIATION"),
        ({"height": 0.015}, "room for a jaw"),
        ({"flange": 0.020, "flange_height": 0.005}, "wider than the corners"),
        ({"flange_height": 0.005}, "flange with a height"),
        ({"base": 0.020}, "nut on its base"),
    ],
)
def test_impossible_parameters_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(nut.NutParams(), **change)
