"""Shapes with upright sides become leaning ones: `python -m fleet_tools.assets mend FOLDER`.

`fleet_tools.sim.resting_faces` tells why Drake's contact solver needs that. All shapes of a link go
through one projective map, so that faces in a common plane stay in one. If each shape leaned by
itself, the link could lie on many more faces, and a side would be upright on one of them.
"""

import itertools
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import Positional

from fleet_tools.errors import ConfigError
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.studio.checking.program import first_load_problem, load, read_model
from fleet_tools.utils import cli

if TYPE_CHECKING:
    from pydrake.math import RigidTransform

    from fleet_tools.assets.solids import MassProperties, Solid

MAX_LOADS = 8
"""Number of maps with which a model is loaded."""


class MendOptions(cli.Options):
    """Lets the upright sides of an object's collision shapes lean by micrometres.

    When a free object lies flat between upright sides, Drake's contact solver stops too early.
    Boxes, cylinders and meshes of such a link become convex meshes in the folder meshes. Where
    Drake computes the link's inertia from its shapes, the inertia is written down. All else in the
    model file is kept.

    Exit codes:
    0: the model has no upright sides any more, or had none.
    1: some are left, and the folder is unchanged.
    2: the folder holds no model, or a shape that no convex mesh can replace.
    """

    folder: Annotated[Path, Positional]
    """Folder of the model."""


def mend_model(options: MendOptions) -> int:
    """Does the work of the program, and returns the exit code."""
    report = mend(options.folder)
    options.report(report, lambda: "\n".join(_lines(report)))
    return cli.FAILED if report["upright"] else cli.OK


@dataclass(frozen=True)
class _Link:
    """A link with upright sides.

    Attributes:
        sides: The upright ones, in words.
        inertia: Its mass properties in its frame B.
        hulls: Hulls in B of the shapes to be replaced, by their place among its shapes.
        names: Names of all its shapes.
        poses: Their poses X_BS.
        kept: Corners in B, (n, 3), of shapes that stay.
    """

    sides: list[str]
    inertia: "MassProperties"
    hulls: "dict[int, Solid]"
    names: list[str]
    poses: "list[RigidTransform]"
    kept: dict[str, np.ndarray]

    def leaning(self) -> "Iterator[dict[int, Solid]]":
        """Yields solids to be in place of the hulls, without upright sides."""
        from fleet_tools.assets.solids import slightly_mapped
        from fleet_tools.sim.resting_faces import resting_sides

        for solids in slightly_mapped([*self.hulls.values()]):
            shapes = {f"{k}": solid.vertices for k, solid in enumerate(solids)} | self.kept
            if not any(side.upright for side in resting_sides(shapes, self.inertia.centre)):
                yield dict(zip(self.hulls, solids, strict=True))


def mend(folder: Path) -> dict[str, Any]:
    """Mends a model, and returns a report as plain JSON data; `upright` is empty after success.

    Raises:
        ConfigError: The folder holds no model, or a shape that no convex mesh can replace.
        DiskError: The disk is full, read-only or broken; the model is unchanged.
    """
    file = read_model(folder).file
    if problem := first_load_problem(file.parent):
        raise ConfigError(f"{file} cannot be mended. {problem}")
    links = upright = _upright_links(file.parent)
    replaced: list[dict[str, Any]] = []
    maps = zip(*(link.leaning() for link in links.values()), strict=False) if links else ()
    for solids in itertools.islice(maps, MAX_LOADS):
        files, replaced = _files(file, links, solids)
        with tempfile.TemporaryDirectory() as aside:
            copy = Path(shutil.copytree(file.parent, Path(aside) / "model"))
            _write(copy, files)
            upright = _upright_links(copy)
        if not upright:
            _write(file.parent, files)
            break
    sides = [f"{name}: {side}" for name, link in upright.items() for side in link.sides]
    return {"folder": str(folder), "upright": sides, "replaced": [] if upright else replaced}


