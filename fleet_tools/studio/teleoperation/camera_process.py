"""Renders the task's cameras in another process, so that no step waits for images.

The process has another environment of the same task, which is set to the states it receives.
"""

import contextlib
import io
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from fleet_tools.envs.episode_state import EnvState
from fleet_tools.envs.observation_modes import OBS_MODES
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import FleetToolsError
from fleet_tools.parallel.child_process import ChildProcess
from fleet_tools.utils.libraries import require

SIZE = (320, 240)
"""Width and height of the images, pixels."""

_QUALITY = 80  # of JPEG
_JOIN_S = 5.0


class CameraProcess:
    """Renders one state at a time; others that come meanwhile are not shown.

    Args:
        spec: The environment.

    Attributes:
        error: Why there are no images; None while there are.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self._process = ChildProcess(__name__)
        self._pipe = self._process.connection
        self._pipe.send(spec.to_json())
        self._busy = False
        self.error: str | None = None

    def offer(self, state: EnvState) -> bool:
        """Gives a state to be rendered, if the last one is; returns whether it is taken."""
        if self._busy or self.error is not None:
            return False
        try:
            self._pipe.send(state)
        except OSError:
            self.error = "the process that renders has ended"
            return False
        self._busy = True
        return True

    def images(self) -> Mapping[str, bytes] | None:
        """Returns the images of the state that was taken, JPEG by camera; None until they are."""
        try:
            if not self._pipe.poll():
                return None
            received = self._pipe.recv()
        except (EOFError, OSError):
            self.error = self.error or "the process that renders has ended"
            return None
        self._busy = False
        if isinstance(received, str):
            self.error = received
            return None
        return received

    def close(self) -> None:
        """Ends the process."""
        self._process.end(_JOIN_S)


def camera_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keyword arguments of an environment that observes colour images alone."""
    others = {name for mode in OBS_MODES.values() for name in mode.kwargs}
    return {
        **{name: value for name, value in kwargs.items() if name not in others},
        "obs_mode": "rgbd",
        "channels": ["rgb"],
        "camera_size": list(SIZE),
    }


def main(pipe: Connection) -> None:
    """Renders the states that it receives, after the environment's specification."""
    with contextlib.suppress(EOFError, OSError):
        try:
            spec = EnvSpec.model_validate_json(pipe.recv())
            require("PIL", "send images to the page")
            env = EnvSpec(id=spec.id, kwargs=camera_kwargs(spec.kwargs)).make()
        except FleetToolsError as error:
            pipe.send(str(error))
            return
        while True:
            state = pipe.recv()
            try:
                observation = unwrap(env).set_state(state)
            except FleetToolsError:  # such as a state that is not finite
                observation = {}
            images = {
                name: image for name, image in observation.items() if env.features[name].is_image
            }
            pipe.send({name.removesuffix("_rgb"): _jpeg(image) for name, image in images.items()})


def _jpeg(image: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()
