"""Leaderboards, meshes, requests to the Blender server, answers of policies, and command lines."""

import contextlib
import io
import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from support.blender_forms import BOUNDARY, FORM, MAX_BYTES, SCENE, form
from support.damage import damaged
from support.submitted import SMALL, random_evaluation, renamed, verification
from support.submitted import write as write_result

from fleet_tools import __main__ as programs
from fleet_tools.assets.importing.importer import ImportedModel, import_mesh
from fleet_tools.assets.importing.mesh_file import read_mesh
from fleet_tools.assets.importing.program import PLAIN
from fleet_tools.assets.importing.settings import ImportSettings
from fleet_tools.blender import server
from fleet_tools.errors import FleetToolsError, ResultError
from fleet_tools.evaluation.result_file import EPISODES, RESULT
from fleet_tools.leaderboard.board import Board, present_rankings
from fleet_tools.leaderboard.markdown import as_markdown
from fleet_tools.leaderboard.page import as_html
from fleet_tools.leaderboard.records import content_digest, write_verifications
from fleet_tools.leaderboard.submissions import read_submissions
from fleet_tools.policies.confined_replies import plain, read_action, read_reply
from fuzz.kernel import SECONDS, Subject, require
from fuzz.kinds_files import Named, with_one_file
from fuzz.mutations import (
    JSON_TOKENS,
    changed_json,
    changed_lines,
    changed_number,
    changed_text,
    pick,
    scalar,
)


def leaderboards(folder: Path) -> Subject:
    """Folders of results in which one result is a stranger's."""
    root = folder / "results"
    ours = random_evaluation(0.5, seed=1, name="ours")
    record = verification("ours", content_digest=content_digest(write_result(ours, root / "ours")))
    write_verifications(root, {"ours": record})
    theirs = write_result(renamed(ours, "theirs"), root / "theirs")
    (theirs / "README.md").write_text("# Theirs\n")
    whole = {
        f"theirs/{name}": (theirs / name).read_bytes() for name in (RESULT, EPISODES, "README.md")
    }

    def make(generator: np.random.Generator) -> Named:
        name = pick(generator, tuple(whole))
        match name.rpartition(".")[2]:
            case "json":
                return name, changed_json(whole[name].decode(), generator)
            case "jsonl":
                return name, changed_lines(whole[name].decode(), generator)
        text = changed_text(whole[name].decode(), generator, ("<script>", "[x](y)", *JSON_TOKENS))
        return name, damaged(text.encode(errors="surrogatepass"), generator)

    def read() -> Any:
        submissions, rejections = read_submissions(root, SMALL)
        board = Board(
            SMALL, "00", present_rankings(submissions, SMALL, "00"), rejections=rejections
        )
        for text in (as_html(board), as_markdown(board)):
            text.encode()
        accepted = {each.folder: each for each in submissions}
        require("ours" in accepted and accepted["ours"].verified(), "it cost another's result")
        if "theirs" not in accepted:
            require({each.folder for each in rejections} == {"theirs"}, "it has no reason")
            raise ResultError(rejections[0].reason)
        return accepted["theirs"].evaluation

    def check(given: Named, evaluation: Any) -> None:
        for value in (evaluation.result, *evaluation.episodes):
            again = type(value).model_validate_json(value.to_json())
            require(again == value, f"{type(value).__name__} changes on its way through JSON")

    return with_one_file(root, whole, make, read, check)


def meshes(folder: Path) -> Subject:
    """Meshes to import."""
    solid = trimesh.creation.box((0.2, 0.03, 0.04))
    whole = {}
    for suffix in ("obj", "stl", "ply", "off", "glb"):
        exported = solid.export(file_type=suffix)
        whole[suffix] = exported.encode() if isinstance(exported, str) else exported
    whole["gltf"] = json.dumps(_gltf(solid)).encode()
    settings = ImportSettings("tool", "hammer", "mine", PLAIN, mass=0.5)

    def make(generator: np.random.Generator) -> Named:
        suffix = pick(generator, tuple(whole))
        content, text = whole[suffix], suffix in ("obj", "off", "gltf")
        if text and generator.integers(2):
            return suffix, changed_number(content.decode(), generator).encode(errors="replace")
        if text and generator.integers(2):
            changed = changed_text(content.decode(), generator, _MESH_TOKENS, 5)
            return suffix, changed.encode(errors="surrogatepass")
        return suffix, damaged(content, generator)

    def read(given: Named) -> ImportedModel:
        path = folder / f"mesh.{given[0]}"
        path.write_bytes(given[1])
        return import_mesh(read_mesh(path), settings)

    def check(given: Named, imported: ImportedModel) -> None:
        (link,) = imported.model.links
        properties = link.mass_properties()
        inertia = np.asarray(properties.inertia)
        require(np.isfinite(inertia).all(), "the inertia is not finite")
        require(np.isclose(properties.mass, 0.5), f"the mass is {properties.mass} kg")

    return Subject(make, read, check)


_MESH_TOKENS = ("nan", "inf", "-1", "0", "1e999", "9" * 30, "f 1 2 3", "v 0 0 0", "mtllib x", "\0")


def _gltf(mesh: trimesh.Trimesh) -> Any:
    files = trimesh.exchange.gltf.export_gltf(trimesh.Scene(mesh), embed_buffers=True)
    return json.loads(files["model.gltf"])


# --- Blender --------------------------------------------------------------------------------

