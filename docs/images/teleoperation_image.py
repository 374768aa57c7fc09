"""Takes the picture of teleoperation: `python docs/images/teleoperation_image.py`.

A key lowers the hammer in the first scene of the task; Chromium shows the page.
"""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))  # for the session in a browser

from support.teleoperated import (  # noqa: E402 # pyright: ignore[reportMissingImports]
    act_in,
    opened,
    wait_for_phase,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page


def take_picture(page: "Page") -> None:
    """Moves the arm by keys, and takes the picture."""
    page.wait_for_timeout(15_000)  # the browser loads the scene
    notice = page.frame_locator("iframe").locator(".mantine-Notification-closeButton")
    if notice.count():  # that this machine has no graphics processor
        notice.first.click()
    page.keyboard.down("KeyQ")
    page.keyboard.down("KeyA")
    wait_for_phase(page, "Running")
    page.wait_for_timeout(1_500)
    page.keyboard.up("KeyQ")
    page.keyboard.up("KeyA")
    page.wait_for_timeout(5_000)  # and draws
    page.screenshot(path=HERE / "teleoperation.png", timeout=120_000)


def main() -> None:
    """Writes `teleoperation.png`."""
    with tempfile.TemporaryDirectory() as name, opened(Path(name), "hammer") as session:
        act_in(session, take_picture, width=1200, height=720)


if __name__ == "__main__":
    main()
