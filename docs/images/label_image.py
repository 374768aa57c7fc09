"""Takes the picture of the labelling page: `python docs/images/label_image.py`.

A mallet of a box and a cylinder, in millimetres and turned, is labelled as by clicks; Chromium
shows the page.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import trimesh

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))  # for Chromium's flags

from support.chromium import open_page  # noqa: E402 # pyright: ignore[reportMissingImports]

from fleet_tools.studio.labelling.page import LabelPage  # noqa: E402
from fleet_tools.studio.labelling.session import LabellingSession  # noqa: E402
from fleet_tools.studio.labelling.subjects import MeshSubject  # noqa: E402

TURN = trimesh.transformations.euler_matrix(0.5, -0.35, 0.3)


def mallet(folder: Path) -> Path:
    """Writes the mesh of `docs/tutorials/own_mesh.md`, turned, and returns its file."""
    handle = trimesh.creation.box([270, 22, 22])
    handle.apply_translation([25, 0, 0])
    head = trimesh.creation.cylinder(radius=15, height=95, sections=48)
    head.apply_translation([160, 0, 2.5])
    mesh = trimesh.util.concatenate([handle, head])
    mesh.apply_transform(TURN)
    mesh.export(folder / "mallet.stl")
    return folder / "mallet.stl"


def label(session: LabellingSession) -> None:
    """Labels the mallet by the rays of clicks."""

    def click(target: list[float], seen_from: list[float]) -> None:
        p_M, away = TURN[:3, :3] @ np.array(target), TURN[:3, :3] @ np.array(seen_from)
        session.click(p_M + away, -away)

    session.snap = "face centre"
    click([0.163, 0.004, 0.05], [0, 0, 1])
    session.derive()
    click([-0.11, 0.003, 0.002], [-1, 0, 0])
    click([0.0, 0.0, 0.011], [0, 0, 1])
    session.set(mass=0.45)


def main() -> None:
    """Writes `label.png`."""
    with tempfile.TemporaryDirectory() as name:
        session = LabellingSession(
            MeshSubject(mallet(Path(name)), "tool", "hammer", Path(name) / "out")
        )
        label(session)
        page = LabelPage(session)
        try:
            with open_page(page.url, width=1200, height=720) as browser:
                browser.get_by_role("button", name="Undo").wait_for(timeout=120_000)
                browser.wait_for_timeout(15_000)  # the browser draws
                notice = browser.locator(".mantine-Notification-closeButton")
                if notice.count():  # that this machine has no graphics processor
                    notice.first.click()
                    browser.wait_for_timeout(2_000)
                browser.screenshot(path=HERE / "label.png", timeout=120_000)
        finally:
            page.close()


if __name__ == "__main__":
    main()
