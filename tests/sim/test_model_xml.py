"""Models of strangers: their XML is checked before Drake sees it."""

import os
import shutil
import time
from pathlib import Path

import pytest
from support.foreign_models import foreign_tools

from fleet_tools.config.file_access import assets_root
from fleet_tools.errors import ConfigError
from fleet_tools.sim.model_xml import MAX_BYTES, MAX_MESH_BYTES, check_masses, read_model_xml
from fleet_tools.studio.checking.program import first_load_problem

OWN = sorted(assets_root().glob("*/*/*/model.sdf"))
CLAW = assets_root() / "tools" / "hammer" / "claw"
INERTIA = """<inertial><mass>1</mass>
<inertia><ixx>1</ixx><iyy>1</iyy><izz>1</izz></inertia></inertial>"""
BALL = """<collision name='c'>
<geometry><sphere><radius>0.1</radius></sphere></geometry>{}</collision>"""
HINT = """<p:proximity_properties>
<p:mesh_resolution_hint>{}</p:mesh_resolution_hint></p:proximity_properties>"""
MESH = """<visual name='v'>
<geometry><mesh><uri>{}</uri><scale>1 1 {}</scale></mesh></geometry></visual>"""
LIMIT = """<joint name='j'>
<axis><limit><lower>-inf</lower><upper>1e308</upper></limit></axis></joint>"""


def sdf(*parts: str, model: str = "") -> str:
    """Returns the text of a model of one link with some parts."""
    link = f"<link name='bar'>{INERTIA}{''.join(parts)}</link>"
    return f"<sdf version='1.9' xmlns:p='drake'><model name='m'>{link}{model}</model></sdf>"


def urdf(inertia: str) -> str:
    """Returns the text of a URDF of one link with an inertia."""
    parts = f"<inertial><mass value='1'/><inertia {inertia}/></inertial><visual/>"
    return f"<robot name='m'><link name='bar'>{parts}</link></robot>"


def test_every_model_of_the_package_is_allowed():
    assert len(OWN) == 88
    for file in OWN:
        check_masses(file)


def test_every_foreign_model_is_allowed(tmp_path):
    for tool in foreign_tools():
        folder = tool.write(tmp_path)
        for file in [*folder.glob("*.sdf"), *folder.glob("*.urdf")]:
            check_masses(file)


ATTACKS = {
    "itself": (sdf(model="<include merge='true'><uri>model.sdf</uri></include>"), "<include>"),
    "finest": (sdf(BALL.format(HINT.format("1e-9"))), "'c' has a mesh_resolution_hint of 1e-09"),
    "no hint": (sdf(BALL.format(HINT.format("nan"))), "mesh_resolution_hint.*'nan'"),
    "zero hint": (sdf(BALL.format(HINT.format("0"))), "mesh_resolution_hint of 0"),
    "links": (sdf(model="<link name='l'/>" * 3000), r"3,001 elements <link>; at most 100"),
    "elements": (sdf(model="<a/>" * 60_000), "at most 50,000 elements"),
    "deep": (sdf(model="<a>" * 1000 + "</a>" * 1000), "30 levels"),
    "bytes": (sdf(model=" " * MAX_BYTES), "at most 2,000,000 bytes"),
    "above": (sdf(MESH.format("../secret.obj", 1)), "outside of the model's folder"),
    "absolute": (sdf(MESH.format("/etc/passwd", 1)), "outside of the model's folder"),
    "file": (sdf(MESH.format("file:///etc/passwd", 1)), "outside of the model's folder"),
    "percent": (sdf(MESH.format("file://%2Fetc/passwd", 1)), "outside of the model's folder"),
    "package": (sdf(MESH.format("package://drake_models/x.obj", 1)), "is not a file"),
    "above a package": (sdf(MESH.format("model://own/../secret.obj", 1)), "outside of the model's"),
    "link": (sdf(MESH.format("link.obj", 1)), "outside of the model's folder"),
    "pipe": (sdf(MESH.format("pipe.obj", 1)), "is not a file"),
    "absent": (sdf(MESH.format("no.obj", 1)), "is not a file"),
    "scale": (sdf(MESH.format("near.obj", "1e9")), "with the scale 1e.09"),
    "radius": (sdf(BALL.replace("0.1", "1e308").format("")), "<radius> has '1e308'"),
    "large": (sdf(BALL.replace("0.1", "1e9").format("")), "has the radius 1e.09 m"),
    "flat": (sdf(BALL.replace("0.1", "0").format("")), "has the radius 0 m"),
    "pose": (sdf("<pose>0 inf 0 0 0 0</pose>"), "<pose> has 'inf'"),
    "ixz": (urdf("ixx='1' iyy='1' izz='1' ixz='nan'"), "<inertia> ixz has 'nan'"),
    "infinite": (urdf("ixx='1' iyy='1' izz='1' ixz='-inf'"), "ixz has '-inf'"),
    "entities": ("<!DOCTYPE a [<!ENTITY b 'c'><!ENTITY d '&b;&b;'>]><a>&x;</a>", "is not XML"),
    "text": ("\0", "is not XML"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_no_model_may_say_is_refused_at_once(name, tmp_path):
    text, message = ATTACKS[name]
    folder = tmp_path / "own"
    folder.mkdir()
    (tmp_path / "secret.obj").touch()
    (folder / "near.obj").touch()
    (folder / "link.obj").symlink_to(tmp_path / "secret.obj")
    os.mkfifo(folder / "pipe.obj")
    file = folder / ("model.urdf" if text.startswith("<robot") else "model.sdf")
    file.write_text(text)
    started = time.process_time()
    with pytest.raises(ConfigError, match=message):
        check_masses(file)
    assert time.process_time() - started < 2.0


def test_unlimited_joints_and_files_within_the_folder_are_allowed(tmp_path):
    (tmp_path / "a b.obj").touch()
    inside = (tmp_path / "a b.obj").as_uri()
    for uri in ("a b.obj", "./x/../a b.obj", inside):
        (tmp_path / "model.sdf").write_text(sdf(MESH.format(uri, "-1"), model=LIMIT))
        assert read_model_xml(tmp_path / "model.sdf").tag == "sdf"


def test_meshes_that_are_too_large_together_are_refused(tmp_path):
    with (tmp_path / "big.obj").open("wb") as file:
        file.truncate(MAX_MESH_BYTES // 2 + 1)
    (tmp_path / "model.sdf").write_text(sdf(*[MESH.format("big.obj", 1)] * 2))
    with pytest.raises(ConfigError, match=r"have 50,000,002 bytes; at most 50,000,000"):
        read_model_xml(tmp_path / "model.sdf")


# --- The first load -------------------------------------------------------------------------


def test_a_model_that_loads_or_is_refused_has_no_problem(tmp_path):
    assert first_load_problem(CLAW) is None
    folder = Path(shutil.copytree(CLAW, tmp_path / "own"))
    (folder / "model.sdf").write_text(ATTACKS["itself"][0])
    assert first_load_problem(folder) is None


def test_time_and_memory_of_the_first_load_are_limited():
    assert first_load_problem(CLAW, max_seconds=0) == "Loading it takes longer than 0 s."
    assert "0.01 GiB" in (first_load_problem(CLAW, max_gib=0.01) or "")
