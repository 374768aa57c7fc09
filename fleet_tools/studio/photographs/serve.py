"""Renders glTF scenes with Blender for Drake's glTF render client, over HTTP.

This program runs in an environment that has `bpy` and not this package: start this file with that
environment's Python, or let `python -m fleet_tools.blender` do so. Apart from Blender it needs only
the standard library. A Blender process holds only one scene, so each of a pool of processes runs
`drawing.py`. Scenes are written as standard glTF, which Drake's are not quite.
"""

import argparse
import contextlib
import copy
import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Draw = Callable[[dict[str, Any], dict[str, float]], bytes]
"""Function that returns a scene's image as PNG, see `BlenderPool.draw`."""

MISSING_BPY = """Blender cannot be imported by {python}:
  {error}
Install it into an environment of its own, because it needs its own version of numpy:
  python3.11 -m venv bpy-env && bpy-env/bin/pip install bpy==5.0.1
On Debian and Ubuntu its import also needs
  apt-get install -y libx11-6 libxrender1 libxfixes3 libxi6 libxkbcommon0 libsm6 libice6 libgl1
"""


# --- The program ----------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    options = _parser().parse_args(arguments)
    child = subprocess.run([sys.executable, "-c", "import bpy"], capture_output=True, text=True)
    if child.returncode != 0:
        error = (child.stderr.strip() or f"status {child.returncode}").splitlines()[-1]
        print(MISSING_BPY.format(python=sys.executable, error=error), end="", file=sys.stderr)
        return 2
    for ending in (signal.SIGINT, signal.SIGTERM):  # shells let background jobs ignore SIGINT
        signal.signal(ending, signal.default_int_handler)
    names = ("workers", "samples", "roughness", "seconds", "verbose")
    settings = {name: getattr(options, name) for name in names}
    try:
        with contextlib.closing(BlenderPool(**settings)) as pool:
            return _serve(options, pool.draw, pool.health)
    except DrawingError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


def _serve(options: argparse.Namespace, draw: Draw, health: Mapping[str, Any]) -> int:
    sys.path.append(str(Path(__file__).resolve().parents[2] / "utils"))
    from render_requests import RenderServer  # pyright: ignore[reportMissingImports]

    max_bytes = options.max_megabytes * 10**6
    try:
        server = RenderServer(options.host, options.port, draw, health, max_bytes)
    except OSError as error:
        print(f"Cannot listen at {options.host}:{options.port}: {error}", file=sys.stderr)
        return 2
    with server:
        host, port = server.address
        print(f"Ready at http://{host}:{port}: {json.dumps(health)}", flush=True)
        try:
            server.serve_forever()
        except OSError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fleet_tools.blender",
        description="Renders glTF scenes with Blender for Drake's glTF render client, over HTTP.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address; 127.0.0.1 serves this machine only")
    add("--port", type=int, default=8000, help="port; 0 takes a free one")
    add("--workers", type=_count, default=1, help="number of images drawn at the same time")
    add("--samples", type=_count, default=16, help="light paths per pixel")
    add("--roughness", type=_ratio, default=0.5, help="of surfaces: 0 mirrors, 1 is matte")
    add("--seconds", type=_count, default=600, help="time limit of an image, s")
    add("--max-megabytes", type=_count, default=256, help="largest size of a request")
    add("--verbose", action="store_true", help="pass on Blender's own output")
    return parser


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; given: {number}")
    return number


def _ratio(text: str) -> float:
    if not 0.0 <= (number := float(text)) <= 1.0:
        raise argparse.ArgumentTypeError(f"must lie in [0, 1]; given: {number}")
    return number


# --- The pool -------------------------------------------------------------------------------


class DrawingError(Exception):
    """Blender cannot draw a scene, or does not start."""


