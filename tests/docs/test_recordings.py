"""Recordings on task pages: they show the package's models, and they play in a browser."""

import gzip
import re
import runpy
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.chromium import open_page
from support.pages import DOCS, blocks
from support.processes import ROOT

pytest.importorskip("sphinx", reason="the extra `docs` is not installed")

from recordings import SHARED, write_recordings

from fleet_tools.config.tasks import task_names

LARGEST_BYTES = 300_000
"""No recording is larger, and no part that all share."""


@pytest.fixture(scope="module", name="maker")
def _maker() -> dict[str, Any]:
    """What the script that makes the recordings defines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS / "images"))
        return runpy.run_path(str(DOCS / "images" / "task_recordings.py"))


def commands(name: str) -> list[dict[str, Any]]:
    """Returns the commands of a recording."""
    packed = gzip.decompress((DOCS / "recordings" / f"{name}.gz").read_bytes())
    return msgpack.unpackb(packed, strict_map_key=False)


def tracks(name: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Returns keyframes by path and property."""
    *_, last = commands(name)
    return {
        (animation["path"], track["name"]): track["keys"]
        for animation in last["animations"]
        for track in animation["clip"]["tracks"]
    }


def corners(obj: str) -> list[list[tuple[str, ...]]]:
    """Returns the faces of an OBJ file, each corner as its position and normal."""
    lines = [line.split() for line in obj.splitlines()]
    values = {kind: [line[1:] for line in lines if line[:1] == [kind]] for kind in ("v", "vn")}
    return [
        [
            tuple(
                " ".join(values[kind][int(part) - 1])
                for kind, part in zip(values, corner.split("//"), strict=False)
            )
            for corner in line[1:]
        ]
        for line in lines
        if line[:1] == ["f"]
    ]


@pytest.mark.parametrize("task", task_names())
def test_a_task_page_shows_a_small_recording_of_its_task(task):
    shown = [
        b.argument for b in blocks(DOCS / "tasks" / f"{task}.md") if b.language[1:-1] == "recording"
    ]
    assert shown == [task]
    for name in (SHARED, task):
        assert (DOCS / "recordings" / f"{name}.gz").stat().st_size < LARGEST_BYTES
    assert {each["type"] for each in commands(task)} <= {
        "set_object", "set_transform", "set_property", "set_target", "set_animation",
    }  # fmt: skip


@pytest.mark.parametrize("task", task_names())
def test_what_a_recording_shows_are_the_models_of_the_package(task, maker):
    shared, own = commands(SHARED), commands(task)
    shown = {
        mesh["data"]
        for each in [*shared, *own]
        if each["type"] == "set_object" and each["path"].startswith("/drake/visualizer/")
        for mesh in [*each["object"].get("geometries", []), each["object"]["object"]]
        if mesh.get("format") == "obj"
    }
    models = set(
        re.findall(r"/(?:tool|object)/(\w+)/", " ".join(each.get("path", "") for each in own))
    )
    assert len(models) == 2
    folders = [ROOT / "assets/robots/panda", *(
        path for kind in ("tools", "objects") for path in (ROOT / "assets" / kind).glob("*/*")
        if path.name in models
    )]  # fmt: skip
    files = [path for folder in folders for path in folder.rglob("*.obj")]
    assert shown <= {maker["without_repetitions"](path.read_text()) for path in files}


def test_a_mesh_without_repetitions_has_the_same_faces(maker):
    for file in sorted((ROOT / "assets/robots/panda").rglob("*.obj"))[:4]:
        smaller = maker["without_repetitions"](file.read_text())
        assert corners(smaller) == corners(file.read_text())
        assert len(smaller) < file.stat().st_size


@given(values=st.lists(st.floats(-2, 2), min_size=1, max_size=30))
def test_fewer_keyframes_pass_through_those_that_are_kept(maker, values):
    keys = [{"time": k, "value": [value]} for k, value in enumerate(values)]
    kept = maker["fewer"](keys, "vector3")
    times, found = zip(*((key["time"], key["value"][0]) for key in kept), strict=True)
    assert times[0] == 0 and times[-1] == len(values) - 1
    even = np.arange(0, len(values), maker["EVERY"])
    np.testing.assert_allclose(
        np.interp(even, times, found), np.array(values)[even], atol=0.5 / maker["GRID"] + 1e-12
    )


@pytest.mark.slow
def test_a_recording_plays_and_no_address_makes_it_load_anything_else(tmp_path):
    write_recordings(tmp_path)
    page_url = (tmp_path / "recording.html").as_uri()
    path = next(path for path, _ in tracks("hammer") if path.endswith("/nail"))
    with open_page(f"{page_url}?hammer", width=400, height=250) as page:
        page.wait_for_function("document.body.dataset.state", timeout=120_000)
        assert page.evaluate("document.body.dataset.state") == "shown"
        end = page.evaluate("viewer.animator.duration")
        page.wait_for_timeout(2_000 * end)  # it begins again
        page.wait_for_function(f"viewer.animator.time > 0 && viewer.animator.time < {end}")
        assert page.evaluate("viewer.animator.playing")
        assert re.fullmatch(r"\d\.\d\d s", page.inner_text("#time"))
        place = f"viewer.scene_tree.find({path.split('/')[1:]}).object.position.z"
        height = [
            page.evaluate(f"(seek({share} * viewer.animator.duration), {place})")
            for share in (0, 1)
        ]
        assert height[0] - height[1] == pytest.approx(0.03, abs=0.01)  # m, into the block
        for hostile in ("../../x", "hammer.js#", "", "no_such_task"):
            page.goto(f"{page_url}?{hostile}")
            page.wait_for_function("document.body.dataset.state === 'failed'", timeout=120_000)
            sources = page.evaluate("[...document.scripts].map(script => script.src)")
            assert all(Path(source).parent.name in ("", "recordings") for source in sources)
