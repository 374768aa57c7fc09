"""Labels, their undo, the file that keeps them, and what a session does with clicks."""

import re
from pathlib import Path

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from support.foreign_shapes import moved
from support.shares import few

from fleet_tools.assets.__main__ import main as assets
from fleet_tools.assets.model_folder import read_files
from fleet_tools.config.file_access import assets_root
from fleet_tools.config.geometry import Pose
from fleet_tools.errors import ConfigError, FleetToolsError, UnknownNameError
from fleet_tools.sim.catalog import load_model
from fleet_tools.studio.importing.settings import ScaleSettings
from fleet_tools.studio.labelling.labels import Draft, ModelLabels, read_draft, write_draft
from fleet_tools.studio.labelling.panel import Panel, literal, literal_html
from fleet_tools.studio.labelling.scene_view import ruler_length
from fleet_tools.studio.labelling.session import LabellingError, LabellingSession
from fleet_tools.studio.labelling.subjects import FolderSubject, MeshSubject

NUMBERS = st.floats(-1e6, 1e6)
POSITIONS = st.tuples(NUMBERS, NUMBERS, NUMBERS)
LABELS = st.builds(
    ModelLabels,
    keypoints=st.dictionaries(st.sampled_from(["head", "side", "tail"]), POSITIONS),
    grasp=st.none() | st.builds(Pose, translation_m=POSITIONS, rpy_deg=POSITIONS),
    scale=st.just(ScaleSettings()) | st.builds(ScaleSettings, length=st.floats(1e-6, 10)),
    mass=st.none() | st.floats(1e-6, 10),
    material=st.sampled_from([None, "steel", "ash"]),
    up=st.sampled_from(["x", "-y", "z"]),
)

TURN = trimesh.transformations.euler_matrix(0.4, -0.9, 2.1)


def mallet(folder: Path) -> Path:
    """Writes a turned mallet in millimetres, of overlapping parts, and returns the file."""
    for library in ("coacd", "manifold3d", "fast_simplification"):
        pytest.importorskip(library)
    head = trimesh.creation.cylinder(radius=18, height=90, sections=24)
    handle = moved(trimesh.creation.box((240, 22, 22)), 40, 0, 0)
    mesh = trimesh.util.concatenate([moved(head, 160, 0, 0), handle])
    mesh.apply_transform(TURN)
    mesh.export(folder / "mallet.stl")
    return folder / "mallet.stl"


def turned(*p_T: float) -> np.ndarray:
    """Returns a position in the mallet's own axes, m, in those of the file, m."""
    return TURN[:3, :3] @ np.array(p_T)


@pytest.fixture
def subject(tmp_path: Path) -> MeshSubject:
    return MeshSubject(mallet(tmp_path), "tool", "hammer", tmp_path / "out")


@pytest.fixture
def session(subject) -> LabellingSession:
    return LabellingSession(subject)


@pytest.fixture
def labelled(session) -> LabellingSession:
    label(session)
    return session


def click(session: LabellingSession, target: np.ndarray, seen_from: np.ndarray) -> None:
    session.click(target + seen_from, -seen_from)


def label(session: LabellingSession) -> None:
    """Labels the mallet by clicks."""
    session.snap = "face centre"
    click(session, turned(0.165, 0.004, 0.045), turned(0, 0, 1))
    session.derive()
    click(session, turned(-0.08, 0.002, -0.004), turned(-1, 0.1, 0))
    click(session, turned(0.01, 0.003, 0.011), turned(0, 0, 1))
    session.set(mass=0.5)


# --- Values --------------------------------------------------------------------------------------


CHANGES = st.tuples(st.just("place"), st.sampled_from(["head", "side", "tail"]), POSITIONS)
CHANGES |= st.tuples(st.just("mass"), st.none() | st.floats(1e-6, 10))


