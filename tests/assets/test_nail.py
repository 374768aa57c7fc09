"""Nails: geometry of the drive, and the brake that resists it, in Drake's own plant."""

from dataclasses import replace

import numpy as np
import pytest
from bench import Bench
from family_laws import family_laws, shipped

from fleet_tools.assets.families import nail
from fleet_tools.assets.model import Model

SHIPPED = shipped(nail)


def heights(model: Model, link: str, part: str) -> np.ndarray:
    (owner,) = [one for one in model.links if one.name == link]
    (one,) = [one for one in owner.parts if one.name == part]
    return owner.origin[2] + np.concatenate(
        [solid.vertices[:, 2] for solid in (one.solid, *one.collision)]
    )


def check(model: Model) -> None:
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
    for part in model.links[1].parts:  # felt and seen reach equally high
        felt = max(solid.vertices[:, 2].max() for solid in part.collision)
        assert felt == part.solid.vertices[:, 2].max()


@pytest.fixture(scope="module", params=SHIPPED, ids=lambda model: model.name)
def model(request) -> Model:
    return request.param


@pytest.fixture(scope="module")
def bench(model) -> Bench:
    return Bench(model)


test_shipped, test_random = family_laws(nail, check, examples=25)


def test_drake_reads_the_joint_as_meant(model, bench):
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


def test_nail_and_block_do_not_collide(bench):
    inspector = bench.scene_graph.model_inspector()
    assert not inspector.GetCollisionCandidates()


def test_brake_holds_below_its_resistance_and_gives_way_above(model, bench):
    force = model.joints[0].resistance
    assert bench.press(0.9 * force, 0.05) < 1e-4
    assert bench.press(-0.9 * force, 0.05) > -1e-4
    assert bench.press(1.1 * force, 0.05) > 1e-2
    assert bench.press(3 * force, 0.15) == pytest.approx(model.joints[0].limits[1], abs=1e-3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"crown": "gold"}, "crown one of flat, rose, dome"),
        ({"travel": 0.05}, "head above block at full travel"),
        ({"head": 0.002}, "shaft < head"),
        ({"block_height": 0.04}, "point above table"),
    ],
)
def test_impossible_measures_are_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        replace(nail.NailParams(), **change)
