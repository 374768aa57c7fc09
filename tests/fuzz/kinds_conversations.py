"""Requests to servers of policies, of pages and of Blender, and the answers of servers."""

import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import trimesh
from support.blender_forms import BOUNDARY, FORM, MAX_BYTES, SCENE, form
from support.damage import damaged
from support.served_policies import ACTION, LAYOUT, Remembering, hello, observation, serving
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.policies.array_codec import ProtocolError, decode, encode
from fleet_tools.policies.conversation import Conversation, Served
from fleet_tools.policies.openpi import OpenpiPolicy
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.wire_messages import CONTROL, RESET, largest_request, require_arrays
from fleet_tools.studio.labelling.labels import read_draft
from fleet_tools.studio.labelling.session import LabellingSession
from fleet_tools.studio.labelling.subjects import MeshSubject
from fleet_tools.studio.photographs import render_requests as server
from fleet_tools.studio.teleoperation.devices import action_of
from fleet_tools.studio.teleoperation.page_server import Controls, read_controls
from fleet_tools.studio.viser_links import pose_of
from fuzz.mutations import JSON_TOKENS, changed_data, changed_json, changed_text, pick, scalar
from fuzz.running import SECONDS, Subject, require, require_same_after_json


def requests(folder: Path) -> Subject:
    """Requests to a served policy, of our clients and openpi's: bytes, and all of msgpack."""

    def make(generator: np.random.Generator) -> bytes:
        whole = observation(int(generator.integers(100)))
        control = pick(generator, ({}, {CONTROL: {"number": 1, "reset": True}}))
        match int(generator.integers(5)):
            case 0:
                return _encoded({**whole, **control, RESET: scalar(generator), "prompt": "go"})
            case 1:
                return _encoded({**whole, **changed_data({**control, "a": [1.0]}, generator)})
            case 2:
                return encode({**changed_arrays(generator), **control})
            case 3:
                return encode(control)
        return damaged(encode({**whole, **control}), generator)

    def read(content: bytes) -> dict[str, Any]:
        reply = Conversation(Served(hello(), Remembering)).reply(content)
        if isinstance(reply.content, str):
            require(len(reply.content) <= 500, "it tells much")
            require(not reply.content.startswith("policy"), "the policy was given this")
            raise ProtocolError(reply.content)
        return decode(reply.content)

    def check(content: bytes, answer: dict[str, Any]) -> None:
        require(len(content) <= largest_request(LAYOUT), "a larger request than any")
        request = decode(content)
        control = request.pop(CONTROL, {"number": None})
        require(answer.get("number") == control["number"], "the answer to another request")
        if "actions" not in answer:
            require(control.get("reset") and not request, "an answer without an action")
            return
        require(answer["actions"].shape == (1, 6), "no chunk of one action")
        require(np.isfinite(answer["actions"]).all(), "an action is not finite")
        if "reset" in control:
            require_arrays(LAYOUT, request)
        for name, spec in LAYOUT.items():
            given = np.asarray(request[name])
            require(given.shape == spec.shape, f"{name} has the shape {given.shape}")
            require(np.isfinite(given).all(), f"{name} is not finite")

    return Subject(make, read, check)


