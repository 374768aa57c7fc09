"""The files of a model are those that Drake reads, and no others."""

import shutil
from pathlib import Path

import gymnasium
import pytest
from PIL import Image
from support.processes import ROOT

from fleet_tools.config.file_access import assets_root
from fleet_tools.config.tasks import load_task
from fleet_tools.dataset.carried_models import models_of_all
from fleet_tools.errors import ConfigError
from fleet_tools.sim import model_files as module
from fleet_tools.sim.catalog import find_model, name_of_own
from fleet_tools.sim.model_files import digest_of, model_digest, model_files
from fleet_tools.sim.own_models import own_models

CLAW = assets_root() / "tools" / "hammer" / "claw"
MATERIAL = b"newmtl wood\nmap_Kd -s 1 1 1 textures/wood grain.png\nbump rough.png\n"


@pytest.fixture(name="own")
def _own(tmp_path) -> Path:
    """A copy of the claw hammer, whose handle has a material and textures."""
    own = shutil.copytree(CLAW, tmp_path / "own")
    mesh = own / "meshes" / "handle.obj"
    mesh.write_text("mtllib handle.mtl\n" + mesh.read_text())
    (own / "meshes" / "handle.mtl").write_bytes(MATERIAL.replace(b"-s 1 1 1 ", b""))
    (own / "meshes" / "textures").mkdir()
    for name in ("textures/wood grain.png", "rough.png"):
        Image.new("RGB", (2, 2)).save(own / "meshes" / name)
    return own


def test_every_package_model_consists_of_all_files_of_its_folder():
    for file in assets_root().glob("*/*/*/model.sdf"):
        found = {
            p.relative_to(file.parent).as_posix() for p in file.parent.rglob("*") if p.is_file()
        }
        assert set(model_files(file)) == found


def test_materials_and_their_textures_belong_to_a_model(own):
    added = set(model_files(own / "model.sdf")) - set(model_files(CLAW / "model.sdf"))
    textures = {"meshes/textures/wood grain.png", "meshes/rough.png"}
    assert added == {"meshes/handle.mtl", *textures}


@pytest.mark.parametrize(
    ("mesh", "content", "named"),
    [
        ("x.gltf", rb'{"images": [{"uri": "\u00e9%20\/..\/t.png"}, {"uri": "\x"}]}', "t.png"),
        ("x.gltf", b'{"buffers": [{"uri": "a%20b.bin"}, {"uri": "data:;base64,AA"}]}', "a b.bin"),
        ("x.glb", b'glTF\2\0\0\0{"images": [{"uri": "t.png"}]}\0\xff', "t.png"),
        ("x.dae", b"<image><init_from> t.png </init_from></image>", "t.png"),
        ("x.dae", b"<init_from><ref>textures/a b.png</ref></init_from>", "textures/a b.png"),
        ("x.ply", b"ply\nformat ascii 1.0\r\ncomment TextureFile t.png\r\n", "t.png"),
    ],
)
def test_textures_of_every_format_belong_to_a_model(mesh, content, named, own):
    (own / "\u00e9 ").mkdir()
    (own / "textures").mkdir()
    (own / named).write_bytes(b"0")
    (own / mesh).write_bytes(content)
    text = (own / "model.sdf").read_text().replace("meshes/handle.obj", mesh, 1)
    (own / "model.sdf").write_text(text)
    assert {mesh, named} <= set(model_files(own / "model.sdf"))


def test_what_else_lies_there_does_not_change_the_hash(own):
    before = model_digest(own / "model.sdf")
    (own / "scan.ply").write_bytes(b"a large scan")
    (own / "README.md").write_text("Where it comes from.\n")
    assert digest_of(model_files(own / "model.sdf")) == before


def test_each_of_its_files_changes_the_hash(own):
    hashes = {model_digest(own / "model.sdf")}
    names = list(model_files(own / "model.sdf"))
    for name in names:
        (own / name).write_bytes((own / name).read_bytes() + b"\n")
        hashes.add(model_digest(own / "model.sdf"))
    assert len(hashes) == len(names) + 1


def test_names_and_contents_are_kept_apart():
    assert digest_of({"a": b"bc"}) != digest_of({"ab": b"c"}) != digest_of({"a": b"b", "c": b""})


@pytest.mark.parametrize("name", ["../secret.mtl", "/etc/hostname"])
def test_meshes_name_nothing_outside_of_the_folder(name, own, tmp_path):
    (tmp_path / "secret.mtl").write_text("newmtl secret\n")
    (own / "meshes" / "handle.obj").write_text(
        f"mtllib ../{name}\n" if name[0] == "." else f"mtllib {name}\n"
    )
    with pytest.raises(ConfigError, match="outside the model's folder"):
        model_files(own / "model.sdf")


def test_too_many_or_too_large_files_are_refused(own, monkeypatch):
    monkeypatch.setattr(module, "MAX_FOLDER_BYTES", 5000)
    with pytest.raises(ConfigError, match="too large: at most"):
        model_files(own / "model.sdf")
    monkeypatch.undo()
    monkeypatch.setattr(module, "MAX_FILES", 3)
    with pytest.raises(ConfigError, match="at most 3 are allowed"):
        model_files(own / "model.sdf")


def test_the_name_of_a_model_follows_it_to_another_folder(own, tmp_path):
    name = name_of_own(find_model("tool", "hammer", str(own)))
    moved = own.rename(tmp_path / name)
    assert name_of_own(find_model("tool", "hammer", str(moved))) == name
    other = moved.rename(tmp_path / "my: nice\n tool")
    assert name_of_own(find_model("tool", "hammer", str(other))).startswith("my__nice__tool@")


@pytest.mark.parametrize("folder", ["my tools", "a@b", "50%20", "über & so"])
def test_a_model_may_lie_in_any_folder(folder, own, tmp_path):
    """Drake does not decode %20, so that paths with spaces did not work."""
    moved = own.parent / folder / "own"
    moved.parent.mkdir()
    own.rename(moved)
    env = gymnasium.make("FleetTools/Hammer-v0", tool=str(moved), object="round_nail")
    env.reset(seed=0)


def test_tasks_do_not_share_a_family_with_other_models(tmp_path):
    """Side by side in one folder, each would have the other's models, too."""
    tasks = []
    for name in ("one", "other"):
        folder = shutil.copytree(ROOT / "examples" / "basket", tmp_path / name)
        tasks.append(load_task(str(folder / "task.yaml")))
    assert models_of_all(tasks).keys() == own_models(tasks[0]).keys()  # once each
    labels = next((tmp_path / "other").rglob("tools/**/keypoints.yaml"))
    labels.write_text(labels.read_text() + "# edited\n")
    with pytest.raises(ConfigError, match="the tool family 'hook' with different models"):
        models_of_all(tasks)
    shutil.rmtree(labels.parent)
    with pytest.raises(ConfigError, match="the tool family 'hook' with different models"):
        models_of_all(tasks)
