"""Visual meshes of strangers: each format shows the same mesh, in the same place, in each mode."""

import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh
from PIL import Image
from pydrake.geometry import Convex, Mesh, Role, SceneGraph
from pydrake.multibody.plant import AddMultibodyPlant, MultibodyPlantConfig
from pydrake.systems.framework import DiagramBuilder
from support.foreign_shapes import obj_text
from support.rendering import needs_gl
from trimesh.exchange.dae import export_collada
from trimesh.exchange.gltf import export_gltf
from trimesh.exchange.obj import export_obj
from trimesh.visual import ColorVisuals, TextureVisuals
from trimesh.visual.material import PBRMaterial

from fleet_tools.assets.__main__ import main
from fleet_tools.config.file_access import assets_root
from fleet_tools.errors import ConfigError, FleetToolsError, UnknownNameError
from fleet_tools.perception.camera_view import Pinhole
from fleet_tools.perception.display import look_at
from fleet_tools.perception.rendering import (
    add_renderer,
    render_depth,
    render_rgb,
    render_segmentation,
)
from fleet_tools.perception.visible_links import shape_triangles
from fleet_tools.sim.add_models import add_model
from fleet_tools.sim.catalog import Kind, load_model
from fleet_tools.sim.scene import sample_scene

CLAW = assets_root() / "tools" / "hammer" / "claw"
SDF = """<sdf version="1.9" xmlns:drake="https://drake.mit.edu"><model name="m"><link name="bar">
<inertial><mass>1</mass><inertia><ixx>1</ixx><iyy>1</iyy><izz>1</izz></inertia></inertial>
<visual name="v"><pose>0 0 0 0 0 0.5</pose><geometry><mesh><uri>{uri}</uri><scale>2 1 -1</scale>
</mesh></geometry>{material}</visual>{more}</link>{models}</model></sdf>"""
URDF = """<robot name="m"><link name="bar"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
<visual><origin rpy="0 0 0.5"/><geometry><mesh filename='{uri}' scale="2 1 -1"/></geometry>
<material name="paint"><color rgba="0.2 0.4 0.9 1"/></material></visual></link></robot>"""
BLUE = "<material><diffuse>0.2 0.4 0.9 1</diffuse></material>"
LABELS = "family: hammer\nkind: tool\nkeypoints: {head: {link: bar, position: [0, 0, 0]}}\n"


def wedge() -> trimesh.Trimesh:
    """Returns a mesh without any symmetry, whose coordinates have few bits."""
    corners = [(0, 0, 0), (1, 0, 0), (0, 2, 0), (0, 0, 3), (1, 0, 1), (1, 2, 0)]
    return trimesh.Trimesh(np.array(corners) / 16 - 1 / 32).convex_hull


def uv(mesh: trimesh.Trimesh) -> np.ndarray:
    return mesh.vertices[:, [0, 2]] * 4


def textured(image: Image.Image | None = None, **material) -> trimesh.Trimesh:
    """Returns the wedge with a texture, or with a colour."""
    mesh = wedge()
    mesh.unmerge_vertices()
    look = PBRMaterial(baseColorTexture=image, **material)
    mesh.visual = TextureVisuals(uv=uv(mesh), material=look)
    return mesh


def stripes() -> Image.Image:
    """Returns a picture of which neither axis may be exchanged or reversed."""
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[:8], pixels[8:20, :16], pixels[20:, 8:] = (250, 30, 30), (30, 250, 30), (30, 30, 250)
    return Image.fromarray(pixels)


def upright(mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    """Returns a mesh in axes in which y is up."""
    turned = mesh.copy()
    turned.apply_transform(np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1]]))
    return turned


def write_gltf(folder: Path, mesh: trimesh.Trimesh, uri: str = "x.gltf") -> None:
    """Writes a glTF file, with its buffers beside it or, as x.glb, within it."""
    scene = trimesh.Scene(upright(mesh))
    if uri == "x.glb":
        scene.export(folder / uri)
    else:
        for name, content in export_gltf(scene).items():
            (folder / (uri if name == "model.gltf" else name)).write_bytes(content)


def write_obj(folder: Path, mesh: trimesh.Trimesh, image: str, *, normals: bool = True) -> None:
    """Writes a Wavefront file with a texture in a format."""
    lines = ["mtllib x.mtl", "usemtl look", *(f"v {x} {y} {z}" for x, y, z in mesh.vertices)]
    lines += [f"vt {u} {v}" for u, v in uv(mesh)]
    lines += [f"vn {x} {y} {z}" for x, y, z in mesh.face_normals] if normals else []
    for k, face in enumerate(mesh.faces + 1):
        lines.append("f " + " ".join(f"{i}/{i}" + f"/{k + 1}" * normals for i in face))
    (folder / "x.obj").write_text("\n".join(lines) + "\n")
    (folder / "x.mtl").write_text(f"newmtl look\nKd 1 1 1\nmap_Kd {image}\n")
    stripes().save(folder / image)


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


