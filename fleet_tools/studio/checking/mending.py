"""Leans upright sides of collision shapes: `python -m fleet_tools.assets mend FOLDER`.

`fleet_tools.sim.resting_faces` tells why Drake's contact solver needs that. All flat shapes of
welded links go through one projective map, so that faces in a common plane stay in one. If each
shape leaned by itself, the links could lie on many more faces, with an upright side at one of them.
"""

import itertools
import re
import shutil
import tempfile
import warnings
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from xml.parsers import expat

import numpy as np
from tyro.conf import Positional

from fleet_tools.assets.model_folder import inertial_element, mesh_path, obj_text
from fleet_tools.assets.solids import MassProperties, Solid, slightly_mapped
from fleet_tools.errors import ConfigError
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.studio.checking.program import first_load_problem, load, read_model
from fleet_tools.utils import cli

if TYPE_CHECKING:
    from pydrake.geometry import SceneGraph, SourceId
    from pydrake.math import RigidTransform

    from fleet_tools.sim.contact_shapes import WeldedBody


_TRUE = ("true", "1")


def with_meshes(
    file: Path,
    meshes: Mapping[str, Sequence[str | None]],
    inertias: Mapping[str, MassProperties],
) -> bytes:
    """Returns the content of a model file with convex meshes in place of collision shapes.

    Args:
        file: SDFormat or URDF file.
        meshes: Paths for the collision shapes by the name of their link, in the file's order; None
            for one that stays.
        inertias: Mass properties by link. They replace Drake's, which are computed from shapes.

    Raises:
        ConfigError: A link has another number of collision shapes.
    """
    content = file.read_bytes()
    parser = expat.ParserCreate()
    above: list[tuple[str, dict[str, str], int]] = []
    places: dict[str, list[tuple[int, int]]] = defaultdict(list)
    edits: list[tuple[int, int, str]] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if not above and "xmlns:drake" not in attributes:
            end_of_name = parser.CurrentByteIndex + len(f"<{tag}".encode())
            edits.append((end_of_name, end_of_name, ' xmlns:drake="https://drake.mit.edu"'))
        above.append((tag, attributes, parser.CurrentByteIndex))

    def end(tag: str) -> None:
        _, attributes, begin = above.pop()
        place = begin, content.index(b">", parser.CurrentByteIndex) + 1
        tags = [each[0] for each in above]
        if tag == "geometry" and tags[-2:] == ["link", "collision"]:
            places[above[-2][1]["name"]].append(place)
        elif tags[-1:] == ["link"] and tag == "inertial" and attributes.get("auto") in _TRUE:
            indent = content[content.rfind(b"\n", 0, begin) + 1 : begin].decode()
            if inertia := inertias.get(above[-1][1]["name"]):
                element = inertial_element(inertia)
                ET.indent(element)
                text = ET.tostring(element, encoding="unicode").replace("\n", f"\n{indent}")
                edits.append((*place, text))

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.Parse(content, True)
    for link, paths in meshes.items():
        if len(places[link]) != len(paths):
            raise ConfigError(
                f"{file}: the link {link} has {len(places[link])} <collision> elements, but Drake "
                f"makes {len(paths)} shapes of them. Make another model with `python -m "
                "fleet_tools.assets import MESH`."
            )
        for place, path in zip(places[link], paths, strict=True):
            urdf, sdf = f'<mesh filename="{path}">', f"<mesh><uri>{path}</uri>"
            mesh = urdf if file.suffix == ".urdf" else sdf
            if path is not None:
                edits.append((*place, f"<geometry>{mesh}<drake:declare_convex/></mesh></geometry>"))
    for begin, stop, text in sorted(edits, reverse=True):
        content = content[:begin] + text.encode() + content[stop:]
    return content


MAX_LOADS = 8
"""Number of maps with which a model is loaded."""


