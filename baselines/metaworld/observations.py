"""Observations of policies in Meta-World besides the task: the state, or image features.

MuJoCo renders images with EGL, which needs no display.
"""

import importlib
import weakref
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fleet_tools.baselines.metaworld.encoder import FEATURES, FrozenEncoder, open_encoder
from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.errors import ConfigError, MissingLibraryError, require_name
from fleet_tools.perception.opengl import require_driver, require_gl
from fleet_tools.utils.libraries import GL_COMMAND

CAMERA = "corner2"
"""Camera in front of the robot; its images are turned upright."""

_MAX_GEOMETRIES = 2000

OBS_MODES = ("state", "features")

FEATURE_IMAGE_SIZE = (128, 128)
"""Width and height of the images for features, in pixels."""

_HAND = ("hand_x", "hand_y", "hand_z", "gripper_opening")
_OBJECTS = tuple(
    f"object_{number}_{part}"
    for number in (1, 2)
    for part in ("x", "y", "z", "qx", "qy", "qz", "qw")
)
STATE = (
    *_HAND,
    *_OBJECTS,
    *(f"previous_{name}" for name in (*_HAND, *_OBJECTS)),
    "goal_x",
    "goal_y",
    "goal_z",
)
"""Entries of Meta-World's observation, with the goal."""


class MetaWorldObserver(Protocol):
    """Observes one simulation.

    Attributes:
        entries: Entries of the observation, by name.
    """

    entries: dict[str, ArraySpec]

    def observe(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the observation of the present moment.

        Args:
            state: (39,) float32, see `STATE`.
        """
        ...

    def close(self) -> None:
        """Frees its resources."""
        ...


class StateObserver:
    """Observes the state: "state", (39,) float32."""

    def __init__(self) -> None:
        unit = "m, quaternion, fraction of the gripper's opening"
        self.entries = {"state": _entry(len(STATE), unit, "world", STATE)}

    def observe(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the state."""
        return {"state": state.copy()}

    def close(self) -> None:
        """Does nothing."""


class FeatureObserver:
    """Observes an image and the hand, but neither objects nor the goal.

    "features", (512,) float32, of the camera's image by a frozen encoder; "hand", (4,) float32,
    position and opening of the gripper.

    The unit of the features names the encoder and the image. So features of different encoders do
    not fit together, in datasets and in policies.

    Args:
        simulation: Meta-World's environment.
        encoder: Encoder of images.

    Raises:
        MissingLibraryError: The system has no OpenGL. A missing driver is found with the first
            image, as drivers do not survive a fork.
    """

    def __init__(self, simulation: Any, encoder: FrozenEncoder) -> None:
        require_gl()
        self._simulation, self._encoder = simulation, encoder
        self._renderer: MuJoCoRenderer | None = None
        width, height = FEATURE_IMAGE_SIZE
        unit = f"features of {CAMERA}, {width} x {height}, by {encoder.name}"
        self.entries = {
            "features": _entry(FEATURES, unit, None, ()),
            "hand": _entry(len(_HAND), "m, fraction of the gripper's opening", "world", _HAND),
        }

    def observe(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """Returns features and hand.

        Raises:
            MissingLibraryError: No OpenGL driver works here.
        """
        if self._renderer is None:
            self._renderer = MuJoCoRenderer(
                self._simulation.model, FEATURE_IMAGE_SIZE, simplified=True
            )
        image = self._renderer.render(self._simulation.data)
        return {"features": self._encoder.encode(image), "hand": state[: len(_HAND)].copy()}

    def close(self) -> None:
        """Frees the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def make_observer(
    simulation: Any, obs_mode: str, encoder: str | None, weights: str | Path | None
) -> MetaWorldObserver:
    """Makes the observer of a mode.

    Args:
        simulation: Meta-World's environment.
        obs_mode: One of `OBS_MODES`.
        encoder: See `encoder.open_encoder`; only for features.
        weights: Likewise.

    Raises:
        UnknownNameError: There is no such mode.
        ConfigError: An encoder is given for a mode without images.
        FleetToolsError: See `encoder.open_encoder` and `FeatureObserver`.
    """
    require_name("observation mode of Meta-World", obs_mode, OBS_MODES)
    if obs_mode == "features":
        return FeatureObserver(simulation, open_encoder(encoder, weights))
    if encoder is not None or weights is not None:
        raise ConfigError(
            f'An encoder and its weights need obs_mode="features"; given: obs_mode={obs_mode!r}.'
        )
    return StateObserver()


def _entry(size: int, unit: str, frame: str | None, entries: tuple[str, ...]) -> ArraySpec:
    return ArraySpec(
        kind="state", shape=(size,), dtype="float32", unit=unit, frame=frame, entries=entries
    )


class MuJoCoRenderer:
    """Renders a simulation from a camera of its model, without shadows.

    In one process with Drake's renderer, its images depend on Drake's earlier ones; use separate
    processes for exact bits.

    Args:
        model: MuJoCo's model.
        size: Width and height of images, in pixels, within the model's buffer of 640 x 480.
        simplified: Whether to render without reflections and smoothing, in a third of the time.

    Raises:
        MissingLibraryError: EGL or an OpenGL driver is missing.
    """

    def __init__(self, model: Any, size: tuple[int, int], *, simplified: bool = False) -> None:
        require_driver()
        mujoco: Any = importlib.import_module("mujoco")  # without types
        try:
            # Not chosen by MUJOCO_GL, which is read when MuJoCo is imported.
            context: Any = importlib.import_module("mujoco.egl").GLContext
        except Exception as error:  # of the platform's libraries, of several classes
            raise MissingLibraryError(
                f"MuJoCo cannot render with EGL: {error}. On Debian and Ubuntu: {GL_COMMAND}"
            ) from error
        width, height = size
        self._mujoco, self._model = mujoco, model
        self._gl = context(width, height)
        self._gl.make_current()
        scale = mujoco.mjtFontScale.mjFONTSCALE_150
        quality = model.vis.quality
        samples = quality.offsamples
        try:
            if simplified:
                quality.offsamples = 0
            self._context = mujoco.MjrContext(model, scale)
        finally:
            quality.offsamples = samples
        # Also at the end of the process, while OpenGL's library is still there.
        self._free = weakref.finalize(self, _free, self._gl, self._context)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(model, _MAX_GEOMETRIES)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False  # as slow as all the rest
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = not simplified
        self._camera, self._options = mujoco.MjvCamera(), mujoco.MjvOption()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = model.camera(CAMERA).id
        self._rectangle = mujoco.MjrRect(0, 0, width, height)

    def render(self, data: Any) -> np.ndarray:
        """Returns an image of a state, (height, width, 3) uint8."""
        mujoco = self._mujoco
        self._gl.make_current()
        every = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(
            self._model, data, self._options, None, self._camera, every, self._scene
        )
        mujoco.mjr_render(self._rectangle, self._scene, self._context)
        image = np.empty((self._rectangle.height, self._rectangle.width, 3), np.uint8)
        mujoco.mjr_readPixels(image, None, self._rectangle, self._context)
        # OpenGL's rows begin at the bottom, which is up for this camera; columns are mirrored.
        return image[:, ::-1].copy()

    def close(self) -> None:
        """Frees the context; more than once does nothing."""
        self._free()


def _free(gl: Any, context: Any) -> None:
    gl.make_current()  # or another renderer's objects would be deleted
    context.free()
    gl.free()