@few(8)
@given(st.lists(CHANGES, max_size=6))
def test_undo_after_any_changes_returns_what_was_before(tmp_path_factory, changes):
    folder = tmp_path_factory.mktemp("undo")
    trimesh.creation.box((0.3, 0.04, 0.04)).export(folder / "a.stl")
    session = LabellingSession(MeshSubject(folder / "a.stl", "tool", "hammer", folder))
    states = [session.labels]
    for change in changes:
        match change:
            case "place", item, position:
                session.select(item)
                session.place(np.array(position))
            case _, mass:
                session.set(mass=mass)
        if session.labels != states[-1]:
            states.append(session.labels)
    for before in reversed([states[0], *states[:-1]]):
        session.undo()
        assert session.labels == before


@given(LABELS)
def test_a_draft_is_read_as_it_was_written(tmp_path_factory, labels):
    file = tmp_path_factory.mktemp("draft") / "deeper" / "mine.labels.yaml"
    assert read_draft(file, "this") is None
    write_draft(file, Draft(labels_of="this", labels=labels))
    assert read_draft(file, "this") == labels
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "text", ["", "labels_of: x\nlabels: {keypoints: {head: [.nan, 0, 0]}}\n", "[" * 2000]
)
def test_a_damaged_draft_is_refused(tmp_path, text):
    file = tmp_path / "mine.labels.yaml"
    file.write_text(text)
    with pytest.raises(FleetToolsError, match=r"mine\.labels\.yaml"):
        read_draft(file, "x")
    assert file.read_text() == text


# --- A mesh --------------------------------------------------------------------------------------


def test_clicks_label_a_mesh_and_the_folder_is_what_an_import_writes(
    session, subject, tmp_path, capsys
):
    assert session.missing == ["head", "side", "tail", "hand", "mass, or material"]
    label(session)
    points = session.points()
    assert points["head"] == pytest.approx(turned(0.16, 0, 0.045), abs=1e-7)
    assert points["side"] == pytest.approx(turned(0.16, 0, -0.045), abs=1e-7)
    assert points["tail"] == pytest.approx(turned(-0.08, 0, 0), abs=1e-7)
    hand = session.hand()
    assert hand is not None
    X_MG = hand.to_transform().GetAsMatrix4()
    assert X_MG[:3, :3] == pytest.approx(TURN[:3, :3], abs=1e-6)
    assert X_MG[:3, 3] == pytest.approx(turned(0.01, 0, 0), abs=1e-6)
    assert session.missing == []
    stages: list[str] = []
    session.write(stages.append)
    assert any("decomposing" in stage for stage in stages)  # the page shows them

    labels = session.labels
    grasp = labels.grasp
    assert grasp is not None
    arguments = ["import", str(subject.file), "--kind", "tool", "--family", "hammer"]
    arguments += ["--mass", "0.5", "--points-in", "mesh", "--output", str(tmp_path / "typed")]
    arguments += [f"--grasp={','.join(map(repr, (*grasp.translation_m, *grasp.rpy_deg)))}"]
    for name, position in labels.keypoints.items():
        arguments += ["--keypoint", f"{name}={','.join(map(repr, position))}"]
    assert assets([*arguments, "--json"]) == 0
    capsys.readouterr()
    typed = tmp_path / "typed/tools/hammer/mallet"
    assert read_files(subject.identity.folder) == read_files(typed)


def test_labels_stay_on_the_surface_when_the_size_changes(labelled):
    session = labelled
    before = session.points()
    extent = np.ptp(session.surface.vertices, axis=0).max()
    session.set(scale=ScaleSettings(length=2 * float(extent)))
    for name, point in session.points().items():
        assert point == pytest.approx(2 * before[name], rel=1e-6)
    with pytest.raises(ConfigError, match="m long; expected"):
        session.set(scale=ScaleSettings(length=50.0))
    session.undo()
    assert session.points()["head"] == pytest.approx(before["head"])


def test_undo_takes_back_each_action_and_chooses_its_item(session, subject):
    states = [session.labels]
    label(session)
    again = LabellingSession(subject)  # work goes on where it ended
    assert (again.labels, again.missing) == (session.labels, [])
    for item in (None, "hand", "tail", "side", "head"):
        session.undo()
        assert item is None or session.item == item
    assert session.labels == states[0]
    assert LabellingSession(subject).labels == states[0]


