"""Checks for EGL and an OpenGL driver, without which VTK would end the process."""

import ctypes
import ctypes.util
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from fleet_tools.errors import MissingLibraryError
from fleet_tools.utils.libraries import GL_COMMAND

_EGL_PLATFORM_DEVICE_EXT = 0x313F
_GL_RENDERER = 0x1F01
_MAX_DEVICES = 64


def require_gl() -> None:
    """Checks that the system has the libraries for rendering; does not load a driver.

    Raises:
        MissingLibraryError: It does not; the message says how to install them.
    """
    missing = [name for name in ("EGL", "GL") if ctypes.util.find_library(name) is None]
    if missing:
        raise MissingLibraryError(
            f"Rendering needs the system libraries {', '.join('lib' + m for m in missing)}. "
            f"On Debian and Ubuntu: {GL_COMMAND}"
        )


@functools.cache
def require_driver() -> None:
    """Checks that EGL has a driver, once per process; without one, VTK would end the process.

    Call it just before rendering begins: it loads the driver, which does not survive a fork.

    Raises:
        MissingLibraryError: The libraries are missing, or EGL finds no driver that works.
    """
    require_gl()
    _load_triton()
    egl = ctypes.CDLL(ctypes.util.find_library("EGL"))
    egl.eglInitialize.argtypes = [ctypes.c_void_p] * 3
    if not any(egl.eglInitialize(display, None, None) for display in _displays(egl)):
        raise MissingLibraryError(
            "Rendering needs an OpenGL driver, and EGL finds none that works. "
            f"On Debian and Ubuntu, Mesa's driver needs no GPU: {GL_COMMAND}"
        )


def _load_triton() -> None:
    """Loads the library of Triton, where it is installed, before a driver.

    Mesa's drivers make the symbols of their LLVM global. Triton, which comes with PyTorch's builds
    for GPUs and which PyTorch imports for its optimizers, has an LLVM of another version. Loaded
    after a driver, it calls Mesa's, and the process ends by a segmentation fault.
    """
    spec = importlib.util.find_spec("triton")
    for folder in (spec and spec.submodule_search_locations) or ():
        library = Path(folder) / "_C" / "libtriton.so"
        if library.is_file():
            ctypes.CDLL(str(library))


def renderer() -> str:
    """Returns the name of the driver that rendered this thread's last image."""
    egl = ctypes.CDLL(ctypes.util.find_library("EGL"))
    egl.eglGetProcAddress.argtypes = [ctypes.c_char_p]
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    get_string = egl.eglGetProcAddress(b"glGetString")
    name = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_uint)(get_string)(_GL_RENDERER)
    return name.decode() if name else "unknown driver"


def _displays(egl: ctypes.CDLL) -> Iterator[int]:
    """Yields EGL's displays in the order in which VTK tries them: devices, then the default."""
    egl.eglGetProcAddress.argtypes = [ctypes.c_char_p]
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    query = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    display_of = egl.eglGetProcAddress(b"eglGetPlatformDisplayEXT")
    if query and display_of:
        count = ctypes.c_int(0)
        devices = (ctypes.c_void_p * _MAX_DEVICES)()
        counted = ctypes.byref(count)
        ctypes.CFUNCTYPE(
            ctypes.c_uint, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
        )(query)(_MAX_DEVICES, devices, counted)
        get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)
        for device in devices[: count.value]:
            display = get(display_of)(_EGL_PLATFORM_DEVICE_EXT, device, None)
            if display:
                yield display
    egl.eglGetDisplay.argtypes = [ctypes.c_void_p]
    egl.eglGetDisplay.restype = ctypes.c_void_p
    if default := egl.eglGetDisplay(None):
        yield default
