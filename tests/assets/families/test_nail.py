"""Nails: geometry, and the brake that resists driving them, in a plant of Drake."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.bench import Bench
from support.family_laws import family_laws, shipped_models

from fleet_tools.assets.families import nail
from fleet_tools.assets.model_description import ModelDescription

SHIPPED = shipped_models("nail")


def heights(model: ModelDescription, link: str, part: str) -> np.ndarray:
    (found_link,) = [each for each in model.links if each.name == link]
    (found_part,) = [each for each in found_link.parts if each.name == part]
    return found_link.origin[2] + np.concatenate(
        [solid.vertices[:, 2] for solid in (found_part.solid, *found_part.collision)]
    )


def check(model: ModelDescription) -> None:
    (slide,) = model.joints
    travel, top = slide.limits[1], heights(model, "block", "block").max()
    head, shaft = (heights(model, "nail", part) for part in ("head", "shaft"))
    assert heights(model, "block", "block").min() == 0
    assert slide.limits[0] == 0 and 0.030 <= travel <= 0.035
    assert 0.040 <= head.max() - top <= 0.055 + 1e-12
    assert head.min() - travel - top >= 0.005 - 1e-9
    assert shaft.min() - travel >= 0.005 - 1e-9 and shaft.min() < top
    assert shaft.max() == pytest.approx(head.min(), abs=1e-3)
    assert model.keypoints["head"].position == (0, 0, pytest.approx(head.max() - top))
    assert model.keypoints["base"].position == (0, 0, top)
    for part in model.links[1].parts:  # both geometries are equally high
        top_of_collision = max(solid.vertices[:, 2].max() for solid in part.collision)
        assert top_of_collision == part.solid.vertices[:, 2].max()


@pytest.fixture(scope="module", params=SHIPPED, ids=lambda model: model.name)
def model(request: pytest.FixtureRequest) -> ModelDescription:
    return request.param


test_shipped, test_random = family_laws("nail", check, examples=25)


def test_drake_reads_the_joint_as_described(model: ModelDescription, bench: Bench) -> None:
    (slide,) = model.joints
    joint = bench.plant.GetJointByName("slide", bench.instance)
    actuator = bench.plant.GetJointActuatorByName("slide", bench.instance)
    assert joint.position_lower_limits() == [0]
    assert joint.position_upper_limits() == pytest.approx(slide.limits[1])
    assert actuator.effort_limit() == slide.resistance
    assert actuator.default_rotor_inertia() == slide.inertia
    assert actuator.default_gear_ratio() == 1
    assert (actuator.get_controller_gains().p, actuator.get_controller_gains().d) == (0, 1e5)

    travel = slide.limits[1]
    context = bench.plant.CreateDefaultContext()
    bench.plant.SetPositions(context, [travel])
    X_WN = bench.plant.GetBodyByName("nail").EvalPoseInWorld(context)
    np.testing.assert_allclose(
        X_WN.translation(), [0, 0, model.links[1].origin[2] - travel], atol=1e-12
    )


def test_nail_and_block_do_not_collide(bench: Bench) -> None:
    inspector = bench.scene_graph.model_inspector()
    assert not inspector.GetCollisionCandidates()


def test_brake_holds_below_its_resistance_and_gives_way_above(
    model: ModelDescription, bench: Bench
) -> None:
    force = model.joints[0].resistance
    assert bench.press(0.9 * force, 0.05) < 1e-4
    assert bench.press(-0.9 * force, 0.05) > -1e-4
    assert bench.press(1.1 * force, 0.05) > 1e-2
    assert bench.press(3 * force, 0.15) == pytest.approx(model.joints[0].limits[1], abs=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"crown": "gold"}, "crown one of flat, rose, dome"),
        ({"travel": 0.05}, "head above block at full travel"),
        ({"head": 0.002}, "shaft < head"),
        ({"block_height": 0.04}, "point above table"),
    ],
)
def test_impossible_parameters_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(nail.NailParams(), **change)