def changed_arrays(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns an observation of which an entry has another shape, dtype, name or number."""
    arrays = observation()
    name = pick(generator, list(arrays))
    array = arrays.pop(name).copy()
    match int(generator.integers(5)):
        case 0:
            array = array.reshape(array.shape[::-1])
        case 1:
            array = array.astype(pick(generator, ("float64", "int32", "bool", "uint8", "float32")))
        case 2:
            name = pick(generator, ("", "state ", "other", "x" * 300))
        case 3:
            array = array.astype("float32")
            array.flat[0] = pick(generator, (np.nan, np.inf, -np.inf, 1e38, -0.0))
        case _:
            array = array[: int(generator.integers(len(array)))]
    return {**arrays, name: array}


def _encoded(message: dict[str, Any]) -> bytes:
    """Returns a message as bytes; another one where it cannot be sent at all."""
    try:
        return encode(message)
    except (ProtocolError, UnicodeEncodeError, RecursionError):
        return encode({})


def server_answers(folder: Path) -> Subject:
    """Answers of policy servers, ours and openpi's, to their clients."""
    script: list[bytes] = []

    def converse(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            for answer in script:
                connection.send(answer)
                connection.recv(timeout=0.5)

    server = serve(converse, "127.0.0.1", 0, compression=None)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
    env = EnvSpec.of(task="hammer").make_tool_use()
    seen, _ = env.reset(seed=0)
    env.close()
    action = np.zeros(6, np.float32)
    greeting = hello()
    zeros = {name: np.zeros(it.shape, it.dtype) for name, it in greeting.observation.items()}
    own = [
        encode(greeting.model_dump(mode="json")),
        encode({"number": 0}),
        encode({"number": 1, "actions": action[None]}),
    ]
    theirs = [encode({"name": "p"}), encode({"actions": np.zeros((3, 6))})]

    def close() -> None:
        server.shutdown()
        thread.join()

    def make(generator: np.random.Generator) -> tuple[bool, list[bytes]]:
        is_openpi = bool(generator.integers(2))
        answers = list(theirs if is_openpi else own)
        at = int(generator.integers(len(answers)))
        match int(generator.integers(3)):
            case 0:
                answers[at] = _packed(changed_data(decode(answers[at]), generator))
            case 1 if at == len(answers) - 1:
                odd = generator.normal(size=pick(generator, ((6,), (3, 6), (0, 6), (3, 7), ())))
                odd = odd.astype(pick(generator, ("f4", "f8", "i8", "?", "f2")))
                if odd.size and odd.dtype.kind == "f":
                    odd.flat[0] = pick(generator, (np.nan, np.inf, 0.5, 1e38))
                answers[at] = _packed({"actions": odd, "number": 1})
            case _:
                answers[at] = damaged(answers[at], generator)
        return is_openpi, answers

    def read(given: tuple[bool, list[bytes]]) -> Any:
        is_openpi, script[:] = given
        if is_openpi:
            policy = OpenpiPolicy(env, url, timeout_s=2.0)
            try:
                return ACTION, policy.act(seen)
            finally:
                policy.close()
        connection = PolicyClient.at(url, timeout_s=2.0)
        try:
            connection.reset()
            return connection.hello.action, connection.act(zeros)
        finally:
            connection.close()

    def check(given: Any, result: Any) -> None:
        spec, action = result
        require(action.shape == spec.shape, f"an action of the shape {action.shape}")
        require(np.isfinite(action).all(), "an action is not finite")

    return Subject(make, read, check, (PolicyError,), close)


def served_connections(folder: Path) -> Subject:
    """What strangers send to a policy's server before they speak its protocol."""
    stack = contextlib.ExitStack()
    server = stack.enter_context(serving(Remembering))
    address = urlsplit(server.url)
    where = str(address.hostname), int(address.port or 0)
    head = (
        f"GET / HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n"
    )
    whole = head.encode()

    def make(generator: np.random.Generator) -> bytes:
        match int(generator.integers(4)):
            case 0:
                return damaged(whole, generator)
            case 1:
                return whole + generator.bytes(int(generator.integers(1, 200)))
            case 2:
                return generator.bytes(int(generator.integers(1, 2000)))
        text = changed_text(head, generator, _HEADER_TOKENS)
        return text.encode(errors="surrogatepass")

    def read(content: bytes) -> bytes:
        with socket.create_connection(where, timeout=SECONDS) as client:
            answer = b""
            with contextlib.suppress(ConnectionError):
                client.sendall(content)
                client.shutdown(socket.SHUT_WR)
                while chunk := client.recv(65536):
                    answer += chunk
        connection = PolicyClient.at(server.url, timeout_s=SECONDS)  # the next one is served
        connection.close()
        if not answer.startswith(b"HTTP/1.1 101"):
            raise ProtocolError("refused")
        return answer

    def check(content: bytes, answer: bytes) -> None:
        lowered = content.lower()
        require(b"sec-websocket-key" in lowered, "no handshake was asked for")
        require(b"\norigin:" not in lowered, "a page of a browser was admitted")

    return Subject(make, read, check, close=stack.close)


_HEADER_TOKENS = (
    *("Origin: http://x\r\n", "Authorization: Bearer x\r\n", "Sec-WebSocket-Version: 8\r\n"),
    *("Sec-WebSocket-Extensions: permessage-deflate\r\n", "Host: x\r\n", "\r\n", "\0", "é", ":"),
    *("X: " + "y" * 9000, "X: y\r\n" * 300, "Transfer-Encoding: chunked\r\n", "POST ", "HTTP/9"),
)


def page_messages(folder: Path) -> Subject:
    """Messages of the page of teleoperation, and of its gizmo."""
    pad = {"axes": [0.0, 0.5, -1.0, 0.1], "buttons": [0.0] * 16}
    whole = {"type": "controls", "keys": ["w", "q"], "gamepad": pad, "frame": "world"}
    texts = [json.dumps(each) for each in (whole, whole | {"clicked": "save"}, {})]

    def make(generator: np.random.Generator) -> Any:
        match int(generator.integers(4)):
            case 0:
                position, wxyz = generator.normal(size=3), generator.normal(size=4)
                which = pick(generator, (position, wxyz))
                which[int(generator.integers(len(which)))] = pick(
                    generator, (np.nan, np.inf, 0.0, 1e300, 1e-320)
                )
                return (position, wxyz) if generator.integers(4) else (position, np.zeros(4))
            case 1:
                return changed_json(pick(generator, texts), generator).decode(errors="replace")
        return changed_json(pick(generator, texts), generator)

    def read(given: Any) -> Any:
        return pose_of(*given) if isinstance(given, tuple) else read_controls(given)

    def check(given: Any, found: Any) -> None:
        if not isinstance(found, Controls):
            matrix = found.GetAsMatrix4()
            require(np.isfinite(matrix).all(), "a pose is not finite")
            require(np.allclose(matrix[:3, :3] @ matrix[:3, :3].T, np.eye(3)), "no rotation")
            return
        action = action_of(found.commands(), np.eye(3))
        require(action.shape == (6,) and np.abs(action).max() <= 1, "an action out of range")
        found.requests(Controls())
        require_same_after_json(found)

    return Subject(make, read, check, (ValueError,))


def label_page(folder: Path) -> Subject:
    """Clicks, handles and numbers that the page of `label` sends."""
    mesh = folder / "mallet.obj"
    trimesh.creation.box((0.3, 0.04, 0.04)).export(mesh)
    session = LabellingSession(MeshSubject(mesh, "tool", "hammer", folder / "out"))

    def make(generator: np.random.Generator) -> tuple[str, Any]:
        one, other = generator.normal(scale=0.2, size=(2, 3))
        if generator.integers(2):
            odd = pick(generator, (np.nan, np.inf, 0.0, 1e300, 1e-320, -1e12))
            pick(generator, (one, other))[int(generator.integers(3))] = odd
        match pick(generator, ("click", "click", "place", "place_hand", "set", "select", "undo")):
            case "click":
                return "click", (one, pick(generator, (other, -one, np.zeros(3))))
            case "place":
                return "place", (one,)
            case "place_hand":
                rotation = np.linalg.qr(generator.normal(size=(3, 3)))[0]
                return "place_hand", (one, rotation * pick(generator, (1, 1, np.nan, 0, 1e100)))
            case "set":
                name = pick(generator, ("scale", "up", "mass", "material"))
                return "set", {name: scalar(generator)}
            case "select":
                return "select", (pick(generator, list(session.items)),)
        name = pick(generator, ("undo", "derive", "mirror", "turn_hand", "keep"))
        return name, ()

    def read(given: tuple[str, Any]) -> Any:
        name, arguments = given
        before = session.labels
        act = getattr(session, name)
        try:
            act(**arguments) if isinstance(arguments, dict) else act(*arguments)
        except Exception:
            require(session.labels == before, "what is refused has changed the labels")
            raise
        return session.labels

    def check(given: tuple[str, Any], labels: Any) -> None:
        kept = read_draft(session.file, session.subject.digest())
        if kept is not None:
            require(kept == labels, "other labels are kept")
        for point in labels.keypoints.values():
            require(np.isfinite(point).all(), "a keypoint is not finite")
        require(np.isfinite(session.surface.vertices).all(), "the mesh is not finite")

    return Subject(make, read, check, (FleetToolsError, ValueError))


def _packed(message: Any) -> bytes:
    """Returns a message as bytes; others where it cannot be sent at all."""
    try:
        return encode(message if isinstance(message, dict) else {"": message})
    except (ProtocolError, UnicodeEncodeError, RecursionError):
        return encode({})


_FORM_TOKENS = (
    *(f"--{BOUNDARY}", f"--{BOUNDARY}--", "\r\n\r\n", "\r\n", 'name="scene"', 'name=""'),
    *("name*=x''y", "Content-Disposition: form-data", "Content-Type: multipart/mixed; boundary=a"),
    *("; ", "=?utf-8?q?=00?="),
)
_TYPE_TOKENS = (
    *("boundary=", ";", '"', "''", "*0=", "\\", "=?x?b?y?=", "multipart/", "charset*=", "("),
)


def _changed_form(generator: np.random.Generator) -> tuple[str, bytes]:
    """Returns a content type and a body."""
    match int(generator.integers(6)):
        case 0:
            return FORM, damaged(form(), generator)
        case 1:
            return changed_text(FORM, generator, _TYPE_TOKENS).replace("\n", ""), form()
        case 2:
            text = changed_text(form().decode(), generator, (*_FORM_TOKENS, *JSON_TOKENS))
            return FORM, text.encode(errors="surrogatepass")
        case 3:
            name = pick(generator, ("width", "height", "near", "far", "focal_x", "center_y"))
            return FORM, form(**{name: str(scalar(generator)).encode(errors="replace").decode()})
        case 4:
            return FORM, form(**{pick(generator, ("width", "scene_sha256", "submit")): None})
    return FORM, form(changed_json(json.dumps(SCENE), generator))


def blender_forms(folder: Path) -> Subject:
    """Forms that the Blender server is sent."""

    def read(given: tuple[str, bytes]) -> Any:
        return server.parse_request(*given)

    def check(given: tuple[str, bytes], request: Any) -> None:
        scene, camera = request
        require(all(np.isfinite(each) for each in camera.values()), "a number is not finite")
        require(1 <= camera["width"] <= server.MAX_PIXELS, "the width is out of range")
        require(0 < camera["near"] <= camera["far"], "near is beyond far")
        json.dumps(scene, allow_nan=False).encode()

    return Subject(_changed_form, read, check, (server.RequestError,))


def http_requests(folder: Path) -> Subject:
    """Requests to the Blender server, over a connection."""
    errors: list[BaseException | None] = []

    def draw(scene: dict[str, Any], camera: dict[str, float]) -> bytes:
        return b"image"

    running = server.RenderServer(0, draw, {}, MAX_BYTES)
    # What its threads raise, no client sees.
    before, threading.excepthook = threading.excepthook, lambda each: errors.append(each.exc_value)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()

    def close() -> None:
        running.shutdown()
        running.server_close()
        thread.join()
        threading.excepthook = before

    def make(generator: np.random.Generator) -> bytes:
        content_type, body = _changed_form(generator)
        head = f"POST /render HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        content = head.encode(errors="surrogatepass") + body
        match int(generator.integers(4)):
            case 0:
                return damaged(content, generator)
            case 1:
                changed = changed_text(head, generator, _HTTP_TOKENS)
                return changed.encode(errors="surrogatepass") + body
        return content

    def read(content: bytes) -> int | None:
        errors.clear()
        with socket.create_connection(
            ("127.0.0.1", running.server_port), timeout=SECONDS
        ) as client:
            with contextlib.suppress(ConnectionError):
                client.sendall(content)
            with contextlib.suppress(OSError):  # if the server has closed it meanwhile
                client.shutdown(socket.SHUT_WR)
            reply = b""
            with contextlib.suppress(ConnectionError):
                while chunk := client.recv(65536):
                    reply += chunk
        if errors and not isinstance(errors[0], ConnectionError):
            raise RuntimeError("in a thread of the server") from errors[0]
        status = int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.") else None
        if status is None or 400 <= status < 500 or status in (501, 505):
            raise FleetToolsError(f"refused with the status {status}")
        return status

    def check(given: bytes, status: int) -> None:
        if status == 500:
            raise RuntimeError("the server answered with 500")

    return Subject(make, read, check, close=close)


_HTTP_TOKENS = (
    *("Content-Length: 5\r\n", "Content-Length: -1\r\n", "Transfer-Encoding: chunked\r\n", "\r\n"),
    *("Expect: 100-continue\r\n", "GET /health ", "HTTP/9.9", "HTTP/0.9", "\0", " ", "\n", "\t"),
    *("X: " + "y" * 70_000, "X: y\r\n" * 200, "CONNECT ", "é", ":", "Connection: x"),
)
