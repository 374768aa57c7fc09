"""The program: python -m fleet_tools.assets import MESH."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

from fleet_tools import programs

from .. import materials
from ..materials import Material
from .scale import UNITS, UP

MATERIALS = {
    name.lower(): value for name, value in vars(materials).items() if isinstance(value, Material)
}

PLAIN = Material(1000.0, (0.6, 0.6, 0.62), modulus=1e8, friction=0.4, dissipation=10.0)
"""Looks and contact where no material is named."""

EXAMPLE = """example:
  python -m fleet_tools.assets import hammer.stl --kind tool --family hammer --name mine \\
      --mass 0.45 --keypoint head=0.16,0,0.05 --keypoint side=0.16,0,-0.02 \\
      --keypoint tail=-0.1,0,0 --grasp 0,0,0 --output my_assets

writes my_assets/tools/hammer/mine, which gym.make("FleetTools/Hammer-v0", tool=...) takes by path.
A tool's frame has x along the handle to the working end and z away from the palm; if the mesh was
drawn otherwise, --grasp X,Y,Z,ROLL,PITCH,YAW says how the hand holds it. An object stands on z = 0.

Exit status: 0 written, 1 the folder may not be overwritten, 2 the mesh cannot be imported as asked.
"""


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    return programs.run(_parser(), _import, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.assets import",
        "Make a tool or an object of a mesh: repaired, weighed, simplified, and with convex "
        "pieces that can be felt.",
        EXAMPLE,
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("mesh", type=Path, metavar="MESH", help="STL, OBJ, PLY, OFF, GLB or GLTF")
    parser.add_argument("--kind", choices=["tool", "object"], required=True)
    parser.add_argument("--family", type=_name, required=True, help="such as hammer")
    parser.add_argument("--name", type=_name, help="default: that of the file")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        required=True,
        help="an assets folder; the model goes to DIR/tools/FAMILY/NAME or DIR/objects/FAMILY/NAME",
    )
    weight = parser.add_argument_group("weight: at least one of")
    weight.add_argument("--mass", type=_positive, metavar="KG")
    weight.add_argument("--density", type=_positive, metavar="KG_M3")
    weight.add_argument(
        "--material",
        choices=sorted(MATERIALS),
        help="gives density, colour and contact, where these are not given",
    )
    size = parser.add_argument_group("size and axes")
    size.add_argument(
        "--scale",
        type=_scale,
        default="auto",
        metavar="auto|UNIT|NUMBER",
        help=f"unit of the file ({', '.join(UNITS)}) or metres per unit; auto guesses, and says so",
    )
    size.add_argument("--length", type=_positive, metavar="M", help="longest side, instead")
    size.add_argument("--up", choices=UP, help="axis that becomes z; default y for glTF, else z")
    size.add_argument(
        "--origin",
        choices=["keep", "base", "centre"],
        help="of the model's frame; default: keep for a tool, base for an object",
    )
    labels = parser.add_argument_group("labels")
    labels.add_argument(
        "--keypoint",
        type=_keypoint,
        action="append",
        default=[],
        metavar="NAME=X,Y,Z",
        help="a point that tasks speak of, m in the model's frame; once for each",
    )
    labels.add_argument(
        "--grasp",
        type=_grasp,
        metavar="X,Y,Z[,R,P,Y]",
        help="pose of the hand in the tool's frame, m and degrees; default: the origin. "
        "Where the first number is negative, write --grasp=-0.1,0,0",
    )
    labels.add_argument(
        "--points-in",
        choices=["model", "mesh"],
        default="model",
        help="frame of --keypoint and --grasp: mesh takes them in the file's unit and axes",
    )
    contact = parser.add_argument_group("contact")
    contact.add_argument("--friction", type=_positive, help="Coulomb coefficient")
    stiffness = contact.add_mutually_exclusive_group()
    stiffness.add_argument(
        "--modulus", type=_positive, metavar="PA", help="hydroelastic; compliant"
    )
    stiffness.add_argument(
        "--rigid",
        action="store_true",
        help="not compliant; what is rigid, too, such as the table, is then felt at points alone",
    )
    contact.add_argument(
        "--pieces", type=programs.positive_int, default=8, metavar="N", help="convex, at most; 8"
    )
    contact.add_argument(
        "--concavity",
        type=_positive,
        default=0.05,
        metavar="SHARE",
        help="of the size, by which a piece may bulge; 0.05",
    )
    contact.add_argument(
        "--tolerance",
        type=_positive,
        default=0.001,
        metavar="M",
        help="aimed at when a piece is drawn with few planes; 0.001",
    )
    contact.add_argument(
        "--if-open",
        choices=["hull", "refuse"],
        default="hull",
        help="what becomes of a part that is not watertight beyond repair",
    )
    parser.add_argument("--colour", type=_colour, metavar="R,G,B", help="each from 0 to 1")
    return parser


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

    from fleet_tools.resources import task_configs_root

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


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text} is not finite")
    return number


def _positive(text: str) -> float:
    number = _number(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"must be more than 0; given: {text}")
    return number


def _numbers(text: str, *counts: int) -> tuple[float, ...]:
    numbers = tuple(_number(part) for part in text.split(","))
    if len(numbers) not in counts:
        wanted = " or ".join(map(str, counts))
        raise argparse.ArgumentTypeError(f"{text!r} must be {wanted} numbers with commas between")
    return numbers


def _scale(text: str) -> float | str:
    return text if text == "auto" else UNITS.get(text) or _positive(text)


def _keypoint(text: str) -> tuple[str, tuple[float, ...]]:
    name, equals, point = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=X,Y,Z, such as head=0.16,0,0.05")
    return _name(name), _numbers(point, 3)


def _grasp(text: str) -> tuple[float, ...]:
    numbers = _numbers(text, 3, 6)
    return numbers if len(numbers) == 6 else (*numbers, 0.0, 0.0, 0.0)


def _colour(text: str) -> tuple[float, ...]:
    numbers = _numbers(text, 3)
    if not all(0 <= x <= 1 for x in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: each is from 0 to 1")
    return numbers


def _name_of(mesh: Path) -> str:
    from fleet_tools.errors import ConfigError

    try:
        return _name(re.sub(r"\W+", "_", mesh.stem).strip("_").lower())
    except argparse.ArgumentTypeError:
        raise ConfigError(f"No name can be made of {mesh.name}; give one with --name.") from None


def _name(text: str) -> str:
    # It names a folder, a link and files, and stands in YAML and XML.
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be letters, digits and underscores, beginning with a letter"
        )
    return text
