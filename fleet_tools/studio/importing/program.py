"""The program that makes a model of a mesh, `python -m fleet_tools.assets import MESH`."""

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import pydantic
from tyro.conf import Positional

from fleet_tools.assets.model_description import MATERIALS, Material, MaterialName, ModelDescription
from fleet_tools.assets.model_folder import model_files, read_files
from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import Positive
from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import Kind, UpAxis
from fleet_tools.storage.atomic_files import replace_folder
from fleet_tools.storage.strict_json import loads
from fleet_tools.studio.importing.settings import (
    GeometrySettings,
    ImportSettings,
    JointSettings,
    LabelSettings,
    ModelName,
    Origin,
    ScaleSettings,
    ScanSettings,
    check_model_name,
)
from fleet_tools.utils import cli
from fleet_tools.utils.progress import Tell, silent, stage_lines

if TYPE_CHECKING:
    from fleet_tools.studio.importing.importer import ImportedModel
    from fleet_tools.studio.importing.joint import JointedModel
    from fleet_tools.studio.importing.mesh_file import RawMesh


def jointed_report(jointed: "JointedModel", joint: JointSettings) -> dict[str, Any]:
    """Describes the import of an object with a joint: the fixed part, then the other one."""
    report, moving = report_of(jointed.base), _part_report(jointed.moving)
    (described,) = jointed.base.model.joints
    return {
        **report,
        "joint": {
            "name": described.name,
            "kind": described.kind,
            "axis": list(described.axis),
            "limits": list(joint.limits or ()),
            "resistance": described.resistance,
        },
        "moving": moving,
        "warnings": [*report["warnings"], *moving.pop("warnings")],
    }


def report_of(imported: "ImportedModel") -> dict[str, Any]:
    """Describes an import, independently of the folder."""
    model = imported.model
    missing = sorted(set(keypoints_of_tasks(model.kind, model.family)) - set(model.keypoints))
    warnings = list(imported.warnings)
    if missing:
        warnings.append(
            f"the package's tasks with {model.family} also ask for the keypoint(s) "
            f"{', '.join(missing)}"
        )
    named = {"kind": model.kind, "family": model.family, "name": model.name}
    return {**named, **_part_report(imported), "warnings": warnings}


def _part_report(imported: "ImportedModel") -> dict[str, Any]:
    inertial = imported.inertial
    (part,) = imported.model.links[0].parts
    return {
        "scale": imported.scale,
        "extents_m": [round(x, 6) for x in imported.extents],
        "mass_kg": round(inertial.mass, 9),
        "density_kg_m3": round(imported.density, 3),
        "centre_of_mass_m": [round(float(x), 9) for x in inertial.centre],
        "inertia_kg_m2": [[round(float(x), 13) for x in row] for row in inertial.inertia],
        "visual_triangles": len(part.solid.triangles),
        "collision_pieces": len(part.collision),
        "collision_triangles": sum(len(solid.triangles) for solid in part.collision),
        "collision_excess_m": round(imported.excess, 6),
        "collision_deviation_m": {k: round(x, 6) for k, x in imported.deviations.items()},
        "notes": imported.notes,
        "warnings": list(imported.warnings),
    }


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Returns a report as lines for the terminal."""
    lines = [
        f"{report['kind']} {report['name']} of the family {report['family']}",
        *_part_lines(report),
    ]
    if joint := report.get("joint"):
        slides = joint["kind"] == "prismatic"
        motion, unit, force = ("along", "m", "N") if slides else ("about", "degrees", "N m")
        axis = ", ".join(f"{x:.3g}" for x in joint["axis"])
        low, high = joint["limits"]
        lines += [
            f"the part that moves {motion} ({axis}) by {low:g} to {high:g} {unit}: {joint['kind']} "
            f"joint {joint['name']}, held by {joint['resistance']:g} {force}",
            *_part_lines(report["moving"]),
        ]
    return lines


def _part_lines(report: Mapping[str, Any]) -> list[str]:
    size = " x ".join(f"{x:.3g}" for x in report["extents_m"])
    centre = ", ".join(f"{x:.4g}" for x in report["centre_of_mass_m"])
    deviations = report["collision_deviation_m"]
    near = ""
    if deviations:
        farthest = max(deviations, key=deviations.__getitem__)
        distance = deviations[farthest] * 1000
        near = f", and {distance:.2g} mm from the mesh near a keypoint ({farthest})"
    return [
        *(f"  {note}" for note in report["notes"]),
        f"  size {size} m",
        f"  mass {report['mass_kg']:.4g} kg ({report['density_kg_m3']:.4g} kg/m^3), centre of mass "
        f"at ({centre}) m",
        f"  visual geometry: {report['visual_triangles']} triangles",
        f"  collision geometry: {report['collision_pieces']} convex piece(s) of "
        f"{report['collision_triangles']} triangles, at most "
        f"{report['collision_excess_m'] * 1000:.2g} mm beyond the pieces that they enclose{near}",
    ]


def keypoints_of_tasks(kind: Kind, family: str) -> list[str]:
    """Returns the keypoints of a family that the package's tasks refer to."""
    import yaml

    from fleet_tools.config.file_access import task_configs_root

    names: set[str] = set()
    for file in task_configs_root().glob("*.yaml"):
        task = yaml.safe_load(file.read_text(encoding="utf-8"))
        if task.get(f"{kind}_family") == family:
            names.update(task.get("keypoints", {}).get(kind, []))
    return sorted(names)


