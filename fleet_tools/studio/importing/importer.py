"""Imports a mesh as a model: all steps in their order."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.model_description import (
    KeypointDescription,
    LinkDescription,
    ModelDescription,
    PartDescription,
    Position,
    as_position,
)
from fleet_tools.assets.model_folder import model_files
from fleet_tools.assets.solids import MassProperties, Solid, distances_to_triangles, joined
from fleet_tools.config.geometry import Pose
from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import Kind, UpAxis
from fleet_tools.sim.mesh_reading import rotation_to_z
from fleet_tools.studio.importing.collision_geometry import (
    collision_geometry,
    contact_error,
    distance_outside,
)
from fleet_tools.studio.importing.enclosed_body import (
    EnclosedBody,
    convex_hull,
    enclosed_body,
    volume,
)
from fleet_tools.studio.importing.mesh_file import (
    RawMesh,
    check_size,
    choose_scale,
    size_warnings,
)
from fleet_tools.studio.importing.repair import (
    cleaned,
    repaired_shells,
    simplified,
    without_degenerate_triangles,
)
from fleet_tools.studio.importing.settings import ImportSettings, Origin, ScaleSettings
from fleet_tools.utils.progress import Tell, silent

SIGNATURE = "# written by the importer: python -m fleet_tools.assets import"
"""Beginning of the files of an imported model."""

MAX_VISUAL_TRIANGLES = 2000
"""Number of triangles to which visual geometry is simplified; cameras render it in each step."""

NEAR_SURFACE = 0.01
"""Distance from the surface or, in a gap, from the hull, m, within which keypoints are expected."""

MAX_DENSITY = 23000.0
"""Density of osmium, the densest metal, kg/m^3, rounded up."""


@dataclass(frozen=True)
class ImportedModel:
    """A model, and the findings, changes and guesses of its import.

    Attributes:
        model: The model.
        scale: Metres per unit of the file.
        extents: Sides of the bounding box, m.
        inertial: Mass properties in the model frame.
        density: Density of the solid, kg/m^3.
        excess: Largest distance of the collision geometry from the convex pieces it encloses, m.
        deviations: Distance of the collision geometry from the mesh near each keypoint, m.
        notes: Repairs and guesses.
        warnings: Doubtful points that the user should check.
    """

    model: ModelDescription
    scale: float
    extents: Position
    inertial: MassProperties
    density: float
    excess: float
    deviations: dict[str, float]
    notes: list[str]
    warnings: list[str]


@dataclass(frozen=True, eq=False)
class Placement:
    """Where a mesh lies in the model frame: x -> matrix @ x - origin.

    Attributes:
        matrix: Rotation and scale, (3, 3).
        origin: Origin of the model frame after that, (3,), m.
    """

    matrix: np.ndarray
    origin: np.ndarray

    def vertices(self, positions: np.ndarray) -> np.ndarray:
        """Returns positions of the mesh, (n, 3), in the model frame, m."""
        return positions @ self.matrix.T - self.origin

    def point(self, position: Position) -> np.ndarray:
        """Returns a position of the mesh in the model frame, (3,), m."""
        return self.matrix @ np.array(position) - self.origin

    def inverse(self, p_M: np.ndarray) -> np.ndarray:
        """Returns a position in the model frame, (3,), m, in unit and axes of the mesh."""
        return np.linalg.solve(self.matrix, p_M + self.origin)


@dataclass(frozen=True, eq=False)
class PlacedMesh:
    """A mesh that is cleaned, and in the model frame.

    Attributes:
        surface: The mesh in the model frame, m.
        placement: Where it lies there.
        scale: Metres per unit of the file.
        notes: Repairs and guesses.
        doubt: What the user should check about the scale, if anything.
    """

    surface: Solid
    placement: Placement
    scale: float
    notes: tuple[str, ...]
    doubt: str

    @property
    def length(self) -> float:
        """Longest side of the bounding box, m."""
        return float(np.ptp(self.surface.vertices, axis=0).max())


def import_mesh(mesh: RawMesh, settings: ImportSettings, tell: Tell = silent) -> ImportedModel:
    """Makes a model of a mesh; the same arguments give the same model.

    Raises:
        ConfigError: The mesh cannot be repaired, scaled or given its mass; the message names the
            remedy.
        MissingLibraryError: A library is absent that it needs.
        NativeLibraryError: A library failed, and there is nothing to do without it.
    """
    tell(f"repairing {len(mesh.triangles)} triangles")
    placed = place_mesh(
        mesh, settings.kind, settings.family, settings.scale, settings.up, settings.origin
    )
    try:
        return _import_placed(placed, settings, tell)
    except ConfigError as error:
        doubts = size_warnings(settings.kind, settings.family, placed.length, placed.scale)
        if not doubts:
            raise
        raise ConfigError(f"{error} The likely cause is its size: {doubts[0]}.") from error


def _import_placed(placed: PlacedMesh, settings: ImportSettings, tell: Tell) -> ImportedModel:
    notes = list(placed.notes)
    extents = np.ptp(placed.surface.vertices, axis=0)
    shells, repairs = repaired_shells(placed.surface)
    notes += repairs
    body, changes = enclosed_body(shells)
    notes += changes
    inertial, density = _mass_properties(body, settings)
    keypoints, grasp = _labels(settings, placed.placement)
    tell("simplifying the visual geometry")
    visual = without_degenerate_triangles(joined(*body.outer))
    visual = simplified(visual, MAX_VISUAL_TRIANGLES)
    collision = collision_geometry(body, keypoints, settings.geometry, tell)
    notes += collision.notes
    part = PartDescription(
        settings.name, visual, settings.material, collision.solids, collision_digits=17
    )
    model = ModelDescription(
        kind=settings.kind,
        family=settings.family,
        name=settings.name,
        links=(LinkDescription(settings.name, (part,), inertial=inertial),),
        keypoints={
            name: KeypointDescription(settings.name, position)
            for name, position in keypoints.items()
        },
        grasp=grasp,
        signature=SIGNATURE,
    )
    tell("making contact surfaces, as the simulator does")
    contact_checked(model)
    doubtful = ("not watertight", "no inside", "not seen", "not united", "is coarser")
    warnings = [note for note in notes if any(words in note for words in doubtful)]
    warnings += [placed.doubt] if placed.doubt else []
    warnings += size_warnings(
        settings.kind, settings.family, placed.length, placed.scale, inertial.mass
    )
    warnings += plausibility_warnings(body, keypoints, inertial.mass, density, settings)
    warnings += deviation_warnings(collision.deviations, settings)
    warnings += grasp_warnings(model)
    return ImportedModel(
        model,
        placed.scale,
        as_position(extents),
        inertial,
        density,
        collision.excess,
        collision.deviations,
        [note for note in notes if note not in warnings],
        warnings,
    )


def contact_checked(model: ModelDescription) -> ModelDescription:
    """Returns a model, of whose collision geometry Drake can make contact surfaces.

    Raises:
        ConfigError: It cannot.
    """
    if error := contact_error(model_files(model)):
        raise ConfigError(
            f"Drake cannot make a contact surface of the mesh: {error} Try --pieces 1, a larger "
            "--tolerance, or --rigid."
        )
    return model


def place_mesh(
    mesh: RawMesh, kind: Kind, family: str, scale: ScaleSettings, up: UpAxis, origin: Origin
) -> PlacedMesh:
    """Cleans a mesh, and takes it to the model frame.

    Raises:
        ConfigError: No triangle is usable, or the mesh cannot be scaled.
    """
    surface, repairs = cleaned(mesh.vertices, mesh.triangles)
    longest = float(np.ptp(surface.vertices, axis=0).max())
    chosen = choose_scale(scale, longest, mesh.unit, kind, family)
    matrix = chosen.factor * rotation_to_z(up)
    vertices = surface.vertices @ matrix.T
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    match origin:
        case "base":
            p_M = np.array([*(low + high)[:2] / 2, low[2]])
        case "centre":
            p_M = (low + high) / 2
        case "keep":
            p_M = np.zeros(3)
    placement = Placement(matrix, p_M)
    check_size(kind, family, longest * chosen.factor, chosen.factor)
    surface = Solid(placement.vertices(surface.vertices), surface.triangles)
    notes = (*mesh.notes, *repairs, chosen.note)
    return PlacedMesh(surface, placement, chosen.factor, notes, chosen.doubt)


def _mass_properties(body: EnclosedBody, settings: ImportSettings) -> tuple[MassProperties, float]:
    """Returns mass properties and density.

    Raises:
        ConfigError: No body can have them.
    """
    enclosed = volume(body.surface())
    density = settings.material.density if settings.mass is None else settings.mass / enclosed
    if density > MAX_DENSITY:
        raise ConfigError(
            f"{settings.mass or density * enclosed:g} kg in {enclosed * 1e6:.3g} cm^3 would be "
            f"{density:.3g} kg/m^3, more than any metal. Correct --mass, in kg, or --density, in "
            "kg/m^3."
        )
    inertial = body.mass_properties(density)
    moments = np.linalg.eigvalsh(inertial.inertia)
    if not (moments[0] > 0 and moments[2] <= (moments[0] + moments[1]) * (1 + 1e-9)):
        raise ConfigError(
            f"The mesh has impossible moments of inertia, {moments} kg m^2; it probably intersects "
            "itself. Make it one closed surface, for instance with Blender's Remesh modifier."
        )
    return inertial, density


def _labels(
    settings: ImportSettings, placement: Placement
) -> tuple[Mapping[str, Position], Pose | None]:
    """Returns keypoints and grasp in the model frame."""
    labels = settings.labels
    if labels.points_in == "model":
        placement = Placement(np.eye(3), np.zeros(3))
    keypoints = {
        name: as_position(np.round(placement.point(position), 9))
        for name, position in labels.keypoints.items()
    }
    if labels.grasp is None:
        return keypoints, None
    translation = as_position(placement.point(labels.grasp.translation_m))
    return keypoints, Pose(translation_m=translation, rpy_deg=labels.grasp.rpy_deg)


def plausibility_warnings(
    body: EnclosedBody,
    keypoints: Mapping[str, Position],
    mass: float,
    density: float,
    settings: ImportSettings,
) -> list[str]:
    """Returns warnings about a body and its keypoints in the model frame, its mass and density."""
    warnings = []
    corners = np.concatenate([solid.vertices[solid.triangles] for solid in body.outer])
    low, high = corners.min(axis=(0, 1)), corners.max(axis=(0, 1))
    hull = convex_hull(corners.reshape(-1, 3))
    for name, position in keypoints.items():
        point = np.array(position)
        distance = float(distances_to_triangles(point, corners).min())
        # A point in a gap, such as the middle of a jaw, is far from the surface, and in the hull.
        in_gap = hull is not None and distance_outside(point[None], [hull]) < NEAR_SURFACE
        if distance > NEAR_SURFACE and not in_gap:
            warnings.append(
                f"the keypoint {name} is {distance:.3g} m from the surface, which lies within "
                f"{_text(low)} and {_text(high)}; points in the file's own unit and axes are "
                "given with --points-in mesh"
            )
    if settings.mass is not None and density < 20:
        warnings.append(f"{density:.3g} kg/m^3 is lighter than foam: is --mass in kg?")
    if settings.kind == "tool" and mass > 2.5:
        warnings.append(f"{mass:.3g} kg is close to the arm's payload of 3 kg or beyond")
    if settings.kind == "tool" and settings.labels.grasp is None:
        distance = float(distances_to_triangles(np.zeros(3), corners).min())
        if distance > 0.03 or (low > 0).any() or (high < 0).any():
            warnings.append(
                f"without --grasp the hand holds the model's origin, which is {distance:.3g} m "
                "from the surface; set the point of the grasp with --grasp X,Y,Z"
            )
    return warnings


def grasp_warnings(model: ModelDescription) -> list[str]:
    """Checks that the hand holds a tool where and as its family is used; others are not checked."""
    from fleet_tools.assets.model_geometry import ConvexPiece, LinkGeometry, ModelGeometry
    from fleet_tools.assets.rules import measure_all
    from fleet_tools.studio.checking.general_rules import grasp_rules

    if model.kind != "tool":
        return []
    (link,) = model.links
    body = link.mass_properties()
    pieces = tuple(ConvexPiece(s.vertices) for part in link.parts for s in part.collision)
    geometry = ModelGeometry(
        kind=model.kind,
        family=model.family,
        links={link.name: LinkGeometry(pieces, body.mass, body.centre, np.zeros(3))},
        keypoint_links={name: point.link for name, point in model.keypoints.items()},
        p_M={name: np.array(point.position) for name, point in model.keypoints.items()},
        X_MG=(model.grasp or Pose()).to_transform(),
    )
    measured = measure_all(grasp_rules(model.family), geometry)
    return [
        f"{each.text}; {each.rule.reason}. {each.rule.remedy}".removesuffix(".")
        for each in measured
        if not each.holds and not each.lacks_keypoint
    ]


def deviation_warnings(deviations: Mapping[str, float], settings: ImportSettings) -> list[str]:
    """Checks that the collision geometry has the shape of the mesh near the keypoints."""
    far = {name: x for name, x in deviations.items() if x > 4 * settings.geometry.fidelity}
    if not far:
        return []
    listed = ", ".join(f"{name} ({x * 1000:.2g} mm)" for name, x in far.items())
    return [
        f"the collision geometry deviates from the mesh near the keypoint(s) {listed}; model its "
        "parts as convex bodies that overlap, or try more --pieces or a smaller --concavity"
    ]


def _text(position: np.ndarray) -> str:
    return "(" + ", ".join(f"{x:.3g}" for x in position) + ")"
