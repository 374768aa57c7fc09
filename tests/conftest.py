"""Fixtures shared by all tests: environments and datasets that are made once per process."""

import functools
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import hypothesis
import pytest
from support.environments import IDS
from support.shares import QUICK_EXAMPLES

from fleet_tools.parallel.backend import ONE_THREAD

if TYPE_CHECKING:
    from support.small_disks import Disk

    from fleet_tools.dataset import Dataset
    from fleet_tools.envs.tool_use_env import ToolUseEnv

# The same examples everywhere, so that a passing suite keeps passing; `.ci/nightly` tries more.
for _profile, _count in (("fleet_tools", QUICK_EXAMPLES), ("thorough", 100)):
    hypothesis.settings.register_profile(
        _profile, deadline=None, derandomize=True, max_examples=_count
    )
hypothesis.settings.load_profile("fleet_tools")


def pytest_configure(config: pytest.Config) -> None:
    """Lets each process of `pytest -n 2` use one core, and no Ray cluster that runs already.

    Shells let background jobs ignore Ctrl-C, and so would the programs that tests interrupt.

    Processes inherit the environment. They keep compiled modules (`__pycache__`) also where Python
    is told not to: each of the many that tests start would compile the package again.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("RAY_ADDRESS", None)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if config.getoption("numprocesses", None):
        for name, threads in ONE_THREAD.items():
            os.environ.setdefault(name, threads)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks images, vectors and copies of all environments but the first as slow.

    Copies with pictures and vectors in other processes are slow of all environments.
    """
    for item in items:
        callspec = getattr(item, "callspec", None)  # of parametrized tests
        parameters = {} if callspec is None else callspec.params
        env_kwargs = parameters.get("env_kwargs")
        mode = env_kwargs.get("obs_mode") if isinstance(env_kwargs, dict) else None
        images, pictures = mode is not None, mode == "rgbd"
        vectors = "mode" in parameters
        copies = item.name.startswith("test_copied_and_pickled")
        first = parameters.get("environment_id", IDS[0]) == IDS[0]
        if (pictures and copies) or parameters.get("mode") == "async":
            item.add_marker(pytest.mark.slow)
        if (images or vectors or copies) and not first:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Exempts imported modules from garbage collection, which environments run for each world."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Exempts what a file's tests imported, too, if it is much.

    A hundred thousand objects of libraries that are imported late would double the time in which an
    environment is reset.
    """
    if (nextitem is None or nextitem.path != item.path) and len(gc.get_objects()) > MANY_OBJECTS:
        gc.collect()
        gc.freeze()


MANY_OBJECTS = 40_000
"""More than most files' tests leave."""


@pytest.fixture(autouse=True)
def _torch_seed() -> None:
    """Seeds PyTorch's global generator, so that no test depends on the tests before it."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)  # `manual_seed` seeds all devices, slowly


@pytest.fixture(scope="session", name="uninterrupted")
def _uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset that the program collected without interruption and without workers."""
    from support.collected import options

    from fleet_tools import collect

    folder = tmp_path_factory.mktemp("uninterrupted") / "hammer"
    assert collect.main(options(folder, "--quiet")) == 0
    return folder


@pytest.fixture(scope="session", name="collected")
def _collected(tmp_path_factory: pytest.TempPathFactory) -> "Callable[[str], Dataset]":
    """A function that collects a dataset for export, by observation mode, each once."""
    from support.exported import write_collected

    return functools.cache(lambda mode: write_collected(tmp_path_factory.mktemp(mode) / mode, mode))


@pytest.fixture(scope="session", name="make")
def _make() -> "Callable[..., ToolUseEnv]":
    """A function that makes environments without wrappers, each configuration once."""
    from fleet_tools.envs.tool_use_env import unwrap

    made: dict[str, ToolUseEnv] = {}

    def make(environment_id: str = "FleetTools/Hammer-v0", **kwargs: Any) -> "ToolUseEnv":
        key = json.dumps([environment_id, kwargs], sort_keys=True)
        if key not in made:
            made[key] = unwrap(gymnasium.make(environment_id, **kwargs))
        return made[key]

    return make


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> "Iterator[Disk]":
    """A disk that fills, on which nothing else is."""
    from support.small_disks import make_disk

    folder = tmp_path / "disk"
    folder.mkdir()
    disk = make_disk(folder)
    yield disk
    disk.close()


@pytest.fixture(scope="session", name="hammer")
def _hammer(make: "Callable[..., ToolUseEnv]") -> "ToolUseEnv":
    """An environment with one pair of models, which is quick to reset."""
    return make(tool="claw", object="round_nail")
