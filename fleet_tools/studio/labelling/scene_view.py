"""Drawing of the labelling page: mesh, labels and example."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fleet_tools.assets.solids import Solid, box, joined
from fleet_tools.config.geometry import Pose
from fleet_tools.studio.labelling.picking import size
from fleet_tools.studio.labelling.subjects import Example

if TYPE_CHECKING:
    import viser

MESH, EXAMPLE, HAND = (176, 182, 190), (214, 200, 178), (72, 110, 170)
"""Colours, red, green and blue to 255."""

PALETTE = (
    (214, 39, 40),
    (31, 119, 180),
    (44, 160, 44),
    (255, 127, 14),
    (148, 103, 189),
    (23, 160, 175),
    (140, 86, 75),
)
"""Colours of keypoints, in their order."""

OPEN, PALM = 0.015, 0.045
"""Half the opening of the drawn fingers, and the distance of the palm behind their tips, m."""

FIELD_OF_VIEW = 0.7
"""Vertical field of view of the camera, rad."""

SEEN_FROM = np.array([-0.25, -0.9, 0.4])
"""Direction from which the camera looks at first."""

Click = Callable[[np.ndarray, np.ndarray], None]
"""Receives origin and direction of a ray, (3,) each, in M."""


def colours(names: list[str]) -> dict[str, tuple[int, int, int]]:
    """Returns a colour for each keypoint."""
    return {name: PALETTE[k % len(PALETTE)] for k, name in enumerate(names)}


def ruler_length(longest: float) -> float:
    """Returns the largest of 1, 2 and 5 times a power of ten that is not above a length."""
    power = 10.0 ** np.floor(np.log10(longest))
    return float(power * max(digit for digit in (1, 2, 5) if digit * power <= longest))


def hand_solid() -> Solid:
    """Returns a palm with two fingers in the frame G of the hand, m."""
    fingers = [
        box((-0.01, min(a, b), -PALM), (0.01, max(a, b), 0.01))
        for a, b in ((OPEN, OPEN + 0.012), (-OPEN, -OPEN - 0.012))
    ]
    return joined(box((-0.02, -0.05, -PALM - 0.02), (0.02, 0.05, -PALM)), *fingers)


class WorkView:
    """The mesh, its labels and the example.

    Args:
        scene: The scene of the page.
        names: Keypoints of the family.
        example: Model beside the mesh.
        on_click: Called for clicks on the mesh.
    """

    def __init__(
        self, scene: "viser.SceneApi", names: list[str], example: Example | None, on_click: Click
    ) -> None:
        self._scene, self._colours, self._on_click = scene, colours(names), on_click
        self._example = example
        self._shown: set[str] = set()
        scene.add_frame("/work", show_axes=False)

    def draw_surface(self, surface: Solid) -> None:
        """Draws the mesh, in M, and the example beside it."""
        mesh = self._draw_mesh("/work/mesh", surface, MESH)
        mesh.on_click(
            lambda event: self._on_click(
                np.array(event.ray_origin, float), np.array(event.ray_direction, float)
            )
        )
        self._draw_ruler(surface)
        if self._example is not None:
            self._draw_example(self._example.beside(surface))

    def _draw_ruler(self, surface: Solid) -> None:
        """Draws a ruler along x, below the front of the mesh, with ten parts."""
        low, _ = surface.bounds()
        length, unit = ruler_length(size(surface)), 0.02 * size(surface)
        marks = [(k / 10 * length, unit * (2 if k in (0, 5, 10) else 1)) for k in range(11)]
        lines = [((x, 0, 0), (x, 0, -tick)) for x, tick in marks] + [((0, 0, 0), (length, 0, 0))]
        self._scene.add_line_segments(
            "/work/ruler",
            np.array(lines, np.float32),
            (60, 60, 60),
            thickness=2.0,
            thickness_units="screen",
            position=low - [0, 2 * unit, unit],
        )
        self._scene.add_label(
            "/work/ruler/length",
            f"{1000 * length:g} mm",
            position=(length, 0.0, 0.0),
            anchor="bottom-left",
        )

    def draw_labels(
        self, surface: Solid, points: Mapping[str, np.ndarray], extra: np.ndarray | None
    ) -> None:
        """Draws the keypoints in M, and the first of two clicks."""
        drawn = dict(points) if extra is None else {**points, "first click": extra}
        for name in self._shown - drawn.keys():
            self._scene.remove_by_name(f"/work/points/{name}")
        self._shown = set(drawn)
        for name, point in drawn.items():
            self._draw_point("/work/points/" + name, name, point, 0.014 * size(surface))

    def draw_hand(self, X_MG: Pose | None) -> None:
        """Draws the hand."""
        if X_MG is None:
            self._scene.remove_by_name("/work/hand")
            return
        solid = hand_solid()
        self._scene.add_mesh_simple(
            "/work/hand",
            solid.vertices,
            solid.triangles,
            color=HAND,
            opacity=0.55,
            flat_shading=True,
            side="double",
            position=X_MG.translation_m,
            wxyz=X_MG.to_transform().rotation().ToQuaternion().wxyz(),
        )

    def _draw_point(self, path: str, name: str, point: np.ndarray, radius: float) -> None:
        colour = self._colours.get(name, (30, 30, 30))
        x, y, z = (float(value) for value in point)
        self._scene.add_icosphere(path, radius, colour, position=(x, y, z), cast_shadow=False)
        self._scene.add_label(
            f"{path}/name", name, position=(0.0, 0.0, 1.3 * radius), anchor="bottom-center"
        )

    def _draw_mesh(
        self, path: str, solid: Solid, color: tuple[int, int, int]
    ) -> "viser.MeshHandle":
        return self._scene.add_mesh_simple(
            path, solid.vertices, solid.triangles, color=color, flat_shading=True, side="double"
        )

    def _draw_example(self, example: Example) -> None:
        self._draw_mesh("/work/example/mesh", example.surface, EXAMPLE)
        for name, point in example.keypoints.items():
            self._draw_point(f"/work/example/{name}", name, point, 0.014 * size(example.surface))
        low, high = example.surface.bounds()
        x, y = (float(value) for value in (low + high)[:2] / 2)
        self._scene.add_label(
            "/work/example/title",
            f"example: {example.name}",
            position=(x, y, float(low[2])),
            anchor="top-center",
            font_screen_scale=1.2,
        )


def view_of(surface: Solid, example: Example | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns eye and target of a camera, (3,) each, in M, m, that sees surface and example."""
    low, high = surface.bounds()
    if example is not None:
        own_low, own_high = example.beside(surface).surface.bounds()
        low, high = np.minimum(low, own_low), np.maximum(high, own_high)
    distance = np.linalg.norm(high - low) / 2 / np.tan(FIELD_OF_VIEW / 2)
    target = (low + high) / 2
    return target + distance * SEEN_FROM / np.linalg.norm(SEEN_FROM), target
