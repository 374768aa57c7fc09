"""Edits of a model file that keep every other byte of it, comments and layout included."""

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.parsers import expat

from fleet_tools.assets.model_folder import inertial_element
from fleet_tools.assets.solids import MassProperties
from fleet_tools.errors import ConfigError

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
        inertias: Inertias by link name. They replace inertias that Drake computes from shapes.

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
                f"{file}: the link {link} has {len(places[link])} <collision> of which Drake "
                f"makes {len(paths)} shapes. `python -m fleet_tools.assets import MESH` makes "
                "another model."
            )
        for place, path in zip(places[link], paths, strict=True):
            mesh = (
                f'<mesh filename="{path}">'
                if file.suffix == ".urdf"
                else f"<mesh><uri>{path}</uri>"
            )
            if path is not None:
                edits.append((*place, f"<geometry>{mesh}<drake:declare_convex/></mesh></geometry>"))
    for begin, stop, text in sorted(edits, reverse=True):
        content = content[:begin] + text.encode() + content[stop:]
    return content