RECORD = "import.json"
"""File that lists every other file of the folder with its hash, and describes the import."""


def imported_files(model: ModelDescription, report: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns the content of each file of the folder by its relative path."""
    files = model_files(model)
    hashes = {path: _hash(content) for path, content in files.items()}
    record = json.dumps({"import": dict(report), "files": hashes}, indent=2, sort_keys=True) + "\n"
    return {**files, RECORD: record.encode()}


def write_imported(model: ModelDescription, folder: Path, report: Mapping[str, Any]) -> None:
    """Writes the folder of an imported model, whole or not at all.

    The folder is new or empty, or one that an import wrote and nobody has edited since. The report
    describes the import as plain JSON data.

    Raises:
        FileExistsError: The folder holds other files; it is left unchanged.
    """
    edited = edited_files(folder)
    if edited:
        raise FileExistsError(
            f"{folder} holds files that this program did not write ({', '.join(edited[:5])}) and "
            "was left unchanged. Choose another --name or --output, or move the folder away."
        )
    replace_folder(folder, imported_files(model, report))


def edited_files(folder: Path) -> list[str]:
    """Returns relative paths that no import wrote, or that were edited or removed since."""
    if folder.is_file():
        return [folder.name]
    found = {path: _hash(content) for path, content in read_files(folder).items()}
    try:
        written = dict(loads((folder / RECORD).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return sorted(found)
    found.pop(RECORD)
    return sorted(p for p in found.keys() | written.keys() if found.get(p) != written.get(p))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


PLAIN = Material(1000.0, (0.6, 0.6, 0.62), modulus=1e8, friction=0.4, dissipation=10.0)
"""Colour and contact properties where no material is given."""


class MaterialOptions(OptionGroup):
    """Mass and material; one of --mass, --density and --material is needed."""

    mass: Positive | None = None
    """Mass, kg; --mass, --density or --material is needed."""
    density: Positive | None = None
    """Density, kg/m^3."""
    material: MaterialName | None = None
    """Material, which gives colour, contact properties, and the density if none is given."""
    rigid: bool = False
    """Rigid, not compliant; contact with other rigid objects, such as the table, is then at points
    alone."""

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mass is self.density is self.material is None:
            raise ValueError(
                f"give the weight: --mass KG, --density KG_M3 or --material {', '.join(MATERIALS)}"
            )
        if self.mass is not None and self.density is not None:
            raise ValueError("--mass and --density contradict each other; give one of them")
        return self

    def make(self) -> Material:
        """Returns the material; its density is used only if no mass is given."""
        material = PLAIN if self.material is None else MATERIALS[self.material]
        return replace(
            material,
            density=self.density or material.density,
            modulus=math.inf if self.rigid else material.modulus,
        )


class ImportOptions(cli.Options):
    """Makes a tool or an object of a mesh, or of a scan.

    The mesh is repaired, scaled, given its mass and inertia, simplified, and decomposed into convex
    pieces for contact. The frame of a tool has x along the handle to the working end and z away
    from the palm; --grasp gives the pose of the hand in a mesh with other axes. An object stands on
    z = 0.

    This example writes my_assets/tools/hammer/mine, whose path is the argument `tool` of
    gym.make("FleetTools/Hammer-v0", tool=...):

    python -m fleet_tools.assets import hammer.stl --kind tool --family hammer --name mine
        --mass 0.45 --keypoint head=0.16,0,0.05 --keypoint side=0.16,0,-0.02
        --keypoint tail=-0.1,0,0 --output my_assets

    Exit codes:
    0: the model is written.
    1: its folder holds files that must not be overwritten.
    2: the mesh cannot be imported with these settings.
    """

    files: Annotated[tuple[Path, ...], Positional]
    """Mesh file (STL, OBJ, PLY, OFF, DAE, GLB or GLTF), or the views of a scan (PLY without faces).
    """
    kind: Kind
    """Whether the model is a tool or an object."""
    family: ModelName
    """Family of the model, such as hammer."""
    output: Path
    """Assets folder, where the model goes to tools/FAMILY/NAME or objects/FAMILY/NAME."""
    name: ModelName | None = None
    """Name of the model (default: the file's)."""
    material: MaterialOptions
    scale: ScaleSettings = ScaleSettings()
    up: UpAxis | None = None
    """Axis of the file that becomes z (default: y for glTF, COLLADA's own, z for others)."""
    origin: Origin | None = None
    """Origin of the model frame: the file's, the centre of the bounding box's underside, or
    the centre of the bounding box (default: keep for a tool, base for an object)."""
    label: LabelSettings = LabelSettings()
    joint: JointSettings = JointSettings()
    geometry: GeometrySettings = GeometrySettings()
    scan: ScanSettings = ScanSettings()

    @pydantic.field_validator("files")
    @classmethod
    def _some_file(cls, files: tuple[Path, ...]) -> tuple[Path, ...]:
        if not files:
            raise ValueError("give a mesh file, or the views of a scan")
        return files

    def settings(self) -> ImportSettings:
        """Returns the settings of the import, with defaults that depend on kind and file.

        Raises:
            ConfigError: The name of the file is no valid name of a model.
        """
        from fleet_tools.sim.mesh_reading import file_axes

        return ImportSettings(
            kind=self.kind,
            family=self.family,
            name=self.name or model_name(self.files[0]),
            material=self.material.make(),
            mass=self.material.mass,
            up=self.up or file_axes(self.files[0]).up,
            origin=self.origin or ("keep" if self.kind == "tool" else "base"),
            scale=self.scale,
            labels=self.label,
            geometry=self.geometry,
        )


def import_model(options: ImportOptions) -> int:
    """Does the work of the program, and returns the exit code."""
    folder, report = write_model(options, stage_lines(quiet=options.quiet))
    options.report(
        {"folder": str(folder), **report}, lambda: "\n".join([*report_lines(report), str(folder)])
    )
    if not options.json_output:
        for warning in report["warnings"]:
            print(f"warning: {warning}", file=sys.stderr)
    return cli.OK


def write_model(options: ImportOptions, tell: Tell = silent) -> tuple[Path, dict[str, Any]]:
    """Imports a mesh, writes the model's folder, and returns the folder and a report as JSON data.

    Raises:
        FleetToolsError: The mesh cannot be imported with these settings.
        FileExistsError: The folder holds files that must not be overwritten.
    """
    from fleet_tools.studio.importing.importer import import_mesh
    from fleet_tools.studio.importing.joint import import_jointed
    from fleet_tools.studio.importing.mesh_file import read_mesh

    settings = options.settings()
    _check_keypoints(options, settings)
    tell(f"reading {', '.join(file.name for file in options.files)}")
    mesh = _read(options)
    if options.joint.moving is None:
        imported = import_mesh(mesh, settings, tell)
        report = report_of(imported)
    else:
        _check_moving(options)
        moving = read_mesh(options.joint.moving)
        jointed = import_jointed(mesh, moving, settings, options.joint, tell)
        imported = jointed.base
        report = jointed_report(jointed, options.joint)
    folder = imported.model.folder(options.output)
    names = [file.name for file in options.files]
    source = {"views": names} if len(names) > 1 else {"mesh": names[0]}
    write_imported(imported.model, folder, {**source, **report})
    return folder, report


def _read(options: ImportOptions) -> "RawMesh":
    from fleet_tools.studio.importing.mesh_file import read_mesh
    from fleet_tools.studio.importing.scan_files import is_scan
    from fleet_tools.studio.importing.scan_surface import scanned_mesh

    first, *others = options.files
    if others or is_scan(first):
        return scanned_mesh(options.files, options.scan)
    if options.scan != ScanSettings():
        given = " ".join(f"--{name.replace('_', '-')}" for name in options.scan.model_fields_set)
        raise ConfigError(f"{first} is a mesh, not a scan: leave out {given}.")
    return read_mesh(first)


def _check_moving(options: ImportOptions) -> None:
    """Refuses a part that moves, if its file says another unit or other axes than the first."""
    from fleet_tools.sim.mesh_reading import file_axes

    first, moving = options.files[0], options.joint.moving
    given = options.scale.scale is not None and options.up is not None
    if moving is None or given or not moving.is_file():
        return
    one, other = file_axes(first), file_axes(moving)
    if other.unit is not None and one != other:
        raise ConfigError(
            f"{moving} ({other.words}) has other coordinates than {first} ({one.words}). Export "
            "both in the same way, or give --scale and --up for both."
        )


def _check_keypoints(options: ImportOptions, settings: ImportSettings) -> None:
    if not (settings.labels.keypoints or options.joint.moving_keypoint):
        names = keypoints_of_tasks(settings.kind, settings.family)
        example = " ".join(f"--keypoint {name}=X,Y,Z" for name in names or ["head"])
        raise ConfigError(f"A model needs keypoints. Give some, such as {example} (metres).")


def model_name(mesh: Path) -> str:
    """Returns the name of the model that is made of a file.

    Raises:
        ConfigError: The name of the file does not make one.
    """
    try:
        return check_model_name(re.sub(r"\W+", "_", mesh.stem).strip("_").lower())
    except ValueError:
        raise ConfigError(
            f"{mesh.name} cannot become the name of a model. Give a name with --name."
        ) from None