def test_the_middle_of_two_clicks(session):
    session.between, session.snap = True, "face centre"
    session.select("tail")
    click(session, turned(0.16, 0.001, 0.045), turned(0, 0, 1))
    assert session.labels.keypoints == {}
    session.undo()
    assert session.first is None
    click(session, turned(0.16, 0.001, 0.045), turned(0, 0, 1))
    click(session, turned(0.16, 0.001, -0.045), turned(0, 0, -1))
    assert session.points()["tail"] == pytest.approx(turned(0.16, 0, 0), abs=1e-7)


def test_what_is_not_possible_changes_nothing(session, subject):
    before = session.labels
    with pytest.raises(LabellingError):
        session.click(np.array([0, 0, 5.0]), np.array([0, 0, 1.0]))
    for impossible in (session.derive, session.turn_hand, session.write):
        with pytest.raises(LabellingError):
            impossible()
    session.select("side")
    with pytest.raises(LabellingError, match="Label head first"):
        session.derive()
    assert session.labels == before
    assert not subject.identity.folder.exists()


def test_a_hand_turns_by_quarters_about_the_handle(labelled):
    poses = [labelled.hand().to_transform()]
    for _ in range(4):
        labelled.turn_hand()
        poses.append(labelled.hand().to_transform())
    R_MG, turned_R = (pose.rotation().matrix() for pose in poses[:2])
    assert turned_R[:, 0] == pytest.approx(R_MG[:, 0], abs=1e-9)
    assert turned_R[:, 1] == pytest.approx(R_MG[:, 2], abs=1e-9)
    assert poses[4].IsNearlyEqualTo(poses[0], 1e-9)


def test_labels_that_cannot_be_kept_are_reported_and_stay(session, tmp_path):
    (tmp_path / "out").write_text("a file where the folder would be")
    with pytest.raises(OSError):
        click(session, turned(0.165, 0.004, 0.045), turned(0, 0, 1))
    assert "head" in session.labels.keypoints


def test_labels_of_another_mesh_or_of_unknown_keypoints_are_refused(labelled, subject, tmp_path):
    labelled.file.write_text(labelled.file.read_text().replace("    tail:", "    tial:"))
    with pytest.raises(ConfigError, match="does not have: tial"):
        LabellingSession(subject)
    trimesh.creation.box((100, 20, 20)).export(subject.file)
    with pytest.raises(ConfigError, match="labels of another mesh"):
        LabellingSession(MeshSubject(subject.file, "tool", "hammer", tmp_path / "out"))


def test_what_cannot_be_labelled_is_refused_at_once(tmp_path):
    trimesh.creation.box((100, 20, 20)).export(tmp_path / "a.stl")
    trimesh.creation.box((1, 0.1, 0.1)).export(tmp_path / "unit.stl")
    for file, family, error, message in (
        ("a.stl", "hamer", UnknownNameError, "hammer"),
        ("b.stl", "hammer", ConfigError, "no file"),
        ("unit.stl", "hammer", ConfigError, "length"),
    ):
        with pytest.raises(error, match=message):
            LabellingSession(MeshSubject(tmp_path / file, "tool", family, tmp_path))
    given = ScaleSettings(length=0.3)
    LabellingSession(MeshSubject(tmp_path / "unit.stl", "tool", "hammer", tmp_path, scale=given))


def test_an_object_stands_on_its_base(tmp_path):
    pytest.importorskip("coacd")
    moved(trimesh.creation.box((80, 20, 60)), 500, 300, -70).export(tmp_path / "cake.stl")
    subject = MeshSubject(tmp_path / "cake.stl", "object", "slab", tmp_path / "out")
    session = LabellingSession(subject)
    session.set(up="y", material="nylon")
    session.snap = "face centre"
    session.click(np.array([0.005, 0.002, -1.0]), np.array([0, 0, 1.0]))
    session.derive()
    assert session.points()["base"] == pytest.approx([0, 0, 0], abs=1e-9)
    assert session.points()["top"] == pytest.approx([0, 0, 0.02], abs=1e-9)
    session.write()
    model = load_model(subject.identity.folder, "object")
    assert model.keypoint("top").position == pytest.approx((0, 0, 0.02), abs=1e-9)


