"""The whole import as a function: which parts of a mesh have collision geometry."""

import numpy as np
import pytest
import trimesh

from fleet_tools.assets.materials import STEEL
from fleet_tools.assets.solids import Solid
from fleet_tools.errors import ConfigError
from fleet_tools.studio.importing.importer import ImportedModel, import_mesh
from fleet_tools.studio.importing.mesh_file import RawMesh
from fleet_tools.studio.importing.settings import ImportSettings, LabelSettings, ScaleSettings

SETTINGS = ImportSettings(
    kind="object",
    family="nail",
    name="block",
    material=STEEL,
    labels=LabelSettings(keypoint=(("head", (0.0, 0.0, 0.05)),)),
    scale=ScaleSettings(scale=1.0),
)
BLOCK = trimesh.creation.box((0.1, 0.06, 0.05))


def imported(*meshes: trimesh.Trimesh) -> ImportedModel:
    offsets = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    triangles = [mesh.faces + k for mesh, k in zip(meshes, offsets, strict=False)]
    vertices = np.concatenate([mesh.vertices for mesh in meshes])
    return import_mesh(RawMesh(vertices, np.concatenate(triangles)), SETTINGS)


def sheet(thickness: float) -> trimesh.Trimesh:
    return trimesh.creation.box(
        (0.05, 0.04, thickness), trimesh.transformations.translation_matrix((0, 0, 0.1))
    )


def collision_solids(result: ImportedModel) -> tuple[Solid, ...]:
    (part,) = result.model.links[0].parts
    return part.collision


@pytest.mark.parametrize(("thickness", "count"), [(1e-3, 2), (1e-4, 1), (1e-5, 1)])
def test_a_sheet_too_thin_for_contact_has_mass_and_a_note(thickness: float, count: int) -> None:
    result = imported(BLOCK, sheet(thickness))
    assert len(collision_solids(result)) == count
    volume = BLOCK.volume + 0.05 * 0.04 * thickness
    assert result.inertial.mass == pytest.approx(STEEL.density * volume, rel=1e-6)
    assert any("not felt" in note for note in result.notes) == (count == 1)


def test_a_mesh_that_is_only_a_thin_sheet_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"only 0\.1 mm thick.*Solidify"):
        imported(sheet(1e-4))
