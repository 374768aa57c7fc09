"""The whole import as a function: what of a mesh is felt."""

import numpy as np
import pytest
import trimesh

from fleet_tools.assets.importing.build import Wanted, import_mesh
from fleet_tools.assets.importing.read import RawMesh
from fleet_tools.assets.materials import STEEL
from fleet_tools.errors import ConfigError

WANTED = Wanted(
    kind="object",
    family="nail",
    name="mine",
    material=STEEL,
    mass=None,
    keypoints={"head": (0.0, 0.0, 0.05)},
    scale=1.0,
)
BLOCK = trimesh.creation.box((0.1, 0.06, 0.05))


def imported(*meshes):
    whole = trimesh.util.concatenate(meshes)
    return import_mesh(RawMesh(np.array(whole.vertices), np.array(whole.faces)), WANTED)


def sheet(thickness):
    return trimesh.creation.box(
        (0.05, 0.04, thickness), trimesh.transformations.translation_matrix((0, 0, 0.1))
    )


def pieces(result):
    (part,) = result.model.links[0].parts
    return part.collision


@pytest.mark.parametrize("thickness, felt", [(1e-3, 2), (1e-4, 1), (1e-5, 1)])
def test_a_sheet_too_thin_to_be_felt_is_weighed_and_said(thickness, felt):
    result = imported(BLOCK, sheet(thickness))
    assert len(pieces(result)) == felt
    volume = BLOCK.volume + 0.05 * 0.04 * thickness
    assert result.inertial.mass == pytest.approx(STEEL.density * volume, rel=1e-6)
    assert any("not felt" in note for note in result.notes) == (felt == 1)


def test_nothing_but_a_thin_sheet_is_refused_with_the_remedy():
    with pytest.raises(ConfigError, match=r"only 0\.1 mm thick.*Solidify"):
        imported(sheet(1e-4))
