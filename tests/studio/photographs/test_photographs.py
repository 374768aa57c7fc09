"""Photographs by a real Blender; $FLEET_TOOLS_BPY_PYTHON is the path of a Python that has bpy."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pydrake.geometry import (
    Box,
    ClippingRange,
    ColorRenderCamera,
    Cylinder,
    GeometryInstance,
    MakeRenderEngineGltfClient,
    MakeRenderEngineVtk,
    PerceptionProperties,
    RenderCameraCore,
    RenderEngineGltfClientParams,
    RenderEngineVtkParams,
    RenderLabel,
    Rgba,
    SceneGraph,
)
from pydrake.math import RigidTransform, RollPitchYaw
from pydrake.systems.sensors import CameraInfo, ImageIo
from support.collected import write_quick_task
from support.processes import ROOT
from support.rendering import needs_gl

from fleet_tools import collect, photograph
from fleet_tools.errors import RenderServerError, UnknownNameError
from fleet_tools.perception.camera_view import OBJECT
from fleet_tools.perception.display import look_at
from fleet_tools.studio.photographs.photographer import THIRD, Photographer, require_server

PYTHON = os.environ.get("FLEET_TOOLS_BPY_PYTHON")
needs_bpy = pytest.mark.skipif(PYTHON is None, reason="$FLEET_TOOLS_BPY_PYTHON is not set")
pytestmark = needs_gl

NO_SERVER = "http://127.0.0.1:9"

Server = tuple[str, subprocess.Popen[str]]
"""URL and process of a server."""


@pytest.fixture(name="server", scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server, which Ctrl-C ends with exit code 0 and without temporary files left."""
    temporary = tmp_path_factory.mktemp("blender")
    options = ["--python", str(PYTHON), "--port", "0", "--workers", "2", "--samples", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet_tools.blender", *options],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("Ready at ")
        yield ready.split()[2].rstrip(":"), process
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    assert list(temporary.glob("fleet_tools_blender_*")) == []


@pytest.fixture(name="url", scope="module")
def _url(server: Server) -> str:
    return server[0]


def shapes(url: str) -> SceneGraph:
    """Returns black shapes in the air, for both renderers."""
    scene_graph = SceneGraph()
    scene_graph.AddRenderer("vtk", MakeRenderEngineVtk(RenderEngineVtkParams()))
    client = MakeRenderEngineGltfClient(RenderEngineGltfClientParams(base_url=url))
    scene_graph.AddRenderer("blender", client)
    source = scene_graph.RegisterSource("shapes")
    for k, (shape, p_WS) in enumerate(
        [
            (Box(0.3, 0.2, 0.1), [0.0, 0.0, 0.0]),
            (Box(0.05, 0.05, 0.5), [0.25, 0.1, 0.1]),
            (Cylinder(0.06, 0.2), [-0.2, 0.2, 0.1]),
        ]
    ):
        X_WS = RigidTransform(RollPitchYaw(0.3 * k, 0.2, 0.5), p_WS)
        id = scene_graph.RegisterAnchoredGeometry(source, GeometryInstance(X_WS, shape, f"s{k}"))
        properties = PerceptionProperties()
        properties.AddProperty("label", "id", RenderLabel(k + 1))
        properties.AddProperty("phong", "diffuse", Rgba(0.0, 0.0, 0.0, 1.0))
        scene_graph.AssignRole(source, id, properties)
    return scene_graph


@needs_bpy
@pytest.mark.parametrize(
    ("eye", "intrinsics"),
    [
        ((0.9, -0.6, 0.5), (240.0, 240.0, 119.5, 89.5)),
        ((0.7, 0.7, 0.6), (210.0, 250.0, 135.0, 70.0)),
        ((-0.6, -0.8, 0.4), (260.0, 205.0, 100.0, 105.0)),
    ],
)
def test_silhouettes_are_where_vtk_has_them(url, eye, intrinsics):
    scene_graph = shapes(url)
    query = scene_graph.get_query_output_port().Eval(scene_graph.CreateDefaultContext())

    def camera(renderer: str) -> ColorRenderCamera:
        info, clipping = CameraInfo(240, 180, *intrinsics), ClippingRange(0.05, 5.0)
        return ColorRenderCamera(RenderCameraCore(renderer, info, clipping, RigidTransform()))

    pose = scene_graph.world_frame_id(), look_at(eye, (0.0, 0.05, 0.05))
    gray = query.RenderColorImage(camera("blender"), *pose).data[:, :, :3].mean(axis=2)
    labels = query.RenderLabelImage(camera("vtk"), *pose).data[:, :, 0]
    expected = (labels >= 1) & (labels <= 3)
    found = gray < (np.median(gray[expected]) + np.median(gray[~expected])) / 2
    assert expected.sum() > 1000
    assert overlap(expected, found) > 0.97
    assert center(found) == pytest.approx(center(expected), abs=0.4)
    # No shift by a pixel fits better.
    shifts = [(dv, du) for dv in (-1, 0, 1) for du in (-1, 0, 1)]
    fits = [overlap(expected, np.roll(found, shift, axis=(0, 1))) for shift in shifts]
    assert shifts[int(np.argmax(fits))] == (0, 0)


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    return (one & other).sum() / (one | other).sum()


def center(mask: np.ndarray) -> np.ndarray:
    return np.argwhere(mask).mean(axis=0)


@needs_bpy
def test_a_photograph_shows_its_state_and_does_not_change_the_environment(hammer, url):
    hammer.reset(seed=3)
    dark = {"object_tint": (0.001, 0.001, 0.001), "tool_tint": (0.001, 0.001, 0.001)}
    plain = {"table_tint": (1.0, 1.0, 1.0), "table_texture": "plain"}
    hammer.reset(options={"scene": hammer.scene.model_copy(update={**dark, **plain})})
    hammer.step(np.array([0, 0, -0.5, 0, 0, 0], np.float32))
    state, digest = hammer.get_state(), hammer.state_digest()
    photographer = Photographer(hammer.task, hammer.robot, url, (320, 240))
    taken = photographer.photograph(state, THIRD)
    assert (taken.rgb.shape, taken.rgb.dtype) == ((240, 320, 3), np.uint8)
    assert taken.depth.shape == taken.segmentation.shape == (240, 320)
    block = taken.segmentation == OBJECT
    rows, columns = (slice(k.min() - 3, k.max() + 4) for k in np.nonzero(block))
    gray, block = taken.rgb[rows, columns].mean(axis=2), block[rows, columns]
    found = gray < (np.median(gray[block]) + np.median(gray[~block])) / 2
    assert center(found) == pytest.approx(center(block), abs=1.0)
    # The same state gives the same image; another camera gives another one.
    again = photographer.photograph(state, THIRD)
    np.testing.assert_array_equal(again.rgb, taken.rgb)
    wrist = photographer.photograph(state, "wrist")
    assert not np.array_equal(wrist.rgb, taken.rgb)
    X_WC = state.scene.cameras["wrist"].to_transform()
    expected = (hammer.world_state().X_WE @ X_WC).GetAsMatrix4()
    np.testing.assert_allclose(wrist.X_WC.GetAsMatrix4(), expected, atol=1e-12)
    assert hammer.state_digest() == digest


@needs_bpy
def test_an_episode_is_photographed_two_at_a_time(url, tmp_path, capsys):
    data, output = tmp_path / "data", tmp_path / "photographs"
    task = ["--task", str(write_quick_task(tmp_path)), "--policy", "zero", "--episodes", "1"]
    assert collect.main([*task, "--output", str(data), "--workers", "0", "--quiet"]) == 0
    cameras = ["--camera", "overhead", "--camera", "third"]
    options = ["--server", url, *cameras, "--size", "64x48", "--every", "2"]
    assert photograph.main([str(data), "--output", str(output), *options, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in (output / photograph.INDEX).read_text().splitlines()]
    assert summary["photographs"] == len(lines) == 4
    assert summary["in_flight"] == 2
    assert {(line["step"], line["camera"]) for line in lines} == {
        (step, camera) for step in (0, 2) for camera in ("overhead", "third")
    }
    for line in lines:
        with np.load(output / line["depth_and_segmentation"]) as arrays:
            assert arrays["depth"].shape == arrays["segmentation"].shape == (48, 64)
        assert ImageIo().Load(output / line["rgb"]).data.shape[:2] == (48, 64)
    # A folder that holds photographs is not written to.
    assert photograph.main([str(data), "--output", str(output), *options]) == 2
    assert "not empty" in capsys.readouterr().err


@needs_bpy
def test_a_blender_that_dies_is_replaced(hammer, server):
    url, process = server
    hammer.reset(seed=0)
    photographer = Photographer(hammer.task, hammer.robot, url, (32, 24))
    photographer.photograph(hammer.get_state(), THIRD)
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    time.sleep(0.2)
    photographer.photograph(hammer.get_state(), THIRD)


@needs_bpy
def test_the_servers_reason_for_a_refusal_is_reported(hammer, url):
    hammer.reset(seed=0)
    with pytest.raises(RenderServerError, match="a whole number from 1 to 4096"):
        Photographer(hammer.task, hammer.robot, url, (5000, 8)).photograph(
            hammer.get_state(), THIRD
        )


def test_a_missing_server_is_reported_with_the_command_that_starts_one(hammer, tmp_path, capsys):
    hammer.reset(seed=0)
    photographer = Photographer(hammer.task, hammer.robot, NO_SERVER, (32, 24))
    with pytest.raises(RenderServerError, match=r"python -m fleet_tools\.blender --python"):
        require_server(NO_SERVER)
    with pytest.raises(RenderServerError, match=NO_SERVER):
        photographer.photograph(hammer.get_state(), THIRD)
    with pytest.raises(UnknownNameError, match="Did you mean 'wrist'"):  # before it is asked
        photographer.photograph(hammer.get_state(), "wrst")
    options = [str(tmp_path / "data"), "--output", str(tmp_path / "new"), "--server", NO_SERVER]
    assert photograph.main(options) == 2
    assert "python -m fleet_tools.blender" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
