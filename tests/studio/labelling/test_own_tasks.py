"""Labels of a user's own task: its keypoints, and its models as examples."""

from pathlib import Path

import pytest
import trimesh
from support.foreign_shapes import moved
from support.processes import serving_program

from fleet_tools.label import main as label
from fleet_tools.new_task import main as new_task
from fleet_tools.studio.labelling.labels import Identity
from fleet_tools.studio.labelling.subjects import FolderSubject, find_example


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
        assert found["missing"] == ["foot", "back", "tail", "hand", "mass, or material"]
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
