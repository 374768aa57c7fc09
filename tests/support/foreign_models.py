"""Tools as other programs make them: round, subdivided, noisy and cut meshes, in SDFormat folders.

Nothing here comes from the package's generators. Each tool is a tuple of convex pieces, badly
triangulated on purpose, and the keypoints of its family in the tool frame T.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import trimesh
from support.foreign_shapes import (
    ball,
    box,
    common,
    cylinder,
    dusty,
    hull,
    moved,
    noisy,
    obj_text,
    rounded_box,
    rounded_hull,
)

Position = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class ForeignTool:
    """A tool made of convex pieces.

    Attributes:
        family: Its family.
        name: Its name.
        pieces: Convex meshes in T, m.
        keypoints: Positions by name, m.
        mass: Mass, kg.
        modulus: Hydroelastic modulus, Pa.
        friction: Coulomb coefficient.
    """

    family: str
    name: str
    pieces: tuple[trimesh.Trimesh, ...]
    keypoints: dict[str, Position]
    mass: float
    modulus: float
    friction: float

    def mesh(self) -> trimesh.Trimesh:
        """Returns all pieces as one mesh of overlapping parts."""
        return cast(trimesh.Trimesh, trimesh.util.concatenate(list(self.pieces)))

    def write(self, root: Path, properties: str = "") -> Path:
        """Writes a model folder, whose collision shapes are the pieces, and returns it."""
        folder = root / self.name
        folder.mkdir(parents=True)
        shapes = []
        for k, piece in enumerate(self.pieces):
            (folder / f"{k}.obj").write_text(obj_text(piece))
            geometry = f"<geometry><mesh><uri>{k}.obj</uri>%s</mesh></geometry>"
            shapes.append(
                f'<visual name="v{k}">{geometry % ""}</visual>'
                f'<collision name="piece_{k}">{geometry % "<drake:declare_convex/>"}'
                "<drake:proximity_properties><drake:compliant_hydroelastic/>"
                f"<drake:hydroelastic_modulus>{self.modulus}</drake:hydroelastic_modulus>"
                f"<drake:mu_static>{self.friction}</drake:mu_static>"
                f"<drake:mu_dynamic>{self.friction}</drake:mu_dynamic>{properties}"
                "</drake:proximity_properties></collision>"
            )
        inertial = _inertial(self.mesh(), self.mass)
        (folder / "model.sdf").write_text(
            '<?xml version="1.0"?><sdf version="1.9" xmlns:drake="https://drake.mit.edu">'
            f'<model name="{self.name}"><link name="tool">{inertial}{"".join(shapes)}'
            "</link></model></sdf>"
        )
        lines = [f"family: {self.family}", "kind: tool", "keypoints:"]
        lines += [
            f"  {k}: {{link: tool, position: {[float(x) for x in p]}}}"
            for k, p in self.keypoints.items()
        ]
        (folder / "keypoints.yaml").write_text("\n".join(lines) + "\n")
        return folder

    def import_options(self) -> list[str]:
        """Returns the options of the import that label its mesh."""
        options = ["--kind", "tool", "--family", self.family, "--name", self.name]
        options += ["--mass", str(self.mass), "--scale", "m"]
        for name, position in self.keypoints.items():
            options += ["--keypoint", f"{name}={','.join(map(str, position))}"]
        return options


def foreign_tools() -> list[ForeignTool]:
    """Returns all tools; the same at every call."""
    return [*_hammers(), *_wrenches(), *_spatulas(), *_knives()]


def foreign_tool(name: str) -> ForeignTool:
    """Returns a tool by its name."""
    return next(tool for tool in foreign_tools() if tool.name == name)


def _rod(radius: float, start: float, end: float, sections: int = 32) -> trimesh.Trimesh:
    """Returns a cylinder along x."""
    rod = cylinder(radius, end - start, sections=sections)
    return moved(rod, (start + end) / 2, 0, 0, about="y", deg=90)


def _hammers() -> list[ForeignTool]:
    def hammer(name: str, head: trimesh.Trimesh, handle: trimesh.Trimesh, *more: trimesh.Trimesh):
        low, high = head.bounds[:, 2]
        points = {"head": (0.16, 0.0, high), "side": (0.16, 0.0, low), "tail": (-0.08, 0.0, 0.0)}
        pieces = (handle, head, *more)
        return ForeignTool("hammer", name, pieces, points, 0.5, 1e8, 0.4)

    stick = _rod(0.012, -0.08, 0.16)
    bevelled = common(box((0.04, 0.04, 0.1)), moved(box((0.045, 0.045, 0.11)), 0, 0, 0, deg=45))
    domed = common(cylinder(0.016, 0.1, sections=48), ball(4, 0.09))
    sphere_cut = common(ball(3, 0.03), box((0.1, 0.1, 0.05)))
    shaft = moved(trimesh.creation.capsule(0.24, 0.012, count=[16, 16]), 0.04, 0, 0,
                  about="y", deg=90)  # fmt: skip
    return [
        hammer("round_hammer", moved(cylinder(0.02, 0.1, sections=64), 0.16, 0, 0), stick),
        hammer("rounded_hammer", moved(rounded_box((0.03, 0.03, 0.1), 0.004), 0.16, 0, 0), shaft),
        hammer("noisy_hammer", moved(noisy(box((0.03, 0.03, 0.1)), 4, 2e-5), 0.16, 0, 0), stick),
        hammer("bevelled_hammer", moved(bevelled, 0.16, 0, 0), shaft),
        hammer("domed_hammer", moved(domed, 0.16, 0, 0), stick),
        hammer("ball_hammer", moved(sphere_cut, 0.16, 0, 0), shaft),
        hammer("fine_hammer", moved(cylinder(0.018, 0.09, sections=256), 0.16, 0, 0),
               noisy(stick, 1, 1e-5)),
    ]  # fmt: skip


PAD, REACH, THROAT, OUTER, HALF = 0.0206, 0.016, 0.0245, 0.038, 0.007
"""Half the opening, and reach of a prong beyond the nut's middle, its throat, radius, m."""


