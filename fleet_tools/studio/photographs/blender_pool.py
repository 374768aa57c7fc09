"""Blender processes that draw glTF scenes at the same time.

A Blender process holds only one scene, so each of a pool of processes runs `drawing.py`, by a
Python that has `bpy`. Scenes are written as standard glTF, which Drake's are not quite.
"""

import copy
import json
import math
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet_tools.errors import RenderServerError

_MISSING_BPY = """Blender cannot be imported by {python}:
  {error}
Install it into an environment of its own, because it needs its own version of numpy:
  python3.11 -m venv bpy-env && bpy-env/bin/pip install bpy==5.0.1
On Debian and Ubuntu its import also needs
  apt-get install -y libx11-6 libxrender1 libxfixes3 libxi6 libxkbcommon0 libsm6 libice6 libgl1"""


LIMIT_S = 600.0
"""Time limit of an image, s."""

ROUGHNESS = 0.5
"""Roughness, from 0 (a mirror) to 1 (matte), of the surfaces to which VTK gives none."""


def _require_bpy(python: str) -> None:
    try:
        child = subprocess.run([python, "-c", "import bpy"], capture_output=True, text=True)
    except OSError as error:
        raise RenderServerError(f"{python} cannot be run as Python: {error}") from error
    if child.returncode != 0:
        error = (child.stderr.strip() or f"status {child.returncode}").splitlines()[-1]
        raise RenderServerError(_MISSING_BPY.format(python=python, error=error))


class BlenderPool:
    """Blender processes that draw at the same time.

    Args:
        python: Python that has `bpy`.
        workers: Number of processes, among which the machine's cores are divided.
        samples: Light paths per pixel.
        verbose: Whether to pass on Blender's own output.

    Attributes:
        health: Version and settings, as plain JSON data.

    Raises:
        RenderServerError: Blender does not start, or is not there; the message says what to do.
    """

    def __init__(
        self, python: str, *, workers: int = 1, samples: int = 16, verbose: bool = False
    ) -> None:
        _require_bpy(python)
        threads = max(1, (os.cpu_count() or 1) // workers)
        drawing = Path(__file__).with_name("drawing.py")
        command = [python, str(drawing), f"--samples={samples}", f"--threads={threads}"]
        self._all = [_Blender(command, verbose) for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Blender] = queue.SimpleQueue()
        for blender in self._all:
            self._idle.put(blender)
        self.health = {
            "blender": self._all[0].version,
            "workers": workers,
            "samples": samples,
            "threads": threads,
        }

    def draw(self, scene: dict[str, Any], camera: Mapping[str, float]) -> bytes:
        """Returns an image as PNG, as soon as a process is free to draw it.

        Args:
            scene: The scene as glTF, as Drake writes it.
            camera: Numbers of the camera by name, see `drawing.draw`.

        Raises:
            RenderServerError: Blender cannot draw it.
        """
        try:
            standard = proper_gltf(scene)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RenderServerError(
                f"The scene is not valid glTF: {type(error).__name__}: {error}"
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

    def __init__(self, command: list[str], verbose: bool) -> None:
        self._command = command
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
        timer = threading.Timer(LIMIT_S, self._process.kill)
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
            raise RenderServerError(
                f"Blender ended with status {status} (its time limit is {LIMIT_S:g} s). "
                "--verbose shows its output."
            )
        answer = json.loads(line)
        if "error" in answer:
            raise RenderServerError(f"Blender cannot draw this scene: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def proper_gltf(scene: dict[str, Any]) -> dict[str, Any]:
    """Returns a scene, as Drake sends it, as standard glTF.

    Drake's z axis points up, glTF's y axis does. Drake's colours are as displayed (sRGB), glTF's
    are linear. And VTK, which writes the file, declares every surface perfectly matte.
    """
    scene = copy.deepcopy(scene)
    for material in scene.get("materials", []):
        surface = material.setdefault("pbrMetallicRoughness", {})
        *color, alpha = surface.get("baseColorFactor", [1.0, 1.0, 1.0, 1.0])
        surface["baseColorFactor"] = [*map(_linear, color), alpha]
        if surface.get("roughnessFactor", 1.0) == 1.0:
            surface["roughnessFactor"] = ROUGHNESS
    for view in scene["scenes"]:
        half = math.sqrt(0.5)  # a quarter turn about x takes z to y
        scene["nodes"].append({"children": view["nodes"], "rotation": [-half, 0.0, 0.0, half]})
        view["nodes"] = [len(scene["nodes"]) - 1]
    return scene


def _linear(channel: float) -> float:
    """Returns the linear value of an sRGB channel (IEC 61966-2-1)."""
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
