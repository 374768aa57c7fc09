"""Visual meshes of strangers that cannot be drawn: each is refused at load, with the reason."""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.foreign_shapes import obj_text
from support.mesh_files import (
    SDF,
    URDF,
    loaded,
    model,
    stripes,
    textured,
    wedge,
    write_gltf,
    write_obj,
)

from fleet_tools.assets.__main__ import main
from fleet_tools.errors import ConfigError, FleetToolsError, UnknownNameError


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
    "outside": ("x.obj", outside, "outside the model's folder"),
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
    ("models", NESTED, "", "exactly one model, without nested models.*inner"),
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