def _wrenches() -> list[ForeignTool]:
    disc = cylinder(OUTER, 2 * HALF, sections=96)
    slab = moved(box((0.1, 0.1, 0.1)), 0, PAD + 0.05, 0)
    root = -THROAT - 0.004  # within the bridge
    length, middle = REACH - root, (REACH + root) / 2
    ahead = moved(box((length, 0.2, 0.1)), middle, 0, 0)
    prong = common(disc, slab, ahead)
    bridge = common(disc, moved(box((0.1, 0.2, 0.1)), -THROAT - 0.05, 0, 0))
    mirror = np.array([1, -1, 1])

    def wrench(name: str, prong: trimesh.Trimesh, bridge: trimesh.Trimesh, handle: trimesh.Trimesh):
        other = trimesh.Trimesh(prong.vertices * mirror).convex_hull
        head = tuple(moved(piece, 0.17, 0, 0) for piece in (prong, other, bridge))
        points = {
            "jaw": (0.17, 0.0, 0.0),
            "left": (0.17, -PAD, 0.0),
            "right": (0.17, PAD, 0.0),
            "upper": (0.14, 0.0, -HALF),
            "lower": (0.14, 0.0, HALF),
        }
        return ForeignTool("wrench", name, (handle, *head), points, 0.45, 1e9, 0.3)

    bar = moved(box((0.23, 0.024, 0.012)), 0.03, 0, 0)
    sheared = moved(rounded_box((0.23, 0.024, 0.012), 0.004), 0.03, 0, 0)
    chunk = hull([(x, y, z) for x in (root, REACH) for y in (PAD, 0.034) for z in (-HALF, HALF)])
    soft = moved(rounded_box((length, 0.014, 2 * HALF), 0.003), middle, PAD + 0.007, 0)
    back = moved(box((0.017, 0.068, 2 * HALF)), -THROAT - 0.0085 + 1e-4, 0, 0)
    return [
        wrench("cut_wrench", prong, bridge, bar),
        wrench("plate_wrench", noisy(chunk, 3, 1e-5), noisy(back, 3, 1e-5), sheared),
        wrench("rounded_wrench", soft, rounded_hull(back, 0.002), bar),
        wrench(
            "fine_wrench", noisy(prong, 2, 2e-6), noisy(bridge, 1, 2e-6), _rod(0.01, -0.08, 0.14)
        ),
    ]


def _outline(length: float, heel: float, edge: float, corner: float, count: int) -> np.ndarray:
    """Returns the outline of a blade from x = 0 to its length, with round corners, (n, 2)."""
    angles = np.linspace(0, np.pi / 2, count)
    x = np.r_[0, length - corner + corner * np.sin(angles)]
    y = np.r_[heel, edge - corner + corner * np.cos(angles)]
    return np.column_stack([np.r_[x, x[::-1]], np.r_[y, -y[::-1]]])


def _blade(outline: np.ndarray, thick: float, thin: float) -> trimesh.Trimesh:
    """Returns a wedge with a plane sole at z = 0, on the side of larger z."""
    length = outline[:, 0].max()
    height = thick + (thin - thick) * outline[:, 0] / length
    return hull(
        np.column_stack([outline, np.zeros(len(outline))]), np.column_stack([outline, -height])
    )


