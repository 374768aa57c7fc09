"""A model as a value, and the folder that it becomes.

Frames: the model frame of an object has its origin at the centre of its base, z up. That of a tool
is the frame T where the hand holds it. T coincides with the end-effector frame when the tool sits
nominally in the hand: z_T points away from the palm, y_T is the closing direction of the fingers,
and x_T runs along the handle to the working end. The palm is 45 mm behind the origin and the
fingers are 30 mm open.
"""

from __future__ import annotations

import math
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .materials import Material
from .solids import MassProperties, Solid, combined, decimal, mass_properties, obj_text

SIGNATURE = "# written by the generator: python -m fleet_tools.assets"


@dataclass(frozen=True)
class Part:
    """One piece of a link, of one material.

    Attributes:
        name: Unique in its model; names the mesh files.
        solid: What is seen and weighed, in the link's frame.
        material: What it is made of.
        collision: What is felt: convex solids of few vertices (`solids.frusta`), because contact
            costs by the triangle. None where another part's already cover it.
        collision_places: Digits after the point of their vertices. Ours are planned in whole
            nanometres; the planes of a foreign piece would be bent by rounding, which Drake answers
            with "a mesh field element was degenerate".
    """

    name: str
    solid: Solid
    material: Material
    collision: tuple[Solid, ...] = ()
    collision_places: int = 9


@dataclass(frozen=True)
class Link:
    """A rigid body; its frame is displaced from the model's by `origin` (m), without rotation.

    `inertial` is its mass in its own frame where the parts do not say it, because what is seen was
    simplified.
    """

    name: str
    parts: tuple[Part, ...]
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    inertial: MassProperties | None = None

    def mass_properties(self) -> MassProperties:
        """Of all parts together, in the link's frame."""
        if self.inertial is not None:
            return self.inertial
        return combined([mass_properties(p.solid, p.material.density) for p in self.parts])


@dataclass(frozen=True)
class Joint:
    """A joint that resists motion like dry friction; zero is where the child's frame says.

    Drake has no dry friction in joints. An actuator with a derivative gain this high, a zero
    desired velocity (which the simulation must connect) and a limited effort is an implicit Coulomb
    brake: it holds up to `resistance`, and gives way beyond.

    Attributes:
        kind: SDFormat's joint type, `prismatic` or `revolute`.
        axis: Unit vector in the model frame.
        limits: Lowest and highest position, m or rad.
        resistance: Break-away force in N, or torque in N m.
        inertia: Added to the child's along the joint, kg or kg m^2. Below its resistance the brake
            creeps at load / gain, but no slower than the solver can stop the moving mass in a step;
            without this addition a light pin creeps ten times faster.
    """

    name: str
    kind: str
    parent: str
    child: str
    axis: tuple[float, float, float]
    limits: tuple[float, float]
    resistance: float
    inertia: float


@dataclass(frozen=True)
class Keypoint:
    """A named point, in the frame of one link (m)."""

    link: str
    position: tuple[float, float, float]


@dataclass(frozen=True)
class Model:
    """Everything that a model folder says.

    Attributes:
        kind: `tool` or `object`.
        grasp: X_TG, where the end effector holds a tool: translation (m), roll, pitch, yaw (deg).
        written_by: What its files begin with.
    """

    kind: str
    family: str
    name: str
    links: tuple[Link, ...]
    keypoints: Mapping[str, Keypoint]
    joints: tuple[Joint, ...] = ()
    grasp: tuple[float, float, float, float, float, float] | None = None
    written_by: str = SIGNATURE

    @property
    def mass(self) -> float:
        """Mass of all links together, kg."""
        return sum(link.mass_properties().mass for link in self.links)

    def folder(self, root: Path) -> Path:
        """Where the model lies below an assets folder."""
        return root / f"{self.kind}s" / self.family / self.name


def files(model: Model) -> dict[str, bytes]:
    """The model's folder as relative path -> content; a pure function of the model."""
    texts = {"model.sdf": _sdf(model), "keypoints.yaml": _keypoints_yaml(model)}
    for part in (part for link in model.links for part in link.parts):
        texts[_mesh(part.name)] = obj_text(part.solid)
        for k, piece in enumerate(part.collision):
            text = obj_text(piece, part.collision_places)
            texts[_mesh(f"{part.name}_collision_{k}")] = text
    return {path: text.encode() for path, text in sorted(texts.items())}


def differences(model: Model, directory: Path) -> list[str]:
    """Relative paths at which a folder is not exactly what `write` would leave there."""
    wanted, found = files(model), _read(directory)
    return sorted(p for p in wanted.keys() | found.keys() if wanted.get(p) != found.get(p))


def write(model: Model, directory: Path) -> None:
    """Write the model's folder, aside first, and move it into place when it is whole.

    Raises:
        FileExistsError: The directory holds something that no generator wrote.
    """
    found = _read(directory)
    if found and not found.get("keypoints.yaml", b"").startswith(SIGNATURE.encode()):
        raise FileExistsError(f"{directory} was not written by a generator; it is left as it is")
    replace_folder(directory, files(model))


