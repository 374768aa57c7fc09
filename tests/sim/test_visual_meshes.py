"""Visual meshes of strangers: each format shows the same mesh, in the same place, in each mode."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import trimesh
from pydrake.geometry import Convex, Mesh, Role, SceneGraph
from support.foreign_shapes import obj_text
from support.mesh_files import (
    SDF,
    URDF,
    loaded,
    model,
    stripes,
    textured,
    upright,
    wedge,
    write_gltf,
    write_obj,
)
from support.rendering import needs_gl
from trimesh.exchange.dae import export_collada
from trimesh.exchange.obj import export_obj
from trimesh.visual import ColorVisuals

from fleet_tools.config.file_access import assets_root
from fleet_tools.perception.camera_view import Pinhole
from fleet_tools.perception.display import look_at
from fleet_tools.perception.rendering import (
    add_renderer,
    render_depth,
    render_rgb,
    render_segmentation,
)
from fleet_tools.perception.visible_links import shape_triangles


def write_dae(folder: Path, mesh: trimesh.Trimesh, up: str = "Z_UP", meters: float = 1.0) -> None:
    pytest.importorskip("collada")
    text = export_collada(mesh).decode().replace("Y_UP", up)
    text = text.replace("<up_axis>", f'<unit name="own" meter="{meters}"/><up_axis>')
    (folder / "x.dae").write_text(text)


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "obj": ("x.obj", lambda f: (f / "x.obj").write_text(obj_text(wedge()))),
    "obj without normals": (
        "x.obj",
        lambda f: (f / "x.obj").write_text(export_obj(wedge(), include_normals=False)),
    ),
    "stl": ("x.stl", lambda f: wedge().export(f / "x.stl")),
    "stl as text": ("x.STL", lambda f: wedge().export(f / "x.STL", file_type="stl_ascii")),
    "ply": ("x.ply", lambda f: wedge().export(f / "x.ply")),
    "off": ("x.off", lambda f: wedge().export(f / "x.off")),
    "glb": ("x.glb", lambda f: write_gltf(f, wedge(), "x.glb")),
    "gltf": ("x.gltf", lambda f: write_gltf(f, wedge())),
    "dae": ("x.dae", lambda f: write_dae(f, wedge())),
    "dae, y up": ("x.dae", lambda f: write_dae(f, upright(wedge()).apply_scale(8), "Y_UP", 0.125)),
}
"""Name and writer of the same mesh in each format."""


def visual_shapes(scene_graph: SceneGraph) -> list:
    inspector = scene_graph.model_inspector()
    found = inspector.GetAllGeometryIds(Role.kPerception)
    return [inspector.GetShape(geometry) for geometry in found]


def pictures(folder: Path) -> dict[str, np.ndarray]:
    """Renders a model from two sides: colour, depth and label."""
    builder, scene_graph = loaded(folder)
    add_renderer(scene_graph)
    diagram = builder.Build()
    context = scene_graph.GetMyContextFromRoot(diagram.CreateDefaultContext())
    query = scene_graph.get_query_output_port().Eval(context)
    views = [look_at(eye, (0.0, 0.0, 0.0)) for eye in ((0.3, -0.3, 0.2), (-0.2, 0.3, -0.3))]
    pinhole = Pinhole.from_field_of_view(160, 120, 50.0)
    images = {
        "rgb": [render_rgb(query, pinhole, X) for X in views],
        "depth": [render_depth(query, pinhole, X, (0.05, 2.0)) for X in views],
        "label": [render_segmentation(query, pinhole, X) for X in views],
    }
    return {name: np.array(each) for name, each in images.items()}


def outline(folder: Path) -> np.ndarray:
    """Returns the sorted corners of the triangles that rays hit."""
    (shape,) = visual_shapes(loaded(folder)[1])
    return np.unique(np.round(shape_triangles(shape).reshape(-1, 3), 9), axis=0)


@pytest.fixture(name="reference", scope="module")
def _reference(tmp_path_factory) -> Path:
    folder = model(tmp_path_factory.mktemp("reference"))
    WRITERS["obj"][1](folder)
    return folder


@needs_gl
@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # of pycollada
@pytest.mark.parametrize("text", [SDF, URDF], ids=["sdf", "urdf"])
@pytest.mark.parametrize("name", WRITERS)
def test_each_format_shows_the_same_mesh_in_the_same_place(name, text, reference, tmp_path):
    uri, write = WRITERS[name]
    folder = model(tmp_path / "own", uri, text)
    write(folder)
    expected, found = pictures(reference), pictures(folder)
    assert 2000 < np.count_nonzero(expected["label"]) < 30_000
    for each in ("label", "depth") if "dae" in name else expected:  # which has a colour of its own
        np.testing.assert_array_equal(found[each], expected[each], err_msg=each)
    np.testing.assert_array_equal(outline(folder), outline(reference))


TEXTURED = [
    *(("x.obj", image, "own") for image in ("t.jpg", "t.bmp", "t.webp", "no normals")),
    ("x.glb", "", "own"),
    ("x.gltf", "", "own"),
    # Drake takes a folder with a colon for two, in which it searches for materials.
    *(
        (uri, "t.png", name)
        for uri in ("x.obj", "x.gltf")
        for name in ("a:b", "R&D é #1 [{}]\t", "a\\b")
    ),
]


@needs_gl
@pytest.mark.parametrize(("uri", "image", "name"), TEXTURED)
def test_textures_are_drawn_whatever_their_format_and_folder(uri, image, name, tmp_path):
    reference, folder = model(tmp_path / "reference"), model(tmp_path / name, uri)
    write_obj(reference, textured(stripes()), "t.png")
    if uri != "x.obj":
        write_gltf(folder, textured(stripes(), baseColorFactor=[255] * 4), uri)
    elif image == "no normals":
        write_obj(folder, textured(stripes()), "t.png", normals=False)
    else:
        write_obj(folder, textured(stripes()), image)
    expected, found = pictures(reference)["rgb"].astype(int), pictures(folder)["rgb"].astype(int)
    assert len(np.unique(expected.reshape(-1, 3), axis=0)) > 20
    assert np.abs(found - expected).mean() < 0.2  # of 255; two of the formats lose a little


@needs_gl
@pytest.mark.parametrize("uri", ["x.ply", "x.glb"])
def test_colours_of_vertices_are_drawn_and_labelled(uri, reference, tmp_path):
    mesh = wedge()
    mesh.visual = ColorVisuals(mesh, vertex_colors=[[250, 0, 0, 255]] * len(mesh.vertices))
    folder = model(tmp_path / "own", uri)
    write_gltf(folder, mesh, uri) if uri == "x.glb" else mesh.export(folder / uri)
    found = pictures(folder)
    np.testing.assert_array_equal(found["label"], pictures(reference)["label"])
    red, green, blue = found["rgb"][found["label"] > 0].mean(axis=0)
    assert red > 60
    assert red > 5 * green
    assert red > 5 * blue


def test_many_colours_are_rounded(tmp_path):
    mesh = trimesh.creation.icosphere(4, 0.1)
    colors = np.random.default_rng(0).integers(0, 256, (len(mesh.vertices), 4))
    mesh.visual = ColorVisuals(mesh, vertex_colors=colors.astype(np.uint8))
    folder = model(tmp_path / "own", "x.ply")
    mesh.export(folder / "x.ply")
    (shape,) = visual_shapes(loaded(folder)[1])
    files = shape.source().in_memory().supporting_files
    assert files["visual.mtl"].contents().count(b"newmtl") <= 64
    assert len(shape_triangles(shape)) == len(mesh.faces)


@needs_gl
def test_a_diffuse_map_is_named_relative_to_the_model(tmp_path):
    plain, mapped = model(tmp_path / "plain"), model(tmp_path / "mapped é & #1")
    for folder in (plain, mapped):
        write_obj(folder, textured(stripes()), "t.png")
        (folder / "x.mtl").unlink()
    material = "<material><drake:diffuse_map> t.png </drake:diffuse_map></material>"
    model(mapped, material=material)
    write_obj(plain, textured(stripes()), "t.png")
    np.testing.assert_array_equal(pictures(mapped)["rgb"], pictures(plain)["rgb"])


@pytest.mark.parametrize(
    ("uri", "file", "text"),
    [
        ("model://other/x.stl", "x.stl", SDF),
        ("package://some_name/x.stl", "x.stl", URDF),
        ("file://{}/a%20b.stl", "a b.stl", SDF),
        *(("a &quot;b&apos; &amp;c.stl", "a \"b' &c.stl", text) for text in (SDF, URDF)),
    ],
)
def test_a_model_is_a_package_on_its_own_whatever_its_name(uri, file, text, tmp_path):
    folder = model(tmp_path / "own", uri.format(tmp_path / "own"), text)
    wedge().export(folder / file)
    assert len(outline(folder)) == len(wedge().vertices) == 6
    if "file" not in uri:
        assert len(outline(folder.rename(tmp_path / "own@0123456789abcdef"))) == 6


def test_what_every_renderer_draws_is_not_converted(tmp_path):
    for file in sorted(assets_root().glob("*/*/*/model.sdf")):
        _, scene_graph = loaded(file.parent, "tool" if "tools" in file.parts else "object")
        shapes = [each for each in visual_shapes(scene_graph) if isinstance(each, Mesh)]
        assert all(shape.source().is_path() for shape in shapes)
    write_obj(model(tmp_path / "own"), textured(stripes()), "t.png")
    (shape,) = visual_shapes(loaded(tmp_path / "own")[1])
    assert shape.source().is_path()


def test_a_visual_that_is_declared_convex_is_the_hull(tmp_path):
    two = [trimesh.creation.box((0.1,) * 3).apply_translation((x, 0, 0)) for x in (0, 0.5)]
    text = SDF.replace("<scale>", "<drake:declare_convex/><scale>")
    folder = model(tmp_path / "own", "x.stl", text)
    trimesh.util.concatenate(two).export(folder / "x.stl")
    (shape,) = visual_shapes(loaded(folder)[1])
    assert isinstance(shape, Convex)
    hull = trimesh.Trimesh(**trimesh.triangles.to_kwargs(shape_triangles(shape)))
    np.testing.assert_allclose(abs(hull.volume), 2 * 0.6 * 0.1 * 0.1)


def test_an_edited_mesh_is_read_again(tmp_path):
    folder = model(tmp_path / "own", "x.stl")
    wedge().export(folder / "x.stl")
    before = outline(folder)
    wedge().apply_scale(2).export(folder / "x.stl")
    np.testing.assert_allclose(np.ptp(outline(folder), axis=0), 2 * np.ptp(before, axis=0))
