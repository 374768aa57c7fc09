"""Prepares visual meshes of foreign models for every renderer, at load.

Drake parses any file as a visual mesh. Only when an image is asked for does it fail: at Wavefront
files without normals, at STL, PLY, COLLADA and GLB, at glTF with some images and extensions. It
draws glTF with colours of vertices without labels, and textures other than PNG in a false colour.
Here all that is not a plain Wavefront file is converted into one, in memory, which VTK, Meshcat,
the Blender server and the rays read alike.
"""

import io
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydrake.common import MemoryFile
from pydrake.geometry import Convex, GeometryId, InMemoryMesh, Mesh, SceneGraph, SceneGraphInspector
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import ModelInstanceIndex

from fleet_tools.config.file_access import read_bounded
from fleet_tools.errors import ConfigError
from fleet_tools.sim.model_files import files_named_by
from fleet_tools.sim.model_xml import MAX_MESH_BYTES

if TYPE_CHECKING:
    import trimesh
    from PIL.Image import Image
    from trimesh.visual.material import Material

MAX_COLORS = 64
"""Largest number of colours of a mesh that has one for each vertex or face; others are rounded."""

_FARTHEST_M = 1e9
_PNG = b"\x89PNG\r\n\x1a\n"
_NUMBER = rb"[ \t]+[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d\d?)?"
_CORNER = rb"[ \t]+[1-9]\d*/(?:[1-9]\d*)?/[1-9]\d*"
_NOT_PLAIN = re.compile(
    rb"^(?!(?:(?:v|vn)(?:%(n)s){3}|vt(?:%(n)s){2,3}|f(?:%(c)s){3,}|(?:mtllib|usemtl|o|g|s)\b.*|#.*|)"
    rb"[ \t]*\r?$)." % {b"n": _NUMBER, b"c": _CORNER},
    re.MULTILINE,
)
"""Beginning of a line of a Wavefront file that not all renderers draw."""
_CORNERS = re.compile(rb"(\d+)/(\d*)/(\d+)")
_WORDS = (b"v", b"vt", b"vn")


def complete_visuals(
    plant: MultibodyPlant, scene_graph: SceneGraph, instance: ModelInstanceIndex, file: Path
) -> None:
    """Replaces the visual meshes of a model that not every renderer draws.

    Args:
        plant: Plant that is not finalized yet.
        scene_graph: Its scene graph.
        instance: The model.
        file: Its file.

    Raises:
        FleetToolsError: A mesh or a texture cannot be drawn; the message names it.
    """
    source = plant.get_source_id()
    assert source is not None  # the plant is registered with the scene graph
    inspector = scene_graph.model_inspector()
    for body in plant.GetBodyIndices(instance):
        for visual in plant.GetVisualGeometriesForBody(plant.get_body(body)):
            _check_texture(inspector, visual, file)
            shape = inspector.GetShape(visual)
            if not isinstance(shape, Mesh | Convex) or shape.source().is_in_memory():
                continue
            path = Path(shape.source().path())
            converted = _converted(path, file.parent, path.stat().st_mtime_ns)
            if converted is not None:
                replaced = type(shape)(mesh_data=converted, scale3=shape.scale3())
                scene_graph.ChangeShape(source, visual, replaced)


def _check_texture(inspector: SceneGraphInspector, visual: GeometryId, file: Path) -> None:
    properties = inspector.GetPerceptionProperties(visual)
    if properties is None or not properties.HasProperty("phong", "diffuse_map"):
        return
    texture = Path(properties.GetProperty("phong", "diffuse_map"))
    if not _is_png(texture):
        raise ConfigError(
            f"{file}: the texture {texture.name} of the visual {inspector.GetName(visual)} is not "
            "a PNG image. Drake draws only PNG: convert it."
        )


def _is_png(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(_PNG)) == _PNG


@lru_cache(maxsize=64)  # a model is loaded again with every other partner
def _converted(path: Path, folder: Path, written_ns: int) -> InMemoryMesh | None:
    """Returns a mesh that every renderer draws; None if the file is one."""
    content = read_bounded(path, MAX_MESH_BYTES)
    named = list(files_named_by(path, content, folder))  # none of which is outside of the folder
    for material in [each for each in named if each.suffix.lower() == ".mtl"]:
        named += files_named_by(material, read_bounded(material, MAX_MESH_BYTES), folder)
    images = [each for each in named if each.suffix.lower() not in (".bin", ".mtl")]
    drawn = path.suffix.lower() == ".obj" and _is_plain(content) and all(map(_is_png, images))
    if drawn and not (named and ":" in str(path)):  # there Drake searches two folders for materials
        return None
    from fleet_tools.sim.mesh_reading import read_parts, to_model_frame

    _check_images(path, images)
    parts = [part for part in read_parts(path, materials=True) if len(part.faces)]
    if not parts:
        raise ConfigError(f"{path} holds no triangles, so it would be invisible. Export it again.")
    X = to_model_frame(path)
    for part in parts:
        if part.faces.min() < 0 or part.faces.max() >= len(part.vertices):
            raise ConfigError(
                f"{path} is damaged: a triangle refers to a vertex that does not exist. Export it "
                "again."
            )
        part.apply_transform(X)
        if not (np.abs(part.vertices[part.faces]) < _FARTHEST_M).all():  # or not a number
            raise ConfigError(
                f"{path} cannot be drawn: some of its vertices are not finite. Export it again."
            )
    return _wavefront([piece for part in parts for piece in _pieces(part)])


