"""Clicks of a person on a page of viser: points in space become pixels of the canvas."""

import time
from typing import TYPE_CHECKING

import numpy as np

from fleet_tools.studio.labelling.page import LabelPage
from fleet_tools.studio.labelling.proposals import centroid

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATIENCE_S = 60.0
"""Longest wait for what a page is to show."""


def wait_until(holds, what: str, patience_s: float = PATIENCE_S) -> None:
    """Waits until a function returns true, or fails."""
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, f"{what} did not come within {patience_s} s"
        time.sleep(0.05)


class Person:
    """Who looks at a page and clicks on it."""

    def __init__(self, page: LabelPage, browser: "Page") -> None:
        self.page, self.browser = page, browser
        wait_until(lambda: page.server.get_clients(), "the client")
        (self._client,) = page.server.get_clients().values()
        browser.locator("canvas").first.wait_for(timeout=1000 * PATIENCE_S)
        browser.get_by_role("button", name="Undo").wait_for(timeout=1000 * PATIENCE_S)
        wait_until(self._sees_something, "the drawing of the mesh")
        notice = browser.locator("[class*=Notification-closeButton]")
        if notice.count():  # that WebGL runs in software; it lies over the mesh
            notice.first.click()

    def _sees_something(self) -> bool:
        """Whether the mesh is drawn: the camera's image is not blank."""
        return float(np.std(self._client.get_render(height=60, width=90))) > 3

    def view(self, direction: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns eye and target, (3,) each, of one who sees a point from a direction."""
        surface = self.page.session.surface
        distance = 1.6 * float(np.ptp(surface.vertices, axis=0).max())
        target = (at + centroid(surface)) / 2
        return target + distance * direction / np.linalg.norm(direction), target

    def look_from(self, direction: np.ndarray, at: np.ndarray) -> None:
        """Orbits until a point, (3,), is seen from a direction, (3,)."""
        camera = self._client.camera
        before = camera.update_timestamp
        camera.position, camera.look_at = self.view(direction, at)
        wait_until(lambda: camera.update_timestamp > before, "the camera")
        self.browser.wait_for_timeout(300)  # the browser draws

    def pixel(self, p_W: np.ndarray) -> tuple[float, float]:
        """Returns where a point, (3,), is seen on the page, in pixels."""
        from scipy.spatial.transform import Rotation

        camera = self._client.camera
        w, x, y, z = camera.wxyz
        p_C = Rotation.from_quat([x, y, z, w]).as_matrix().T @ (p_W - camera.position)
        box = self.browser.locator("canvas").first.bounding_box()
        assert box is not None and p_C[2] > 0
        focal = box["height"] / 2 / np.tan(camera.fov / 2)
        u, v = focal * p_C[:2] / p_C[2]
        return box["x"] + box["width"] / 2 + u, box["y"] + box["height"] / 2 + v

    def click(self, p_W: np.ndarray, seen_from: np.ndarray) -> None:
        """Orbits so that a point, (3,), is seen from a direction, (3,), and clicks on it."""
        self.look_from(seen_from, p_W)
        before = self.page.session.labels, self.page.session.first
        u, v = self.pixel(p_W)
        self.browser.mouse.move(u, v)
        self.browser.wait_for_timeout(100)
        self.browser.mouse.click(u, v)
        wait_until(
            lambda: (self.page.session.labels, self.page.session.first) != before, "the click"
        )

    def drag(self, p_W: np.ndarray, axis: np.ndarray) -> None:
        """Drags the arrow of a point's handles, (3,), along an axis of theirs, (3,)."""
        extent = float(np.ptp(self.page.session.surface.vertices, axis=0).max())
        grip = p_W + 0.11 * extent * axis
        start, end = self.pixel(grip), self.pixel(grip + 0.07 * extent * axis)
        before = self.page.session.labels
        mouse = self.browser.mouse
        mouse.move(*start)
        self.browser.wait_for_timeout(500)
        mouse.down()
        self.browser.wait_for_timeout(500)
        for t in np.linspace(0, 1, 6):
            u, v = (1 - t) * np.array(start) + t * np.array(end)
            mouse.move(float(u), float(v))
            self.browser.wait_for_timeout(200)
        mouse.up()
        wait_until(lambda: self.page.session.labels != before, "the drag")

    def press(self, button: str) -> None:
        """Presses a button by its name, as far as it is given."""
        self.browser.get_by_role("button", name=button, exact=True).click()

    def choose(self, item: str) -> None:
        """Chooses what the next click labels."""
        self.press(item)
        wait_until(lambda: self.page.session.item == item, f"the choice of {item}")

    def snap_to(self, snap: str) -> None:
        """Chooses what a click means."""
        self.take("A click means", snap)
        wait_until(lambda: self.page.session.snap == snap, snap)

    def take(self, label: str, option: str) -> None:
        """Chooses an option of a list."""
        self.browser.get_by_label(label, exact=True).click()
        self.browser.get_by_role("option", name=option, exact=True).click()

    def fill(self, label: str, text: str) -> None:
        """Types into a field, and leaves it."""
        field = self.browser.get_by_label(label, exact=True)
        field.click()
        field.press("Control+A")
        field.press_sequentially(text, delay=100)
        field.press("Enter")
        field.blur()
