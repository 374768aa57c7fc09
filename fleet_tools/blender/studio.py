"""Several Blenders at work, each a process that runs `drawing.py`: one process has one scene."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path


class DrawingError(Exception):
    """Blender could not draw a scene, or could not even begin."""


class Studio:
    """As many Blenders as draw at the same time.

    Args:
        workers: How many; the machine's cores are shared out among them.
        samples: Light paths per pixel.
        roughness: Of surfaces, see `drake_gltf.proper_gltf`.
        seconds: A picture may take.
        verbose: Whether to pass on what Blender says.

    Attributes:
        health: What works here.

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
        look = {"samples": samples, "roughness": roughness, "threads": threads}
        command = [sys.executable, str(Path(__file__).with_name("drawing.py"))]
        for name, value in look.items():
            command += [f"--{name}", str(value)]
        self._all = [_Blender(command, seconds, verbose) for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Blender] = queue.SimpleQueue()
        for blender in self._all:
            self._idle.put(blender)
        self.health = {"blender": self._all[0].version, "workers": workers, **look}

    def draw(self, scene: dict, camera: Mapping[str, float]) -> bytes:
        """Returns a picture as PNG, once a Blender is free to draw it.

        Args:
            scene: glTF as Drake writes it.
            camera: See `drawing.draw`.

        Raises:
            DrawingError: Blender cannot.
        """
        with tempfile.TemporaryDirectory(prefix="fleet_tools_blender_") as folder:
            paths = {"scene": f"{folder}/scene.gltf", "picture": f"{folder}/picture.png"}
            Path(paths["scene"]).write_text(json.dumps(scene))
            blender = self._idle.get()
            try:
                blender.draw({**camera, **paths})
            finally:
                self._idle.put(blender)
            return Path(paths["picture"]).read_bytes()

    def close(self) -> None:
        """Ends all Blenders."""
        for blender in self._all:
            blender.close()


class _Blender:
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
            start_new_session=True,  # Ctrl-C is for the server, which ends it
        )
        self.version = self._ask()["blender"]

    def draw(self, job: dict) -> None:
        if self._process.poll() is not None:  # the last scene was its end
            self._start()
        self._ask(job)

    def _ask(self, job: dict | None = None) -> dict:
        # Whoever waits for a picture must not wait for ever.
        alarm = threading.Timer(self._seconds, self._process.kill)
        alarm.start()
        try:
            if job is not None:
                print(json.dumps(job), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            alarm.cancel()
        if not line:
            status = self._process.wait()
            raise DrawingError(
                f"Blender ended with status {status}; it is ended itself after "
                f"{self._seconds:g} s. --verbose shows what it says."
            )
        answer = json.loads(line)
        if "error" in answer:
            raise DrawingError(f"Blender cannot draw this: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