def replace_folder(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Write relative path -> content as a folder, whole or not at all, in place of the old."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".writing_") as aside:
        fresh = Path(aside) / directory.name
        for path, content in contents.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).write_bytes(content)
        old = Path(aside) / "old"
        if directory.exists():
            directory.rename(old)
        try:
            fresh.rename(directory)
        except OSError:
            if old.exists():
                old.rename(directory)
            raise


def _read(directory: Path) -> dict[str, bytes]:
    paths = sorted(p for p in directory.rglob("*") if p.is_file()) if directory.is_dir() else []
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in paths}


def _mesh(name: str) -> str:
    return f"meshes/{name}.obj"


def _numbers(values, places: int = 9) -> str:
    return " ".join(decimal(value, places) for value in values)


def _yaml_float(value: float) -> str:
    """Never with an exponent: YAML 1.1 reads 5e-05 as a string."""
    text = decimal(value, 9)
    return text if "." in text else f"{text}.0"


def _keypoints_yaml(model: Model) -> str:
    lines = [
        f"{model.written_by} --family {model.family}",
        f"family: {model.family}",
        f"kind: {model.kind}",
        "keypoints:  # metres, in the named link's frame",
    ]
    for name, point in model.keypoints.items():
        position = ", ".join(map(_yaml_float, point.position))
        lines.append(f"  {name}: {{link: {point.link}, position: [{position}]}}")
    if model.grasp is not None:
        translation, rpy = (
            ", ".join(decimal(x, 9) for x in half) for half in (model.grasp[:3], model.grasp[3:])
        )
        lines += ["grasp:  # X_TG", f"  translation_m: [{translation}]", f"  rpy_deg: [{rpy}]"]
    return "\n".join(lines) + "\n"


def _sdf(model: Model) -> str:
    root = ET.Element("sdf", {"version": "1.9", "xmlns:drake": "https://drake.mit.edu"})
    root.append(ET.Comment(f"{model.written_by[1:]}, family {model.family} "))
    element = ET.SubElement(root, "model", name=model.name)
    for link in model.links:
        _add_link(element, link)
    for joint in model.joints:
        _add_joint(element, joint)
    ET.indent(root)
    return '<?xml version="1.0"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add(parent: ET.Element, tag: str, text: str | None = None, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


def _add_link(model: ET.Element, link: Link) -> None:
    element = _add(model, "link", name=link.name)
    _add(element, "pose", _numbers((*link.origin, 0, 0, 0)))
    body = link.mass_properties()
    inertial = _add(element, "inertial")
    _add(inertial, "pose", _numbers((*body.centre, 0, 0, 0)))
    _add(inertial, "mass", decimal(body.mass, 9))
    tensor = _add(inertial, "inertia")
    for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)):
        _add(tensor, f"i{'xyz'[i]}{'xyz'[j]}", decimal(body.inertia[i, j], 13))
    for part in link.parts:
        visual = _add(element, "visual", name=part.name)
        _add(_add(_add(visual, "geometry"), "mesh"), "uri", _mesh(part.name))
        _add(_add(visual, "material"), "diffuse", _numbers((*part.material.colour, 1), 4))
        for k in range(len(part.collision)):
            _add_collision(element, f"{part.name}_collision_{k}", part.material)


def _add_collision(link: ET.Element, name: str, material: Material) -> None:
    element = _add(link, "collision", name=name)
    mesh = _add(_add(element, "geometry"), "mesh")
    _add(mesh, "uri", _mesh(name))
    _add(mesh, "drake:declare_convex")
    properties = _add(element, "drake:proximity_properties")
    if math.isinf(material.modulus):
        _add(properties, "drake:rigid_hydroelastic")
    else:
        _add(properties, "drake:compliant_hydroelastic")
        _add(properties, "drake:hydroelastic_modulus", decimal(material.modulus, 0))
    _add(properties, "drake:hunt_crossley_dissipation", decimal(material.dissipation, 4))
    for kind in ("dynamic", "static"):
        _add(properties, f"drake:mu_{kind}", decimal(material.friction, 4))


def _add_joint(model: ET.Element, joint: Joint) -> None:
    element = _add(model, "joint", name=joint.name, type=joint.kind)
    _add(element, "parent", joint.parent)
    _add(element, "child", joint.child)
    axis = _add(element, "axis")
    _add(axis, "xyz", _numbers(joint.axis))
    limit = _add(axis, "limit")
    _add(limit, "lower", decimal(joint.limits[0], 9))
    _add(limit, "upper", decimal(joint.limits[1], 9))
    _add(limit, "effort", decimal(joint.resistance, 9))
    element.append(ET.Comment(" an implicit Coulomb brake: holds up to the effort limit "))
    _add(element, "drake:controller_gains", p="0", d="100000")
    _add(element, "drake:rotor_inertia", decimal(joint.inertia, 9))