def _check_images(path: Path, images: list[Path]) -> None:
    """Refuses images that trimesh would leave out without a word."""
    from PIL import Image

    for file in images:
        try:
            with Image.open(file) as image:
                image.load()
        except Exception as error:  # each format has its own errors
            raise ConfigError(
                f"{path} names {file.name}, which cannot be read as an image: {error}. Export it "
                "again, as PNG."
            ) from error


def _is_plain(content: bytes) -> bool:
    """Whether every renderer draws a Wavefront file: polygons with normals, and nothing else."""
    if _NOT_PLAIN.search(content):
        return False
    corners = np.array([[int(k or 0) for k in corner] for corner in _CORNERS.findall(content)])
    counts = [len(re.findall(rb"^%s[ \t]" % word, content, re.MULTILINE)) for word in _WORDS]
    return len(corners) > 0 and bool((corners.max(axis=0) <= counts).all())


class _Look(NamedTuple):
    """How triangles look.

    Attributes:
        color: Red, green, blue and opacity, 0 to 1.
        image: Texture, with which the colour is multiplied.
    """

    color: tuple[float, ...]
    image: "Image | None" = None


class _Piece(NamedTuple):
    """Triangles that look the same.

    Attributes:
        part: The mesh.
        triangles: Indices of triangles of the mesh, (n,).
        look: How they look; None if the model file says it.
        uv: Texture coordinates of the mesh's vertices, (m, 2), if there are any.
    """

    part: "trimesh.Trimesh"
    triangles: np.ndarray
    look: _Look | None = None
    uv: np.ndarray | None = None


def _pieces(part: "trimesh.Trimesh") -> Iterator[_Piece]:
    from trimesh.visual import ColorVisuals, TextureVisuals

    triangles, visual = np.arange(len(part.faces)), part.visual
    if isinstance(visual, TextureVisuals):
        fits = visual.uv is not None and visual.uv.shape == (len(part.vertices), 2)
        yield _Piece(part, triangles, _look(visual.material), visual.uv if fits else None)
    elif isinstance(visual, ColorVisuals) and visual.kind is not None:
        colors = np.asarray(visual.face_colors)[:, :3]
        if len(np.unique(colors, axis=0)) > MAX_COLORS:
            colors = (colors >> 6) * 85
        unique, inverse = np.unique(colors, axis=0, return_inverse=True)
        for k, color in enumerate(unique):
            yield _Piece(part, triangles[inverse.ravel() == k], _Look((*color / 255, 1.0)))
    else:
        yield _Piece(part, triangles)


def _look(material: "Material") -> _Look | None:
    from trimesh.visual.color import DEFAULT_COLOR
    from trimesh.visual.material import PBRMaterial

    if isinstance(material, PBRMaterial):
        factor, image = material.baseColorFactor, material.baseColorTexture
        color = np.full(4, 255) if factor is None else np.array(factor)
        if material.alphaMode != "BLEND":
            color[3] = 255
        return _Look(tuple(color / 255), image)
    color, image = np.array(material.main_color), getattr(material, "image", None)
    if (color == DEFAULT_COLOR).all():  # trimesh's, where the file gives none
        return None if image is None else _Look((1.0,) * 4, image)
    return _Look(tuple(color / 255), image)


def _wavefront(pieces: list[_Piece]) -> InMemoryMesh:
    """Returns a Wavefront file, and beside it the materials and their images."""
    lines, materials, counts = ["mtllib visual.mtl"], [], np.zeros(3, int)
    files: dict[str, MemoryFile | Path] = {}
    pieces = sorted(pieces, key=lambda piece: piece.look is not None)  # others have no `usemtl`
    for k, (part, triangles, look, uv) in enumerate(pieces):
        used, corners = np.unique(part.faces[triangles], return_inverse=True)
        corners = corners.reshape(-1, 3)
        smooth = "vertex_normals" in part._cache  # so trimesh knows that they are the file's
        normals = part.vertex_normals[used] if smooth else part.face_normals[triangles]
        if look is not None:
            *color, opacity = (f"{x:.6g}" for x in look.color)
            lines.append(f"usemtl {k}")
            materials += [f"newmtl {k}", f"Kd {' '.join(color)}", f"d {opacity}"]
            if look.image is not None:
                materials.append(f"map_Kd {k}.png")
                files[f"{k}.png"] = _memory_file(_png(look.image), f"{k}.png")
        columns = {"v": part.vertices[used], "vt": [] if uv is None else uv[used], "vn": normals}
        for word, rows in columns.items():
            lines += [f"{word} " + " ".join(f"{x:.9g}" for x in row) for row in rows]
        of_normals = corners if smooth else np.repeat(np.arange(len(corners))[:, None], 3, axis=1)
        indices = np.stack([corners, corners, of_normals], axis=2) + counts + 1
        counts += [len(rows) for rows in columns.values()]
        corner = "%d//%d" if uv is None else "%d/%d/%d"
        indices = indices[:, :, ::2] if uv is None else indices
        face = f"f {corner} {corner} {corner}"
        lines += [face % tuple(row) for row in indices.reshape(len(corners), -1).tolist()]
    if materials:
        files["visual.mtl"] = _memory_file("\n".join(materials).encode(), "visual.mtl")
    text = "\n".join(lines[0 if materials else 1 :]) + "\n"
    mesh = _memory_file(text.encode(), "visual.obj")
    return InMemoryMesh(mesh_file=mesh, supporting_files=files)


def _memory_file(content: bytes, name: str) -> MemoryFile:
    return MemoryFile(content, Path(name).suffix, name)  # pyright: ignore[reportArgumentType]


def _png(image: "Image") -> bytes:
    encoded = io.BytesIO()
    image.convert("RGBA" if "A" in image.mode else "RGB").save(encoded, "PNG")
    return encoded.getvalue()
