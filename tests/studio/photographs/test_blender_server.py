"""The HTTP side of the Blender server, over a real connection; no request here needs Blender."""

import contextlib
import http.client
import json
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.blender_forms import BOUNDARY, FORM, MAX_BYTES, SCENE, form

from fleet_tools.blender import main
from fleet_tools.studio.photographs import render_requests as server
from fleet_tools.studio.photographs.blender_pool import proper_gltf


@pytest.fixture(name="running", scope="module")
def _running() -> Iterator[server.RenderServer]:
    """A server that fails to draw every scene."""

    def draw(scene: dict[str, Any], camera: dict[str, float]) -> bytes:
        raise ValueError("no scene of this module can be drawn")

    with server.RenderServer(0, draw, {"blender": "none"}, MAX_BYTES) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
    thread.join()


@pytest.fixture(name="url", scope="module")
def _url(running: server.RenderServer) -> str:
    return f"http://127.0.0.1:{running.server_port}"


def post(url: str, body: bytes, path: str = "/render", content_type: str = FORM) -> tuple[int, str]:
    """Sends a request that is refused; returns status and reason."""
    request = urllib.request.Request(url + path, body, {"Content-Type": content_type})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    with caught.value as error:
        return error.code, error.read().decode()


def test_health_is_answered(url):
    with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
        assert json.load(answer) == {"blender": "none"}


REFUSED = {
    "no such size": (form(width="0"), "width"),
    "no number": (form(height="many"), "height"),
    "half a pixel": (form(width="64.5"), "width"),
    "nan": (form(focal_x="nan"), "focal_x"),
    "infinity": (form(center_y="inf"), "center_y"),
    "far before near": (form(far="0.01"), "far"),
    "a field is missing": (form(near=None), "'near' is missing"),
    "depth": (form(image_type="depth"), "Drake's own renderers for depth and labels"),
    "label": (form(image_type="label"), "color"),
    "another scene": (form(scene_sha256="0" * 64), "SHA-256"),
    "no JSON": (form(b"\x00\xff"), "not JSON"),
    "no glTF": (form([1, 2]), "not valid glTF"),
    "no nodes": (form({"nodes": 7, "scenes": []}), "not valid glTF"),
    "no camera": (form({**SCENE, "nodes": [{}]}), "one camera"),
    "a file": (form({**SCENE, "images": [{"uri": "/etc/passwd"}]}), "/etc/passwd"),
    "an address": (form({**SCENE, "buffers": [{"uri": "http://x/y"}]}), "http://x/y"),
    "nothing": (b"", "form"),
    "too deep": (form(b'{"nodes":' + b"[" * 50_000 + b"]" * 50_000 + b"}"), "not JSON"),
    "NaN": (form(b'{"nodes":[{"camera":NaN}]}'), "NaN is not a finite number"),
    "too large a number": (form(b'{"nodes":[{"camera":-1e999}]}'), "-1e999 is not a finite number"),
    "no end": (form()[:-60], "no end"),
    "too many": (b"--" + f"\r\n--{BOUNDARY}".encode() * 5000, "1 to 64 fields"),
    "too long a name": (
        form().replace(b'name="near"', b'name="' + b"x" * 5000 + b'"'),
        "at most 4096",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_requests_are_refused_with_the_reason(url, case):
    body, reason = REFUSED[case]
    status, message = post(url, body)
    assert (status, reason in message) == (400, True), message


def test_a_boundary_has_1_to_70_bytes(url):
    for boundary, count in (("; boundary=" + "b" * 71, 71), ("", 0)):
        status, message = post(url, form(), content_type="multipart/form-data" + boundary)
        assert (status, f"{count} bytes; expected 1 to 70" in message) == (400, True), message


def test_other_paths_types_and_sizes_are_refused(url):
    assert post(url, form(), path="/other")[0] == 404
    assert post(url, b"{}", content_type="application/json")[0] == 415
    status, message = post(url, b"x" * (MAX_BYTES + 1))
    assert status == 413
    assert "--max-megabytes" in message
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    connection.putrequest("POST", "/render")
    connection.endheaders()
    assert connection.getresponse().status == 411
    connection.close()


def test_a_failure_to_draw_is_reported_and_the_server_goes_on(url):
    for _ in range(2):
        expected = (500, "ValueError: no scene of this module can be drawn")
        status, message = post(url, form())
        assert (status, message.strip()) == expected


numbers = st.floats(0.5, 4000)


@given(numbers, numbers, numbers, st.dictionaries(st.text(max_size=5), st.text(max_size=9)))
def test_a_form_is_read(focal_x, focal_y, center_x, extras):
    sent = {"focal_x": focal_x, "focal_y": focal_y, "center_x": center_x}
    fields = {name: repr(number) for name, number in sent.items()}
    scene, camera = server.parse_request(FORM, form({**SCENE, "extras": extras}, **fields))
    assert scene == {**SCENE, "extras": extras}
    assert {name: camera[name] for name in sent} == sent
    assert (camera["width"], camera["height"]) == (64, 48)


channels = st.floats(0, 1)


@given(st.lists(channels, min_size=4, max_size=4))
def test_colours_become_linear_and_stay_in_order(color):
    material = {"pbrMetallicRoughness": {"baseColorFactor": color, "roughnessFactor": 1.0}}
    given_scene = {**SCENE, "materials": [material]}
    before = json.dumps(given_scene)
    surface = proper_gltf(given_scene)["materials"][0]["pbrMetallicRoughness"]
    *linear, alpha = surface["baseColorFactor"]
    # The inverse, as the standard (IEC 61966-2-1) states it.
    displayed = [12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in linear]
    assert displayed == pytest.approx(color[:3], abs=1e-4)
    assert (alpha, surface["roughnessFactor"]) == (color[3], 0.5)
    assert json.dumps(given_scene) == before


def test_the_up_axis_of_drake_is_that_of_gltf():
    scene = proper_gltf(SCENE)
    root = scene["nodes"][scene["scenes"][0]["nodes"][0]]
    x, _, _, w = root["rotation"]
    # The z axis, turned by a quaternion about x.
    assert (-2 * x * w, 1 - 2 * x * x) == pytest.approx((1.0, 0.0))
    assert root["children"] == [0]


def test_without_bpy_the_server_tells_how_to_install_it(monkeypatch, capsys):
    monkeypatch.delenv("FLEET_TOOLS_BPY_PYTHON", raising=False)
    assert main([]) == 2
    said = capsys.readouterr().err
    for part in (sys.executable, "No module named 'bpy'", "pip install bpy", "apt-get install"):
        assert part in said


def test_a_python_that_cannot_be_run_is_reported(capsys):
    assert main(["--python", "/no/such/python"]) == 2
    assert "/no/such/python cannot be run as Python" in capsys.readouterr().err


@pytest.mark.parametrize(("length", "status"), [("9" * 30, 400), ("²", 411), ("300", 400)])
def test_lengths_that_cannot_be_are_refused(url, length, status):
    head = f"POST /render HTTP/1.1\r\nContent-Type: {FORM}\r\nContent-Length: {length}\r\n\r\n"
    with connected(url, head.encode("latin-1") + b"half") as connection:
        connection.shutdown(socket.SHUT_WR)
        assert connection.makefile("rb").readline().split()[1] == str(status).encode()


@contextlib.contextmanager
def connected(url: str, content: bytes = b"") -> Iterator[socket.socket]:
    """Connects, and sends something."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(content)
        yield client
