"""Rules: the package's models meet all of them, and each is broken by a model made for it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RotationMatrix
from support.bad_models import BadModel
from support.families import BAD_MODELS
from support.planning_problems import poses

from fleet_tools.assets.families import family_names, find_family
from fleet_tools.assets.model_folder import write_model
from fleet_tools.assets.model_geometry import ConvexPiece, ModelGeometry
from fleet_tools.assets.rules import measure_all
from fleet_tools.sim.catalog import Kind, find_model, load_model, model_names
from fleet_tools.studio.checking.general_rules import find_rules, measure_model

KIND: dict[str, Kind] = {family: find_family(family).kind for family in family_names()}
SHIPPED = [
    (family, name) for family in family_names() for name in model_names(KIND[family], family)
]


@pytest.mark.parametrize(("family", "name"), SHIPPED)
def test_a_model_that_ships_meets_every_rule(family, name):
    kind = KIND[family]
    measured = measure_all(find_rules(kind, family), measure_model(find_model(kind, family, name)))
    assert [each.text for each in measured if not each.holds] == []


def broken_rules(bad: BadModel, root: Path) -> set[str]:
    model = bad.make()
    write_model(model, model.folder(root))
    geometry = measure_model(load_model(model.folder(root), model.kind))
    measured = measure_all(find_rules(model.kind, model.family), geometry)
    return {each.rule.name for each in measured if not each.holds}


@pytest.mark.parametrize("bad", BAD_MODELS, ids=lambda bad: bad.name)
def test_a_bad_model_breaks_its_rule(bad, tmp_path):
    assert bad.finding in broken_rules(bad, tmp_path)


def test_every_rule_is_broken_by_a_bad_model_and_says_why_and_how_to_mend_it():
    broken = {(bad.family, bad.finding) for bad in BAD_MODELS}
    for family, kind in KIND.items():
        general = {rule.name for rule in find_rules(kind, "of_a_user")}
        own = {rule.name for rule in find_rules(kind, family)}
        assert general - own <= {"angle from upright"} and own - general  # of free objects alone
        for rule in find_rules(kind, family):
            known = {name for of, name in broken if rule.name in general or of == family}
            assert rule.name in known
            assert len(rule.reason) > 20 and len(rule.remedy) > 10, rule.name
            assert np.isfinite(rule.low) or np.isfinite(rule.high)


def moved(geometry: ModelGeometry, X: RigidTransform) -> ModelGeometry:
    """Returns the same tool in another model frame."""
    links = {
        name: replace(
            link,
            pieces=tuple(ConvexPiece((X @ piece.vertices.T).T) for piece in link.pieces),
            p_MCom=X @ link.p_MCom,
        )
        for name, link in geometry.links.items()
    }
    points = {name: X @ p for name, p in geometry.p_M.items()}
    return replace(geometry, links=links, p_M=points, X_MG=X @ geometry.X_MG)


OF_THE_BOX = ("centre of mass outside of the bounding box", "radius of gyration by half")
"""Rules about the bounding box, whose axes are those of the model frame."""


@pytest.mark.parametrize("family", [family for family in family_names() if KIND[family] == "tool"])
@settings(max_examples=5)
@example(X=RigidTransform(RotationMatrix(AngleAxis(1.5, np.array([0, 1, 1]) / 2**0.5)), [0, 1, 0]))
@given(X=poses)
def test_measurements_of_a_tool_do_not_depend_on_its_model_frame(family, X):
    name = model_names("tool", family)[0]
    geometry = measure_model(find_model("tool", family, name))
    rules = [r for r in find_rules("tool", family) if not r.name.startswith(OF_THE_BOX)]
    for before, after in zip(
        measure_all(rules, geometry), measure_all(rules, moved(geometry, X)), strict=True
    ):
        assert (before.rule, before.subject) == (after.rule, after.subject)
        assert after.value == pytest.approx(before.value, abs=2e-6, rel=1e-4), before.rule.name
