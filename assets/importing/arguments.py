"""What may be said to `python -m fleet_tools.assets import`."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path

from fleet_tools.utils import cli as programs

from .. import materials
from ..materials import Material
from .scale import UNITS, UP

MATERIALS = {
    name.lower(): value for name, value in vars(materials).items() if isinstance(value, Material)
}

EXAMPLE = """example:
  python -m fleet_tools.assets import hammer.stl --kind tool --family hammer --name mine \\
      --mass 0.45 --keypoint head=0.16,0,0.05 --keypoint side=0.16,0,-0.02 \\
      --keypoint tail=-0.1,0,0 --grasp 0,0,0 --output my_assets

writes my_assets/tools/hammer/mine, which gym.make("FleetTools/Hammer-v0", tool=...) takes by path.
A tool's frame has x along the handle to the working end and z away from the palm; if the mesh was
drawn otherwise, --grasp X,Y,Z,ROLL,PITCH,YAW says how the hand holds it. An object stands on z = 0.

Exit status: 0 written, 1 the folder may not be overwritten, 2 the mesh cannot be imported as asked.
"""


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    parser = programs.argument_parser(
        "fleet_tools.assets import",
        "Make a tool or an object of a mesh: repaired, weighed, simplified, and with convex "
        "pieces that can be felt.",
        EXAMPLE,
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("mesh", type=Path, metavar="MESH", help="STL, OBJ, PLY, OFF, GLB or GLTF")
    parser.add_argument("--kind", choices=["tool", "object"], required=True)
    parser.add_argument("--family", type=model_name, required=True, help="such as hammer")
    parser.add_argument("--name", type=model_name, help="default: that of the file")
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
    key, equals, point = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=X,Y,Z, such as head=0.16,0,0.05")
    return model_name(key), _numbers(point, 3)


def _grasp(text: str) -> tuple[float, ...]:
    numbers = _numbers(text, 3, 6)
    return numbers if len(numbers) == 6 else (*numbers, 0.0, 0.0, 0.0)


def _colour(text: str) -> tuple[float, ...]:
    numbers = _numbers(text, 3)
    if not all(0 <= x <= 1 for x in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: each is from 0 to 1")
    return numbers


def model_name(text: str) -> str:
    """A name that folders, links, YAML and XML can bear; ArgumentTypeError otherwise."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be letters, digits and underscores, beginning with a letter"
        )
    return text