# --- A folder ------------------------------------------------------------------------------------


def copied(tmp_path: Path, model: str) -> Path:
    folder = tmp_path / "copy"
    folder.mkdir()
    for path, content in read_files(assets_root() / model).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@pytest.mark.parametrize("model", ["tools/hammer/claw", "objects/pair/tofu", "objects/nut/hex_nut"])
def test_a_folder_is_written_as_it_was_read(tmp_path, model):
    folder = copied(tmp_path, model)
    kind = "tool" if model.startswith("tools") else "object"
    before = load_model(folder, kind).labels
    session = LabellingSession(FolderSubject(folder))
    assert session.missing == []
    session.write()
    after = load_model(folder, kind).labels
    assert after.keypoints.keys() == before.keypoints.keys()
    for name, keypoint in after.keypoints.items():
        assert keypoint.link == before.keypoints[name].link
        assert keypoint.position == pytest.approx(before.keypoints[name].position, abs=1e-9)
    assert after.grasp == before.grasp


def test_a_keypoint_of_a_folder_is_corrected(tmp_path):
    folder = copied(tmp_path, "tools/hammer/claw")
    session = LabellingSession(FolderSubject(folder))
    session.select("head")
    session.click(np.array([0.165, 0.004, 1.0]), np.array([0, 0, -1.0]))
    assert session.item == "head"
    session.write()
    labels = load_model(folder, "tool").labels
    assert labels.keypoints["head"].position == pytest.approx((0.165, 0.004, 0.052), abs=1e-4)
    assert LabellingSession(FolderSubject(folder)).labels.keypoints == session.labels.keypoints


def test_models_of_the_package_stay_as_they_are():
    with pytest.raises(ConfigError, match="Copy the folder"):
        LabellingSession(FolderSubject(assets_root() / "tools/hammer/claw"))


def test_a_generator_does_not_overwrite_corrections(tmp_path):
    arguments = ["generate", "--family", "hammer", "--count", "1", "--seed", "3"]
    arguments += ["--output", str(tmp_path), "--json"]
    assert assets(arguments) == 0
    (folder,) = (tmp_path / "tools/hammer").iterdir()
    LabellingSession(FolderSubject(folder)).write()
    corrected = (folder / "keypoints.yaml").read_bytes()
    assert assets(arguments) == 1
    assert (folder / "keypoints.yaml").read_bytes() == corrected


def test_buttons_wait_for_what_they_need_and_code_is_shown_as_code(subject):
    """The page without a browser: what it offers of a mesh that nobody has labelled."""
    viser = pytest.importorskip("viser")
    session = LabellingSession(subject)
    server = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
    try:
        panel = Panel(server.gui, session, lambda do: do())
        for item, meaning in session.items.items():
            session.select(item)
            panel.draw()
            assert not panel._derive.visible or panel._derive.disabled
            assert (meaning.derived is not None) == panel._derive.visible
        assert panel._undo.disabled and panel.save.disabled
        session.select("head")
        session.place(np.zeros(3))
        session.select("side")
        panel.draw()
        assert not panel._undo.disabled and not panel._derive.disabled
        assert panel._size.content.endswith(" mm in x, y and z")
    finally:
        server.stop()


@given(st.text(st.sampled_from("ab`<>{}*_[](){\\ "), max_size=20))
def test_only_marked_code_is_markup(text):
    assert re.sub(r"\\.|`[^`<{]+`|[ab ]", "", literal(text)) == ""
    assert "<" not in re.sub(r"</?code>", "", literal_html(text))
    assert literal("see `assets import`.") == r"see `assets import`\."
    assert literal_html("see `a b` & <c>") == "see <code>a b</code> &amp; &lt;c&gt;"


@given(st.floats(1e-4, 1e3))
def test_a_ruler_has_a_round_length_that_fits(longest):
    length = ruler_length(longest)
    assert longest / 2.5 < length * (1 + 1e-9) and length <= longest * (1 + 1e-9)
    assert f"{1000 * length:.9g}".strip("0.").strip("0") in {"1", "2", "5"}