class MendOptions(cli.Options):
    """Lets the upright sides of an object's collision shapes lean by micrometres.

    When a free object lies flat between upright sides, Drake's contact solver stops too early.
    Boxes, cylinders and meshes on such faces become convex meshes in the folder meshes. Where Drake
    computes the inertia of their link from its shapes, the inertia is written down. All else in the
    model file is kept.

    Exit codes:
    0: the model has no upright sides any more, or had none.
    1: some are left, and the folder is unchanged.
    2: the folder holds no model.
    """

    folder: Annotated[Path, Positional]
    """Folder of the model."""


def mend_model(options: MendOptions) -> int:
    """Does the work of the program, and returns the exit code."""
    report = mend(options.folder)
    options.report(report, lambda: "\n".join(_lines(report)))
    return cli.FAILED if report["upright"] else cli.OK


@dataclass(frozen=True)
class _Shape:
    """A flat shape of welded links.

    Attributes:
        link: Name of its link.
        place: Its place among the link's shapes.
        name: Its name.
        X_GS: Its pose in the group's frame G.
        hull: Its convex hull in G.
    """

    link: str
    place: int
    name: str
    X_GS: "RigidTransform"
    hull: Solid


@dataclass(frozen=True)
class _Group:
    """Welded links with upright sides.

    Attributes:
        sides: The upright ones, in words.
        p_GCom: Centre of mass, (3,), m.
        inertias: Mass properties of its links by name.
        numbers: Numbers of shapes of its links by name.
        shapes: Flat shapes with a face on which it can lie.
        kept: Corners in G, (n, 3), of the others.
    """

    sides: list[str]
    p_GCom: np.ndarray
    inertias: dict[str, MassProperties]
    numbers: dict[str, int]
    shapes: list[_Shape]
    kept: dict[str, np.ndarray]

    def leaning(self) -> Iterator[tuple[Solid, ...]]:
        """Yields solids in place of the shapes, without upright sides."""
        from fleet_tools.sim.resting_faces import resting_sides

        hulls = [shape.hull for shape in self.shapes]
        for solids in slightly_mapped(hulls) if hulls else ():
            corners = {f"{k}": solid.vertices for k, solid in enumerate(solids)} | self.kept
            if not any(side.upright for side in resting_sides(corners, self.p_GCom)):
                yield solids


def mend(folder: Path) -> dict[str, Any]:
    """Mends a model, and returns a report as plain JSON data; `upright` is empty after success.

    Raises:
        ConfigError: The folder holds no model that can be loaded.
        DiskError: The disk is full, read-only or broken; the model is unchanged.
    """
    file = read_model(folder).file
    if problem := first_load_problem(file.parent):
        raise ConfigError(f"{file} cannot be mended. {problem}")
    groups = upright = _upright_groups(file.parent)
    replaced: list[dict[str, Any]] = []
    maps = zip(*(group.leaning() for group in groups), strict=False)
    for solids in itertools.islice(maps, MAX_LOADS):  # none without groups
        files, replaced = _files(file, groups, solids)
        with tempfile.TemporaryDirectory() as aside:
            copy = Path(shutil.copytree(file.parent, Path(aside) / "model"))
            _write(copy, files)
            upright = _upright_groups(copy)
        if not upright:
            _write(file.parent, files)
            break
    sides = [side for group in upright for side in group.sides]
    return {"folder": str(folder), "upright": sides, "replaced": [] if upright else replaced}