def model(folder: Path, uri: str = "x.obj", text: str = SDF, **parts: str) -> Path:
    """Writes a model with a visual mesh, and returns its folder."""
    folder.mkdir(exist_ok=True)
    parts = {"material": BLUE, "more": "", "models": ""} | parts
    suffix = "urdf" if text is URDF else "sdf"
    (folder / f"model.{suffix}").write_text(text.format(uri=uri, **parts))
    (folder / "keypoints.yaml").write_text(LABELS)
    return folder


def loaded(folder: Path, kind: Kind = "tool") -> tuple[DiagramBuilder, SceneGraph]:
    """Loads a model as a world does."""
    builder = DiagramBuilder()
    plant, scene_graph = AddMultibodyPlant(MultibodyPlantConfig(time_step=0.004), builder)
    add_model(plant, scene_graph, load_model(folder, kind), kind)
    plant.Finalize()
    return builder, scene_graph


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


# --- What is drawn --------------------------------------------------------------------------


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


@pytest.mark.slow  # as a renderer shows it: test_each_format_shows_the_same_mesh_in_the_same_place
@needs_gl
@pytest.mark.parametrize("uri", ["x.stl", "x.glb"])
def test_every_mode_of_observation_shows_it(uri, tmp_path, make):
    tool = shutil.copytree(CLAW, tmp_path / "own")
    text = (tool / "model.sdf").read_text()
    handle = trimesh.load(tool / "meshes" / "handle.obj", force="mesh")
    assert isinstance(handle, trimesh.Trimesh)
    write_gltf(tool, handle, uri) if uri == "x.glb" else handle.export(tool / uri)
    (tool / "model.sdf").write_text(text.replace("meshes/handle.obj", uri, 1))
    modes: tuple[dict[str, Any], ...] = (
        {"obs_mode": "state", "render_mode": "human"},
        {"obs_mode": "point_cloud"},
        {"obs_mode": "point_cloud", "cloud_source": "vtk"},
        {"obs_mode": "rgbd", "render_mode": "rgb_array"},
    )
    for kwargs in modes:
        env = make(object="round_nail", **kwargs)
        seen = []
        for each in (str(tool), "claw"):
            scene = sample_scene(env.task, 0, tool="claw", object="round_nail")
            scene = scene.model_copy(update={"tool": each})
            seen.append(env.reset(options={"scene": scene})[0])
            env.render()
        own, claw = seen
        for name in own:
            if "segmentation" in name:
                np.testing.assert_array_equal(own[name], claw[name])
            elif "rgb" not in name:  # without the normals of the package's mesh
                np.testing.assert_allclose(own[name], claw[name], atol=1e-5, err_msg=name)


# --- What cannot be drawn -------------------------------------------------------------------


def with_image(folder: Path, name: str, content: bytes, **texture: object) -> None:
    """Writes a glTF file whose texture is another image."""
    write_gltf(folder, textured(stripes()))
    document = json.loads((folder / "x.gltf").read_text()) | {"images": [{"uri": name}]}
    document["textures"] = [texture] if texture else document["textures"]
    (folder / "x.gltf").write_text(json.dumps(document))
    (folder / name).write_bytes(content)


def broken_image(folder: Path) -> None:
    buffer = io.BytesIO()
    stripes().save(buffer, "PNG")
    with_image(folder, "t.png", buffer.getvalue()[:60])


def ktx_image(folder: Path) -> None:
    ktx2 = b"\xabKTX 20\xbb\r\n\x1a\n" + bytes(60)
    with_image(folder, "t.ktx2", ktx2, extensions={"KHR_texture_basisu": {"source": 0}})


def broken_jpeg(folder: Path) -> None:
    write_obj(folder, textured(stripes()), "t.jpg")
    (folder / "t.jpg").write_bytes((folder / "t.jpg").read_bytes()[:400])


def without_buffer(folder: Path) -> None:
    write_gltf(folder, wedge())
    for file in folder.glob("*.bin"):
        file.unlink()


def outside(folder: Path) -> None:
    (folder.parent / "secret.mtl").write_text("newmtl secret\n")
    (folder / "x.obj").write_text("mtllib ../secret.mtl\n" + obj_text(wedge()))


TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nvn 0 0 1\n"
UNDRAWN: dict[str, tuple[str, Callable[[Path], object] | str | bytes, str]] = {
    "vtk": ("x.vtk", "# vtk DataFile Version 3.0", r"Unknown mesh format: 'vtk'.*x\.vtk"),
    "step": ("x.step", "ISO-10303-21;", r"Unknown mesh format: 'step'"),
    "no name": ("x", "", r"Unknown mesh format: ''"),
    "empty": ("x.obj", "", r"x\.obj"),
    "points": ("x.obj", TETRAHEDRON, r"x\.obj holds no triangles"),
    "points of ply": ("x.ply", "ply\nformat ascii 1.0\nelement vertex 0\nend_header\n", r"x\.ply"),
    "vertex": ("x.obj", TETRAHEDRON + "f 1//1 2//1 9//1\n", r"x\.obj"),
    "nan": ("x.obj", TETRAHEDRON + "v nan 0 0\nf 1//1 2//1 5//1\n", r"x\.obj .*finite"),
    "infinite": ("x.obj", TETRAHEDRON + "v 1e999 0 0\nf 1//1 2//1 5//1\n", r"x\.obj .*finite"),
    "long": ("x.obj", TETRAHEDRON + "v" + (" " + "1" * 300_000) * 3 + "x\n", r"x\.obj"),
    "stl": ("x.stl", b"\1" * 200, r"x\.stl"),
    "glb": ("x.glb", b"glTF\2\0\0\0\xff\xff\xff\x7f", r"x\.glb cannot be read as GLB"),
    "gltf": ("x.gltf", "{}", r"x\.gltf"),
    "deep": ("x.gltf", "[" * 100_000, r"x\.gltf cannot be read as GLTF"),
    "buffer": ("x.gltf", without_buffer, r"x\.gltf cannot be read as GLTF"),
    "image": ("x.gltf", broken_image, r"x\.gltf names t\.png, which cannot be read as an image"),
    "jpeg": ("x.obj", broken_jpeg, r"x\.obj names t\.jpg, which cannot be read as an image"),
    "ktx": ("x.gltf", ktx_image, r"x\.gltf names t\.ktx2, which cannot be read as an image"),
    "outside": ("x.obj", outside, "outside of the model's folder"),
}


@pytest.mark.parametrize("text", [SDF, URDF], ids=["sdf", "urdf"])
@pytest.mark.parametrize("name", UNDRAWN)
def test_what_cannot_be_drawn_is_refused_at_load(name, text, tmp_path):
    uri, content, message = UNDRAWN[name]
    folder = model(tmp_path / "own", uri, text)
    if callable(content):
        content(folder)
    else:
        (folder / uri).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        loaded(folder)


def test_collada_asks_for_its_library(tmp_path, monkeypatch):
    folder = model(tmp_path / "own", "x.dae")
    (folder / "x.dae").write_text("<COLLADA/>")
    monkeypatch.setitem(sys.modules, "collada", None)
    with pytest.raises(FleetToolsError, match=r"collada is needed to read .*x\.dae.*export.*GLB"):
        loaded(folder)


def test_the_check_says_what_the_load_says(tmp_path, capsys):
    folder = model(tmp_path / "own", "x.vtk")
    (folder / "x.vtk").write_text("# vtk DataFile Version 3.0\n")
    assert main(["check", str(folder), "--scenes", "0"]) == 1
    with pytest.raises(UnknownNameError) as caught:
        loaded(folder)
    assert str(caught.value) in capsys.readouterr().out


MAP = "<material><drake:diffuse_map>{}</drake:diffuse_map></material>"
SHAPE = "<collision name='c'><geometry><mesh><uri>{}</uri></mesh></geometry></collision>"
NESTED = '<model name="inner"><link name="l"/></model>'
REFUSED = [
    *(("material", MAP, f"t.{each}", "the texture {} of the visual .*v is not a PNG")
      for each in ("jpg", "bmp")),
    *(("more", SHAPE, f"c.{each}", r"the collision 'c' has the mesh '{}'.*\.vtk")
      for each in ("stl", "dae", "GLB", "ply")),
    ("models", NESTED, "", "one model, without others within it.*inner"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "xml", "file", "message"), REFUSED)
def test_other_formats_and_models_within_a_model_are_refused_by_name(
    part, xml, file, message, tmp_path
):
    folder = model(tmp_path / "own", **{part: xml.format(file)})
    (folder / "x.obj").write_text(obj_text(wedge()))
    if part == "material":
        stripes().save(folder / file)
    elif part == "more":
        (folder / file).write_text("")
    with pytest.raises(ConfigError, match=message.format(re.escape(file))):
        loaded(folder)