_FORM_TOKENS = (
    *(
        f"--{BOUNDARY}",
        f"--{BOUNDARY}--",
        "\r\n\r\n",
        "\r\n",
        'name="scene"',
        'name=""',
        "name*=x''y",
    ),
    *(
        "Content-Disposition: form-data",
        "Content-Type: multipart/mixed; boundary=a",
        "; ",
        "=?utf-8?q?=00?=",
    ),
)
_TYPE_TOKENS = (
    "boundary=",
    ";",
    '"',
    "''",
    "*0=",
    "\\",
    "=?x?b?y?=",
    "multipart/",
    "charset*=",
    "(",
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

    running = server.make_server("127.0.0.1", 0, draw, {}, MAX_BYTES)
    # What its threads raise, no client sees.
    running.handle_error = lambda request, client_address: errors.append(sys.exception())
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()

    def close() -> None:
        running.shutdown()
        running.server_close()
        thread.join()

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
        with socket.create_connection(running.server_address[:2], timeout=SECONDS) as client:
            with contextlib.suppress(ConnectionError, BrokenPipeError):
                client.sendall(content)
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
    *(
        "Expect: 100-continue\r\n",
        "GET /health ",
        "HTTP/9.9",
        "HTTP/0.9",
        "\0",
        " ",
        "Connection: x",
    ),
    *("X: " + "y" * 70_000, "X: y\r\n" * 200, "CONNECT ", "é", ":", "\n", "\t"),
)

# --- Policies -------------------------------------------------------------------------------


def answers(folder: Path) -> Subject:
    """Answers of confined policies."""
    actions = [np.zeros(6, np.float32), np.arange(6.0), np.zeros((2, 3), np.int64), np.zeros(0)]

    def make(generator: np.random.Generator) -> bytes:
        answer = plain(pick(generator, actions))
        error = pick(generator, (None, None, None, "it failed"))
        return changed_json(json.dumps({"error": error, "answer": answer}), generator)

    def read(content: bytes) -> np.ndarray:
        return read_action(read_reply(content))

    def check(content: bytes, action: np.ndarray) -> None:
        require(action.dtype.kind in "biuf", f"an array of {action.dtype}")
        answer = json.loads(content)["answer"]
        if isinstance(answer["shape"], list) and all(n >= 0 for n in answer["shape"]):
            require(list(action.shape) == answer["shape"], "another shape")
        require(np.dtype(answer["dtype"]) == action.dtype, "another dtype")
        again = plain(action)
        require(again["data"] == answer["data"], "other numbers")

    return Subject(make, read, check)


# --- Programs -------------------------------------------------------------------------------

_LINES = (
    "collect --task absent.yaml --episodes 3 --output out --workers 0",
    "replay absent --episodes 3 --seed 1 --within 0.1 --workers 0 --json",
    "dataset info absent --output a.png",
    "dataset export absent --to minari --output out",
    "photograph absent --output out",
    "train --dataset absent --output out --epochs 2 --architecture gru --set body.width=8",
    "evaluate --policy absent:policy --output out --protocol absent.yaml --scenes 2 --workers 0",
    "leaderboard absent --verify 3 --seed 4",
    "merge absent.safetensors other.safetensors --method naive_average --output out",
    "fleet absent.yaml --output out --workers 0",
    "sweep absent.yaml --output out",
    "barriers absent.yaml --output out",
    "assets import absent.obj --kind tool --family hammer --mass 0.5 --keypoint head=1,2,3",
    "assets check absent --scenes 0 --seed 3",
)
_WORDS = (
    *(
        "--json",
        "--quiet",
        "--seed",
        "--episodes",
        "-h",
        "--",
        "-",
        "--no-check",
        "--set",
        "a=b",
        "=",
    ),
    *(
        "--workers",
        "-1",
        "0",
        "nan",
        "1e999",
        "99999999999999999999",
        "None",
        "True",
        "--split",
        "all",
    ),
    *(
        "--grasp=-0.1,0,0",
        "--scale",
        "1,2",
        "--keypoint",
        "--env",
        "obs_mode=x",
        "\0",
        "\n",
        "é",
        "\udcff",
    ),
    *("/dev/null", "/", ".", "..", "~", "*", "--output=", "--x" * 100, "@file", "{", "[1,2]", "'"),
)


def command_lines(folder: Path) -> Subject:
    """Command lines of programs, about files that do not exist."""

    def make(generator: np.random.Generator) -> list[str]:
        words = pick(generator, _LINES).split()
        for _ in range(int(generator.integers(1, 4))):
            at = int(generator.integers(len(words) + 1))
            match int(generator.integers(5)):
                case 0 if words:
                    del words[at : at + 1]
                case 1 if at < len(words):
                    words[at] = pick(generator, _WORDS)
                case 2 if words:
                    words.insert(at, pick(generator, words))
                case 3 if at < len(words):
                    words[at] = words[at][: int(generator.integers(len(words[at]) + 1))]
                case _:
                    words.insert(at, pick(generator, _WORDS))
        return words

    def read(words: list[str]) -> tuple[int, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = programs.main(words)
            except SystemExit as end:
                code = end.code
        if code in (1, 2):
            require(err.getvalue().strip(), f"exit code {code} without a message")
            require("Traceback" not in err.getvalue(), "it prints a traceback")
            raise FleetToolsError(err.getvalue())
        return code, out.getvalue()

    def check(words: list[str], result: tuple[int, str]) -> None:
        code, printed = result
        require(code == 0, f"the exit code is {code}")
        require({"-h", "--help", "--version"} & set(words), "it succeeds without its files")
        require(printed, "it prints nothing")

    return Subject(make, read, check)
