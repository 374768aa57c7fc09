"""The page in Chromium: a person labels meshes that were made by other means than our generators.

Turned tools in millimetres are opened as STL files. Their labels are clicked, none is typed.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import trimesh
from support.chromium import open_page
from support.clicking import Person, wait_until
from support.foreign_models import ForeignTool, foreign_tool

from fleet_tools.sim.catalog import load_model
from fleet_tools.studio.labelling.picking import nearest, size
from fleet_tools.studio.labelling.session import LabellingSession
from fleet_tools.studio.labelling.subjects import MeshSubject, find_example

pytest.importorskip("viser", reason="needs the extra browser")
LabelPage = pytest.importorskip("fleet_tools.studio.labelling.page").LabelPage

pytestmark = pytest.mark.slow  # it starts a browser

TURN = trimesh.transformations.euler_matrix(0.4, -0.9, 2.1)
R = TURN[:3, :3]

HANDLE = (np.array([0.0, 0.001, -0.011]), np.array([0.0, 0.5, -1.0]))
"""Where the handle is clicked, and from where it is seen, in the tool's axes."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """How a keypoint is clicked.

    Attributes:
        direction: From where it is seen, in the tool's axes.
        snap: What the click means.
        beside: Where the click is beside it, in the tool's axes, m.
    """

    direction: tuple[float, float, float]
    snap: str = "surface"
    beside: tuple[float, float, float] = (0.0, 0.0, 0.0)


CLICKS: dict[str, dict[str, Seen]] = {
    "hammer": {
        "head": Seen((0.3, -0.3, 1), "face centre", (0.005, 0.002, 0)),
        "tail": Seen((-1, 0.3, 0.4), "face centre", (0, 0.003, 0.002)),
    },
    "wrench": {"left": Seen((1, 0.35, 0.4)), "upper": Seen((0.2, 0.2, -1))},
    "spatula": {
        "edge": Seen((0.4, 0.2, 1), "edge", (-0.002, 0, 0)),
        "heel": Seen((0.4, 0.2, 1), "edge", (0.002, 0, 0)),
        "tail": Seen((-1, 0.3, 0.4), "face centre", (0, 0.003, 0.002)),
    },
    "knife": {"heel": Seen((0, 0.1, 1)), "tip": Seen((0, 0.1, 1))},
}
"""How the keypoints are clicked that do not follow from others."""


@contextmanager
def opened(tool: ForeignTool, folder: Path) -> Iterator[Person]:
    """Opens a tool's mesh, turned and in millimetres, on a page in Chromium."""
    for library in ("coacd", "manifold3d", "fast_simplification"):
        pytest.importorskip(library)
    mesh = tool.mesh()
    mesh.apply_scale(1000)
    mesh.apply_transform(TURN)
    mesh.export(folder / f"{tool.name}.stl")
    file = folder / f"{tool.name}.stl"
    subject = MeshSubject(file, "tool", tool.family, folder / "out")
    page = LabelPage(LabellingSession(subject), scenes=1)
    try:
        with open_page(page.url, width=900, height=640) as browser:
            yield Person(page, browser)
    finally:
        page.close()


def label(person: Person, tool: ForeignTool) -> None:
    """Labels a tool: all keypoints, the hand, and the mass."""
    session = person.page.session
    clicks = CLICKS[tool.family]
    for name, meaning in list(session.items.items()):
        wait_until(lambda name=name: session.item == name, f"the turn of {name}")
        if name == "hand":
            point, direction = HANDLE
            person.click(R @ point, R @ direction)
        elif name in clicks:
            seen = clicks[name]
            if session.snap != seen.snap:
                person.snap_to(seen.snap)
            target = np.array(tool.keypoints[name]) + seen.beside
            person.click(R @ target, R @ np.array(seen.direction))
        else:
            assert meaning.derived is not None
            person.press(f"Put {name} {meaning.derived.words}")
            wait_until(lambda name=name: session.is_labelled(name), name)
    person.fill("Mass, kg", str(tool.mass))
    wait_until(lambda: session.missing == [], "the mass")


def test_what_is_clicked_is_what_is_labelled_and_written(tmp_path):
    tool = foreign_tool("round_hammer")
    with opened(tool, tmp_path) as person:
        session = person.page.session
        label(person, tool)
        for name, point in session.points().items():
            assert point == pytest.approx(R @ np.array(tool.keypoints[name]), abs=1e-6), name

        person.choose("tail")  # a mistake, and its undo
        before = session.labels
        person.click(R @ np.array([0.1, 0.0, -0.012]), R @ np.array([0.0, 0.5, -1.0]))
        assert session.labels != before
        person.press("Undo")
        wait_until(lambda: session.labels == before, "the undo")

        person.choose("tail")  # a point off the surface, and its undo
        start = session.points()["tail"]
        person.look_from(R @ np.array([-1, 0.3, 0.4]), start)
        person.drag(start, np.eye(3)[0])
        moved = session.points()["tail"] - start
        assert moved[0] > 1e-3
        assert moved[1:] == pytest.approx(np.zeros(2), abs=1e-6)  # along the arrow alone
        person.press("Undo")
        wait_until(lambda: session.labels == before, "the undo of the drag")

        person.press("Save and check")
        folder = session.subject.identity.folder
        wait_until(lambda: (folder / "import.json").is_file(), "the model")


def test_an_example_is_smaller_than_the_mesh_and_takes_no_clicks(tmp_path):
    tool = foreign_tool("round_hammer")
    with opened(tool, tmp_path) as person:
        session = person.page.session
        example = find_example(session.subject.identity)
        assert example is not None
        beside = example.beside(session.surface)
        assert size(beside.surface) < size(session.surface)

        # The corner of the mesh that is nearest to the example, seen through the example.
        middle = np.mean(beside.surface.bounds(), axis=0)
        point = nearest(session.surface, middle).point
        person.click(point, middle - point)
        (labelled,) = session.points().values()
        assert labelled == pytest.approx(point, abs=0.02 * size(session.surface))


def test_a_name_of_a_stranger_is_shown_and_not_run(tmp_path):
    name = "a`<iframe srcdoc='&lt;img src=x onerror=parent.taken=1&gt;'>` *b* [c](d) .stl"
    trimesh.creation.box((250, 20, 20)).export(tmp_path / "stick.stl")
    file = (tmp_path / "stick.stl").rename(tmp_path / name)
    session = LabellingSession(MeshSubject(file, "tool", "hammer", tmp_path / "out", "stick"))
    page = LabelPage(session, scenes=0)
    try:
        with open_page(page.url, width=900, height=640) as browser:
            browser.get_by_text(f"from {name}").wait_for(timeout=60_000)
            browser.wait_for_timeout(2000)
            assert browser.evaluate("window.taken") is None
    finally:
        page.close()


@pytest.mark.parametrize("name", ["round_hammer", "rounded_wrench", "round_spatula", "lens_knife"])
def test_from_a_foreign_mesh_to_a_solved_scene(tmp_path, name):
    tool = foreign_tool(name)
    with opened(tool, tmp_path) as person:
        label(person, tool)
        person.take("Material", "steel")
        wait_until(lambda: person.page.session.labels.material == "steel", "the material")
        person.press("Save and check")
        report = person.browser.get_by_text("the expert in the task")
        report.wait_for(timeout=280_000)
        assert f"the expert in the task {tool.family}: 1 of 1" in report.inner_text()
        assert person.browser.get_by_text("are as the family needs them").is_visible()
    model = load_model(tmp_path / "out/tools" / tool.family / name, "tool")
    assert model.labels.keypoints.keys() == tool.keypoints.keys()
