"""Labels of a task of one's own: its keypoints, its models as examples, and the expert in it."""

from pathlib import Path

import numpy as np
import pytest
import trimesh
from pydrake.math import RigidTransform
from support.foreign_shapes import moved
from support.processes import serving_program

from fleet_tools.config.tasks import load_task
from fleet_tools.label import main as label
from fleet_tools.new_task import main as new_task
from fleet_tools.studio.labelling.expert_trial import TrialProcess
from fleet_tools.studio.labelling.labels import Identity
from fleet_tools.studio.labelling.session import HAND_ITEM, LabellingSession
from fleet_tools.studio.labelling.subjects import FolderSubject, MeshSubject, find_example

KEYPOINTS = {"foot": (0.15, 0, 0.07), "back": (0.15, 0, -0.02), "tail": (-0.09, 0, 0)}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    assert new_task(["press", "--output", str(tmp_path / "press"), "--quiet"]) == 0
    return tmp_path / "press" / "task.yaml"


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    """Writes a stamp, a handle with a post, that no program of ours has made."""
    for library in ("coacd", "manifold3d", "fast_simplification"):
        pytest.importorskip(library)
    handle = moved(trimesh.creation.box((0.26, 0.024, 0.024)), 0.04, 0, 0)
    post = trimesh.creation.cylinder(radius=0.016, height=0.09, sections=24)
    trimesh.util.concatenate([handle, moved(post, 0.15, 0, 0.025)]).export(tmp_path / "stamp.stl")
    return tmp_path / "stamp.stl"


@pytest.mark.slow  # of the trial: ../checking/test_trial.py; of labels: test_session.py
def test_a_mesh_is_labelled_for_a_task_and_tried_there(task, mesh):
    config = load_task(str(task))
    assert config.assets is not None
    subject = MeshSubject(
        mesh, "tool", config.tool_family, Path(config.assets), keypoints=config.keypoints.tool
    )
    session = LabellingSession(subject)
    assert list(session.items) == [*config.keypoints.tool, HAND_ITEM]
    example = find_example(subject.identity, str(task))
    assert example is not None
    assert example.keypoints.keys() == KEYPOINTS.keys()

    for name, position in KEYPOINTS.items():
        session.select(name)
        session.place(np.array(position, float))
    session.place_hand(RigidTransform())
    session.set(mass=0.4)
    session.write()
    folder = subject.identity.folder
    assert folder == task.parent / "tools/presser/stamp"

    trial = TrialProcess(folder, scenes=1, seed=0, task=str(task))
    report = trial.result()
    assert isinstance(report, dict)
    assert report["fine"], report
    assert [each["successes"] for each in report["trials"]] == [1]


def test_an_example_is_another_model_than_the_labelled_one(task):
    first = task.parent / "tools/presser/first"
    assert find_example(FolderSubject(first).identity, str(task)) is None
    second = task.parent / "tools/presser/second"
    first.rename(second)
    broken = task.parent / "tools/presser/broken"
    broken.mkdir()
    (broken / "keypoints.yaml").write_text("family: presser\n")
    elsewhere = Identity("tool", "presser", "a", ("foot",), Path("out/tools/presser/a"), "a.stl")
    example = find_example(elsewhere, str(task))
    assert example is not None
    assert (example.name, list(example.keypoints)) == ("second", ["foot"])
    assert find_example(elsewhere) is None


@pytest.mark.slow
def test_the_program_knows_the_task(task, mesh):
    pytest.importorskip("viser", reason="needs the extra browser")
    with serving_program("label", str(mesh), "--task", str(task)) as found:
        assert found["missing"] == [*KEYPOINTS, "hand", "mass, or material"]
        assert Path(found["folder"]) == task.parent / "tools/presser/stamp"
    own = ["--family", "spoon", "--keypoint-names", "bowl,tip", "--output", str(mesh.parent)]
    with serving_program("label", str(mesh), *own) as found:
        assert found["missing"] == ["bowl", "tip", "hand", "mass, or material"]
    folder = str(task.parent / "tools/presser/first")
    with serving_program("label", folder, "--task", str(task)) as found:
        assert found["missing"] == []


def test_a_folder_of_another_family_is_not_for_the_task(task, capsys):
    pytest.importorskip("viser", reason="needs the extra browser")
    assert label([str(task.parent / "tools/presser/first"), "--task", "hammer"]) == 2
    assert "is for a tool of the family hammer" in capsys.readouterr().err