def _spatulas() -> list[ForeignTool]:
    def spatula(name: str, blade: trimesh.Trimesh, handle: trimesh.Trimesh, neck: float = 0.008):
        blade = moved(blade, 0.12, 0, 0.05)
        low = blade.bounds[1, 2]
        thickness = 0.0024
        points = {
            "edge": (blade.bounds[1, 0], 0.0, low),
            "heel": (0.12, 0.0, low),
            "sole": (0.17, 0.0, low),
            "face": (0.17, 0.0, low - thickness),
            "tail": (-0.095, 0.0, 0.0),
        }
        strap = hull(
            [(0.05, y, z) for y in (-neck, neck) for z in (-0.006, 0.006)],
            [(0.124, y, z) for y in (-2 * neck, 2 * neck) for z in (low - 0.0045, low - 0.0005)],
        )
        pieces = (handle, noisy(strap, 2, 1e-5), blade)
        return ForeignTool("spatula", name, pieces, points, 0.2, 1e7, 0.2)

    stick = _rod(0.012, -0.095, 0.06)
    square = _outline(0.1, 0.035, 0.04, 1e-4, 2)
    round_ = _outline(0.1, 0.035, 0.04, 0.012, 24)
    fine = _outline(0.1, 0.03, 0.04, 0.03, 150)
    soft = moved(rounded_box((0.155, 0.024, 0.02), 0.006), -0.0175, 0, 0)
    return [
        spatula("square_spatula", noisy(_blade(square, 0.0045, 0.0004), 3, 3e-6), stick),
        spatula("round_spatula", _blade(round_, 0.0045, 0.0003), soft),
        spatula("fine_spatula", _blade(fine, 0.0045, 0.0003), soft),
        spatula("dusty_spatula", dusty(_blade(square, 0.0045, 0.0004), 2e-6), stick),
        spatula("scanned_spatula", noisy(_blade(round_, 0.0045, 0.0004), 3, 1e-5), stick),
    ]


def _knives() -> list[ForeignTool]:
    def knife(name: str, blade: trimesh.Trimesh, handle: trimesh.Trimesh):
        edge = blade.bounds[1, 2]
        points = {
            "edge": (0.12, 0.0, edge),
            "spine": (0.12, 0.0, blade.bounds[0, 2]),
            "heel": (0.06, 0.0, edge),
            "tip": (0.17, 0.0, edge),
        }
        return ForeignTool("knife", name, (handle, blade), points, 0.2, 1e8, 0.3)

    def profile(spine: float, edge: float, steps: int, bow: float) -> trimesh.Trimesh:
        """A blade from spine to edge, whose sides bow outward like a lens."""
        rings = []
        for t in np.linspace(0, 1, steps):
            half = spine + (edge - spine) * t + bow * t * (1 - t)
            z, nose = -0.01 + 0.052 * t, 0.18 - 0.008 * t * t
            rings += [(x, y, z) for x in (0.055, nose) for y in (-half, half)]
        return hull(rings)

    stick = _rod(0.012, -0.08, 0.06)
    soft = moved(rounded_box((0.14, 0.024, 0.02), 0.008, 3), -0.01, 0, 0)
    lens = profile(0.0015, 0.0003, 24, 0.002)
    soft_blade = moved(rounded_box((0.125, 0.003, 0.052), 0.001), 0.1175, 0, 0.016)
    plain = profile(0.0015, 0.0003, 2, 0.0)
    return [
        knife("lens_knife", lens, stick),
        knife("dusty_knife", dusty(lens, 3e-7), stick),
        knife("noisy_knife", noisy(plain, 4, 3e-6), soft),
        knife("fine_knife", noisy(lens, 2, 1e-6), soft),
        knife("rounded_knife", soft_blade, stick),
    ]


def _inertial(mesh: trimesh.Trimesh, mass: float) -> str:
    body = mesh.copy()
    body.density = mass / mesh.volume
    inertia, p = body.moment_inertia, body.center_mass
    names = {"ixx": (0, 0), "ixy": (0, 1), "ixz": (0, 2), "iyy": (1, 1), "iyz": (1, 2)}
    names["izz"] = (2, 2)
    tensor = "".join(f"<{name}>{inertia[index]:.12g}</{name}>" for name, index in names.items())
    return (
        f"<inertial><pose>{p[0]:.9g} {p[1]:.9g} {p[2]:.9g} 0 0 0</pose><mass>{mass}</mass>"
        f"<inertia>{tensor}</inertia></inertial>"
    )


TASKS: dict[str, str] = {
    "hammer": "FleetTools/Hammer-v0",
    "wrench": "FleetTools/Wrench-v0",
    "spatula": "FleetTools/Spatula-v0",
    "knife": "FleetTools/Knife-v0",
}
"""Environment of each family."""
