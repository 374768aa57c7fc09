"""A session with all that it needs: devices, page, scene and cameras."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fleet_tools.dataset.dataset_folder import DatasetWriter
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.teleoperation.display import Display
from fleet_tools.teleoperation.inputs import Inputs
from fleet_tools.teleoperation.pace import Pace, RealTime
from fleet_tools.teleoperation.page_server import PageServer
from fleet_tools.teleoperation.scene_view import SceneView
from fleet_tools.teleoperation.session import Session
from fleet_tools.teleoperation.space_mouse import SpaceMouse


@dataclass(frozen=True, eq=False)
class OpenSession:
    """A session that a person can open in the browser.

    Attributes:
        session: The session, which is not running yet.
        inputs: Its devices.
        url: Address of the page.
    """

    session: Session
    inputs: Inputs
    url: str


@contextlib.contextmanager
def open_session(
    env: ToolUseEnv,
    writer: DatasetWriter,
    *,
    port: int = 0,
    episodes: int | None = None,
    verify: bool = False,
    spacemouse: bool = False,
    make_pace: Callable[[Inputs, float], Pace] = RealTime,
) -> Iterator[OpenSession]:
    """Opens a session; at its end, page and cameras are closed.

    Args:
        env: The environment of the dataset.
        writer: Writer of the dataset.
        port: Port of the page; 0 takes a free one.
        episodes: See `Session`.
        verify: See `Session`.
        spacemouse: Whether to read the SpaceMouse that is connected.
        make_pace: Makes what decides when steps are due, from the devices and the duration of a
            step, s.

    Raises:
        ConfigError: The port is taken, or there is no SpaceMouse.
        MissingLibraryError: A library is absent.
    """
    inputs = Inputs()
    with contextlib.ExitStack() as stack:
        if spacemouse:
            stack.enter_context(SpaceMouse(inputs))
        pages = stack.enter_context(PageServer(inputs, port))
        scene_view = stack.enter_context(contextlib.closing(SceneView(inputs.drag)))
        display = Display(env, writer.header.local_spec(), inputs, pages, scene_view)
        stack.enter_context(contextlib.closing(display))
        pace = make_pace(inputs, 1.0 / env.metadata["render_fps"])
        session = Session(env, writer, inputs, pace, display, episodes, verify)
        yield OpenSession(session, inputs, pages.url)
