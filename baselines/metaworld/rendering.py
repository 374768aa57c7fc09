"""Images of Meta-World, by MuJoCo's renderer with EGL, which needs no display."""

import importlib
import weakref
from typing import Any

import numpy as np

from fleet_tools.errors import MissingLibraryError
from fleet_tools.perception.opengl import require_driver
from fleet_tools.utils.libraries import GL_COMMAND

CAMERA = "corner2"
"""Camera whose image is turned upright, from in front of the robot."""

_MAX_GEOMETRIES = 2000


class MuJoCoRenderer:
    """Renders a simulation from a camera of its model, without shadows.

    In one process with Drake's renderer, its images depend on what that has drawn before; use
    another process where bits matter.

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
