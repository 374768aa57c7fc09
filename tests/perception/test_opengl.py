"""Where OpenGL is missing or broken, pictures are refused in words, and states work."""

import ctypes.util
import subprocess
import sys
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
from support.processes import ROOT, run_python
from support.rendering import needs_gl

from fleet_tools.errors import MissingLibraryError
from fleet_tools.perception.opengl import renderer, require_driver, require_gl
from fleet_tools.utils.libraries import GL_COMMAND

NO_DRIVER = {
    "no vendor": {"__EGL_VENDOR_LIBRARY_DIRS": "/nonexistent"},
    "no Mesa driver": {"LIBGL_DRIVERS_PATH": "/nonexistent", "GBM_BACKENDS_PATH": "/nonexistent"},
}


@pytest.mark.parametrize("missing", [{"EGL"}, {"GL"}, {"EGL", "GL"}])
def test_missing_libraries_are_named_with_the_line_that_installs_them(monkeypatch, missing):
    found = lambda name: None if name in missing else f"lib{name}.so"  # noqa: E731
    monkeypatch.setattr(ctypes.util, "find_library", found)
    with pytest.raises(MissingLibraryError, match=GL_COMMAND) as error:
        require_gl()
    assert all(f"lib{name}" in str(error.value) for name in missing)


def test_without_gl_pictures_are_refused_at_once_and_states_work(monkeypatch, hammer):
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    with pytest.raises(MissingLibraryError, match=GL_COMMAND):
        gymnasium.make("FleetTools/Hammer-v0", render_mode="rgb_array")
    hammer.reset(seed=0)
    assert hammer.step(np.zeros(6, np.float32))[0]


@needs_gl
@pytest.mark.parametrize(
    "name", ["no vendor", pytest.param("no Mesa driver", marks=pytest.mark.slow)]
)
def test_without_a_driver_a_picture_is_an_error_and_no_crash(monkeypatch, name):
    for variable, value in NO_DRIVER[name].items():
        monkeypatch.setenv(variable, value)
    code = (
        "import gymnasium, fleet_tools\n"
        "gymnasium.make('FleetTools/Hammer-v0', render_mode='rgb_array').reset(seed=0)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert finished.returncode == 1  # Python's; a crash is negative
    assert "MissingLibraryError" in finished.stderr
    assert GL_COMMAND in finished.stderr


@needs_gl
def test_driver_that_renders_has_a_name(make):
    require_driver()
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    env.render()
    assert renderer() != "unknown driver"


@needs_gl
@pytest.mark.skipif(find_spec("triton") is None, reason="comes with torch's builds for GPUs")
def test_pytorch_for_gpus_can_be_used_after_an_image_was_rendered():
    assert run_python(
        "import json, gymnasium, fleet_tools\n"
        "env = gymnasium.make('FleetTools/Hammer-v0', render_mode='rgb_array')\n"
        "env.reset(seed=0)\n"
        "env.render()\n"
        "import triton\n"  # as torch does at an optimizer's first step
        "print(json.dumps(True))"
    )