def _files(
    file: Path, links: Mapping[str, _Link], leaning: "tuple[dict[int, Solid], ...]"
) -> tuple[dict[str, str | bytes], list[dict[str, Any]]]:
    """Returns the files to be written by path, the model file last, and a report of each shape."""
    from fleet_tools.assets.model_folder import mesh_path, obj_text
    from fleet_tools.assets.solids import Solid
    from fleet_tools.studio.checking.model_edits import with_meshes

    files: dict[str, str | bytes] = {}
    reports, meshes = [], {}
    for (name, link), solids in zip(links.items(), leaning, strict=True):
        meshes[name] = [None] * len(link.names)
        for k, solid in solids.items():
            stem = re.sub(r"\W", "_", link.names[k], flags=re.ASCII)[:60]
            paths = (mesh_path(f"{stem}_leaning{n or ''}") for n in itertools.count())
            path = next(p for p in paths if p not in files and not (file.parent / p).exists())
            vertices = link.poses[k].inverse().multiply(solid.vertices.T).T
            files[path] = obj_text(Solid(vertices, solid.triangles), digits=17)
            moved = np.linalg.norm(solid.vertices - link.hulls[k].vertices, axis=1).max()
            report = {"link": name, "shape": link.names[k], "mesh": path}
            reports.append({**report, "moved_um": round(1e6 * float(moved), 3)})
            meshes[name][k] = path
    files[file.name] = with_meshes(file, meshes, {n: link.inertia for n, link in links.items()})
    return files, reports


def _write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        write_file(folder / path, content)


def _upright_links(folder: Path) -> dict[str, _Link]:
    """Returns the links with sides that are upright at load, or as `check` measures them."""
    from pydrake.geometry import Box, Convex, Cylinder, Mesh, ProximityProperties, RoleAssign
    from pydrake.geometry import VolumeMesh as Compliant

    from fleet_tools.assets.solids import MassProperties
    from fleet_tools.sim.contact_shapes import shape_name, sides_with_margin
    from fleet_tools.studio.checking.general_rules import measure_model, sides_of_pieces
    from fleet_tools.studio.importing.enclosed_body import convex_hull

    with warnings.catch_warnings(action="ignore"):
        plant, scene_graph = load(folder)
        measured = measure_model(read_model(folder)).links
    inspector, source, found = scene_graph.model_inspector(), plant.get_source_id(), {}
    for name, geometry in measured.items():
        body = plant.GetBodyByName(name)
        sides = [*sides_with_margin(plant, scene_graph, body), *sides_of_pieces(geometry)]
        upright = [str(side) for side in sides if side.upright]
        M = body.default_spatial_inertia()
        central = M.Shift(M.get_com()).CalcRotationalInertia().CopyToFullMatrix3()
        inertia = MassProperties(M.get_mass(), M.get_com(), central)
        link = _Link(upright, inertia, {}, [], [], {})
        for k, each in enumerate(plant.GetCollisionGeometriesForBody(body) if upright else ()):
            properties = ProximityProperties(inspector.GetProximityProperties(each))
            properties.UpdateProperty("hydroelastic", "margin", 0.0)
            scene_graph.AssignRole(source, each, properties, RoleAssign.kReplace)
            shape, mesh = inspector.GetShape(each), inspector.maybe_get_hydroelastic_mesh(each)
            link.names.append(shape_name(scene_graph, each))
            link.poses.append(inspector.GetPoseInFrame(each))
            if mesh is None:  # of a half space
                continue
            corners = link.poses[k].multiply(np.array(mesh.vertices()).T).T
            if not isinstance(shape, Box | Convex | Cylinder | Mesh):
                link.kept[link.names[k]] = corners
                continue
            hull = convex_hull(corners)
            concave = isinstance(shape, Mesh) and (
                shape.extension() == ".vtk" or not isinstance(mesh, Compliant)
            )
            if hull is None or concave:
                raise ConfigError(
                    f"{folder}: the shape {link.names[k]} of the link {name} need not be convex, "
                    "and its link has upright sides. Declare it as convex, or use "
                    "`python -m fleet_tools.assets import MESH`."
                )
            link.hulls[k] = hull
        if upright:
            found[name] = link
    return found


def _lines(report: Mapping[str, Any]) -> list[str]:
    if report["upright"]:
        heading = f"{report['folder']} is unchanged; these sides stay upright:"
        return [heading, *(f"  {side}" for side in report["upright"])]
    return [
        f"{report['folder']}: no upright sides, {len(report['replaced'])} shapes replaced",
        *(
            f"  {each['shape']} of {each['link']}: {each['mesh']}, corners moved by up to "
            f"{each['moved_um']:.0f} um"
            for each in report["replaced"]
        ),
    ]
