"""The program: python -m fleet_tools.assets import MESH."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

from fleet_tools.utils import cli as programs

from ..materials import Material
from .arguments import MATERIALS, model_name, parser

PLAIN = Material(1000.0, (0.6, 0.6, 0.62), modulus=1e8, friction=0.4, dissipation=10.0)
"""Looks and contact where no material is named."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return programs.run(parser(), _import, arguments)


def _import(options: argparse.Namespace) -> int:
    from .build import Wanted, import_mesh
    from .read import GLTF, read_mesh
    from .write import write

    material = _material(options)
    name = options.name or _name_of(options.mesh)
    is_gltf = options.mesh.suffix.lower().removeprefix(".") in GLTF
    wanted = Wanted(
        kind=options.kind,
        family=options.family,
        name=name,
        material=material,
        mass=options.mass,
        keypoints=_keypoints(options),
        grasp=options.grasp,
        points_in=options.points_in,
        scale=None if options.scale == "auto" else options.scale,
        length=options.length,
        up=options.up or ("y" if is_gltf else "z"),
        origin=options.origin or ("keep" if options.kind == "tool" else "base"),
        pieces=options.pieces,
        concavity=options.concavity,
        tolerance=options.tolerance,
        hull_if_open=options.if_open == "hull",
    )
    imported = import_mesh(read_mesh(options.mesh), wanted)
    folder = imported.model.folder(options.output)
    report = _report(imported, folder)
    write(imported.model, folder, {"mesh": options.mesh.name, **_for_record(report)})
    if options.json:
        print(json.dumps(report, indent=2))
    elif not options.quiet:
        print("\n".join(_lines(report)))
    if not options.json:
        for warning in report["warnings"]:
            print(f"warning: {warning}", file=sys.stderr)
    return programs.OK


def _for_record(report: dict) -> dict:
    """What of a report stays true wherever the folder lies."""
    return {key: value for key, value in report.items() if key != "folder"}


def _material(options: argparse.Namespace) -> Material:
    from fleet_tools.errors import ConfigError

    if options.mass is None and options.density is None and options.material is None:
        raise ConfigError(
            "Say what it weighs: --mass KG, --density KG_M3 or --material "
            f"{{{', '.join(sorted(MATERIALS))}}}."
        )
    if options.mass is not None and options.density is not None:
        raise ConfigError("--mass and --density contradict each other; give one.")
    material = MATERIALS.get(options.material, PLAIN)
    given = {
        "density": options.density,
        "colour": options.colour,
        "friction": options.friction,
        "modulus": math.inf if options.rigid else options.modulus,
    }
    return replace(material, **{key: value for key, value in given.items() if value is not None})


def _keypoints(options: argparse.Namespace) -> dict[str, tuple[float, float, float]]:
    from fleet_tools.errors import ConfigError

    keypoints = dict(options.keypoint)
    if len(keypoints) < len(options.keypoint):
        raise ConfigError("A keypoint is given twice; each name stands for one point.")
    if not keypoints:
        names = _asked_for(options.kind, options.family)
        example = " ".join(f"--keypoint {name}=X,Y,Z" for name in names or ["head"])
        raise ConfigError(f"Tasks need labelled points; give them, such as {example} (metres).")
    return keypoints


def _asked_for(kind: str, family: str) -> list[str]:
    """Keypoints that the package's tasks ask of a family."""
    import yaml

    from fleet_tools.utils.resources import task_configs_root

    names: set[str] = set()
    for file in task_configs_root().glob("*.yaml"):
        task = yaml.safe_load(file.read_text(encoding="utf-8"))
        if task.get(f"{kind}_family") == family:
            names.update(task.get("keypoints", {}).get(kind, []))
    return sorted(names)


def _report(imported, folder: Path) -> dict:
    model, inertial = imported.model, imported.inertial
    (part,) = model.links[0].parts
    missing = sorted(set(_asked_for(model.kind, model.family)) - set(model.keypoints))
    doubts = [f"the package's tasks with {model.family} also ask for the keypoint(s) "
              f"{', '.join(missing)}"] if missing else []  # fmt: skip
    return {
        "folder": str(folder),
        "kind": model.kind,
        "family": model.family,
        "name": model.name,
        "scale": imported.scale,
        "extents_m": [round(x, 6) for x in imported.extents],
        "mass_kg": round(inertial.mass, 9),
        "density_kg_m3": round(imported.density, 3),
        "centre_of_mass_m": [round(float(x), 9) for x in inertial.centre],
        "inertia_kg_m2": [[round(float(x), 13) for x in row] for row in inertial.inertia],
        "visual_triangles": len(part.solid.triangles),
        "collision_pieces": len(part.collision),
        "collision_triangles": sum(len(piece.triangles) for piece in part.collision),
        "collision_excess_m": round(imported.excess, 6),
        "notes": imported.notes,
        "warnings": [*imported.warnings, *doubts],
    }


def _lines(report: dict) -> list[str]:
    size = " x ".join(f"{x:.3g}" for x in report["extents_m"])
    centre = ", ".join(f"{x:.4g}" for x in report["centre_of_mass_m"])
    return [
        f"{report['kind']} {report['name']} of the family {report['family']}",
        *(f"  {note}" for note in report["notes"]),
        f"  size {size} m",
        f"  mass {report['mass_kg']:.4g} kg ({report['density_kg_m3']:.4g} kg/m^3), centre of mass "
        f"at ({centre}) m",
        f"  seen: {report['visual_triangles']} triangles; felt: {report['collision_pieces']} "
        f"convex piece(s) of {report['collision_triangles']} triangles, at most "
        f"{report['collision_excess_m'] * 1000:.2g} mm beyond the parts they wrap",
        report["folder"],
    ]


def _name_of(mesh: Path) -> str:
    from fleet_tools.errors import ConfigError

    try:
        return model_name(re.sub(r"\W+", "_", mesh.stem).strip("_").lower())
    except argparse.ArgumentTypeError:
        raise ConfigError(f"No name can be made of {mesh.name}; give one with --name.") from None