class BlenderPool:
    """Blender processes that draw at the same time.

    Args:
        workers: Number of processes, among which the machine's cores are divided.
        samples: Light paths per pixel.
        roughness: Roughness of surfaces, see `proper_gltf`.
        seconds: Time limit of an image, s.
        verbose: Whether to pass on Blender's own output.

    Attributes:
        health: Version and settings, as plain JSON data.

    Raises:
        DrawingError: Blender does not start.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        samples: int = 16,
        roughness: float = 0.5,
        seconds: float = 600.0,
        verbose: bool = False,
    ) -> None:
        threads = max(1, (os.cpu_count() or 1) // workers)
        command = [sys.executable, str(Path(__file__).with_name("drawing.py"))]
        for name, value in {"samples": samples, "threads": threads}.items():
            command += [f"--{name}", str(value)]
        self._all = [_Blender(command, seconds, verbose) for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Blender] = queue.SimpleQueue()
        for blender in self._all:
            self._idle.put(blender)
        self._roughness = roughness
        self.health = {
            "blender": self._all[0].version,
            "workers": workers,
            "samples": samples,
            "roughness": roughness,
            "threads": threads,
        }

    def draw(self, scene: dict[str, Any], camera: Mapping[str, float]) -> bytes:
        """Returns an image as PNG, as soon as a process is free to draw it.

        Args:
            scene: The scene as glTF, as Drake writes it.
            camera: Numbers of the camera by name, see `drawing.draw`.

        Raises:
            DrawingError: Blender cannot draw it.
        """
        try:
            standard = proper_gltf(scene, self._roughness)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DrawingError(
                f"This scene is not glTF: {type(error).__name__}: {error}"
            ) from error
        with tempfile.TemporaryDirectory(prefix="fleet_tools_blender_") as folder:
            paths = {"scene": f"{folder}/scene.gltf", "image": f"{folder}/image.png"}
            Path(paths["scene"]).write_text(json.dumps(standard))
            blender = self._idle.get()
            try:
                blender.draw({**camera, **paths})
            finally:
                self._idle.put(blender)
            return Path(paths["image"]).read_bytes()

    def close(self) -> None:
        """Ends all processes."""
        for blender in self._all:
            blender.close()


class _Blender:
    """A Blender process, which is started again if it has ended."""

    def __init__(self, command: list[str], seconds: float, verbose: bool) -> None:
        self._command, self._seconds = command, seconds
        self._stderr = None if verbose else subprocess.DEVNULL
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the server alone, which ends this process
        )
        self.version: str = self._ask(None)["blender"]

    def draw(self, job: Mapping[str, Any]) -> None:
        """Draws an image, see `drawing.draw`."""
        if self._process.poll() is not None:  # it crashed or was too slow with an earlier scene
            self._start()
        self._ask(job)

    def _ask(self, job: Mapping[str, Any] | None) -> dict[str, Any]:
        """Sends a job, if there is one, and returns the next answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # both are pipes
        timer = threading.Timer(self._seconds, self._process.kill)
        timer.start()
        try:
            if job is not None:
                print(json.dumps(job), file=stdin, flush=True)
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            status = self._process.wait()
            raise DrawingError(
                f"Blender ended with status {status}; after {self._seconds:g} s it is killed. "
                "--verbose shows its output."
            )
        answer = json.loads(line)
        if "error" in answer:
            raise DrawingError(f"Blender cannot draw this scene: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def proper_gltf(scene: dict[str, Any], roughness: float) -> dict[str, Any]:
    """Returns a scene of Drake as standard glTF.

    Drake's z axis points up, glTF's y axis does. Drake's colours are as displayed (sRGB), glTF's
    are linear. And VTK, which writes the file, declares every surface perfectly matte.

    Args:
        scene: The scene as Drake sends it.
        roughness: Roughness, from 0 (a mirror) to 1 (matte), of the surfaces to which VTK gives
            none.
    """
    scene = copy.deepcopy(scene)
    for material in scene.get("materials", []):
        surface = material.setdefault("pbrMetallicRoughness", {})
        *color, alpha = surface.get("baseColorFactor", [1.0, 1.0, 1.0, 1.0])
        surface["baseColorFactor"] = [*map(_linear, color), alpha]
        if surface.get("roughnessFactor", 1.0) == 1.0:
            surface["roughnessFactor"] = roughness
    for view in scene["scenes"]:
        half = math.sqrt(0.5)  # a quarter turn about x takes z to y
        scene["nodes"].append({"children": view["nodes"], "rotation": [-half, 0.0, 0.0, half]})
        view["nodes"] = [len(scene["nodes"]) - 1]
    return scene


def _linear(channel: float) -> float:
    """Returns the linear value of an sRGB channel (IEC 61966-2-1)."""
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


if __name__ == "__main__":
    sys.exit(main())
