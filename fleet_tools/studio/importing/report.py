"""What an import says: a report as plain data, and as lines for the terminal."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet_tools.assets.model_description import ModelDescription
from fleet_tools.assets.model_folder import model_files, read_files
from fleet_tools.sim.catalog import Kind
from fleet_tools.storage.atomic_files import replace_folder
from fleet_tools.storage.strict_json import loads
from fleet_tools.studio.importing.settings import JointSettings

if TYPE_CHECKING:  # --help answers without numpy
    from fleet_tools.studio.importing.importer import ImportedModel
    from fleet_tools.studio.importing.joint import JointedModel


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
    """Returns the content of each file of the folder by its relative path.

    Args:
        model: The imported model.
        report: Description of the import, plain JSON data.
    """
    files = model_files(model)
    hashes = {path: _hash(content) for path, content in files.items()}
    record = json.dumps({"import": dict(report), "files": hashes}, indent=2, sort_keys=True) + "\n"
    return {**files, RECORD: record.encode()}


def write_imported(model: ModelDescription, folder: Path, report: Mapping[str, Any]) -> None:
    """Writes the folder of an imported model, whole or not at all.

    Args:
        model: The imported model.
        folder: A new or empty folder, or one that an import wrote and nobody has edited since.
        report: Description of the import, plain JSON data.

    Raises:
        FileExistsError: The folder holds other files; it is left unchanged.
    """
    edited = edited_files(folder)
    if edited:
        raise FileExistsError(
            f"{folder} holds files that this program did not write ({', '.join(edited[:5])}), and "
            "is left unchanged. Choose another --name or --output, or move the folder away."
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