def _files(
    file: Path, groups: list[_Group], leaning: tuple[tuple[Solid, ...], ...]
) -> tuple[dict[str, str | bytes], list[dict[str, Any]]]:
    """Returns the files to be written by path, the model file last, and a report of each shape."""
    files: dict[str, str | bytes] = {}
    reports, inertias = [], {}
    meshes: dict[str, list[str | None]] = {}
    for group, solids in zip(groups, leaning, strict=True):
        for shape, solid in zip(group.shapes, solids, strict=True):
            stem = re.sub(r"\W", "_", shape.name, flags=re.ASCII)[:60]
            paths = (mesh_path(f"{stem}_leaning{n or ''}") for n in itertools.count())
            path = next(p for p in paths if p not in files and not (file.parent / p).exists())
            vertices = shape.X_GS.inverse().multiply(solid.vertices.T).T
            files[path] = obj_text(Solid(vertices, solid.triangles), digits=17)
            moved = float(np.linalg.norm(solid.vertices - shape.hull.vertices, axis=1).max())
            report = {"link": shape.link, "shape": shape.name, "mesh": path}
            reports.append({**report, "moved_um": round(1e6 * moved, 3)})
            inertias[shape.link] = group.inertias[shape.link]
            of_link = meshes.setdefault(shape.link, [None] * group.numbers[shape.link])
            of_link[shape.place] = path
    files[file.name] = with_meshes(file, meshes, inertias)
    return files, reports


def _write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        write_file(folder / path, content)


def _upright_groups(folder: Path) -> list[_Group]:
    """Returns welded links with sides that are upright in a world."""
    from pydrake.multibody.tree import ModelInstanceIndex

    from fleet_tools.sim.contact_shapes import sides_with_margin, welded_groups

    with warnings.catch_warnings(action="ignore"):
        plant, scene_graph = load(folder)
    source, found = plant.get_source_id(), []
    assert source is not None  # the plant is registered with the scene graph
    for bodies in welded_groups(plant, ModelInstanceIndex(plant.num_model_instances() - 1)):
        sides = sides_with_margin(scene_graph, bodies)
        if upright := [str(side) for side in sides if side.upright]:
            found.append(_group(scene_graph, source, bodies, upright))
    return found


def _group(
    scene_graph: "SceneGraph", source: "SourceId", bodies: "list[WeldedBody]", sides: list[str]
) -> _Group:
    """Returns welded links with their shapes as they are without a hydroelastic margin."""
    from pydrake.geometry import (
        Box,
        Convex,
        Cylinder,
        Mesh,
        ProximityProperties,
        RoleAssign,
        VolumeMesh,
    )

    from fleet_tools.sim.contact_shapes import centre_of_mass, corners_with_margin, shape_name
    from fleet_tools.sim.resting_faces import resting_shapes
    from fleet_tools.studio.importing.enclosed_body import convex_hull

    inspector = scene_graph.model_inspector()
    group = _Group(sides, centre_of_mass(bodies), {}, {}, [], {})
    lying = resting_shapes(corners_with_margin(scene_graph, bodies), group.p_GCom)
    for each in bodies:
        link, M = each.body.name(), each.body.default_spatial_inertia()
        central = M.Shift(M.get_com()).CalcRotationalInertia().CopyToFullMatrix3()
        group.inertias[link] = MassProperties(M.get_mass(), M.get_com(), central)
        group.numbers[link] = len(each.shapes)
        for k, shape in enumerate(each.shapes):
            properties = ProximityProperties(inspector.GetProximityProperties(shape))
            properties.UpdateProperty("hydroelastic", "margin", 0.0)
            scene_graph.AssignRole(source, shape, properties, RoleAssign.kReplace)
            name, geometry = shape_name(scene_graph, shape), inspector.GetShape(shape)
            mesh = inspector.maybe_get_hydroelastic_mesh(shape)
            if not isinstance(mesh, VolumeMesh):  # rigid shapes have no margin
                continue
            X_GS = each.X_GB @ inspector.GetPoseInFrame(shape)
            corners = X_GS.multiply(np.array(mesh.vertices()).T).T
            flat = isinstance(geometry, Box | Convex | Cylinder) or (
                isinstance(geometry, Mesh) and geometry.extension() != ".vtk"  # may be concave
            )
            hull = convex_hull(corners) if flat and f"{name} of {link}" in lying else None
            if hull is None:
                group.kept[f"{name} of {link}"] = corners
            else:
                group.shapes.append(_Shape(link, k, name, X_GS, hull))
    return group


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
