"""A dataset carries models and robots that are not the package's, and replays without these."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.arms import six_joints
from support.collected import options, without_times, write_quick_task
from support.processes import ROOT

from fleet_tools import collect, replay
from fleet_tools.config.file_access import assets_root
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.dataset_folder import DatasetWriter
from fleet_tools.dataset.header import describe
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ConfigError, DatasetError, FleetToolsError
from fleet_tools.sim.scene import Scene

CLAW = assets_root() / "tools" / "hammer" / "claw"
NAIL = assets_root() / "objects" / "nail" / "round_nail"
RANDOM = ("--policy", "random", "--quiet")
REPLAY = ("--workers", "0", "--quiet")
LABELS = "keypoints.yaml"


def copies(folder: Path) -> list[str]:
    """Copies a tool and an object into a folder, and returns the arguments that give them."""
    shutil.copytree(CLAW, folder / "myclaw")
    shutil.copytree(NAIL, folder / "my nail")
    return ["--env", f"tool={folder / 'myclaw'}", f"object={folder / 'my nail'}"]


def collect_quickly(output: Path, folder: Path, *given: str, episodes: int = 2) -> int:
    """Collects random episodes of a task that is written into a folder; returns the exit code."""
    task = str(write_quick_task(folder))
    return collect.main(options(output, *RANDOM, *given, task=task, episodes=episodes))


def collected(folder: Path, output: Path) -> Path:
    """Collects a dataset with copied models, and removes these."""
    assert collect_quickly(output, folder, *copies(folder / "mine"), episodes=1) == 0
    shutil.rmtree(folder / "mine")
    return output


@pytest.fixture(scope="module", name="kept")
def _kept(tmp_path_factory) -> Path:
    return collected(tmp_path_factory.mktemp("kept"), tmp_path_factory.mktemp("data") / "kept")


@pytest.fixture(name="data")
def _data(kept, tmp_path) -> Path:
    """A dataset with two models that were given by path, which are gone."""
    return shutil.copytree(kept, tmp_path / "moved")


def carried(data: Path) -> dict[str, Path]:
    """Returns the folders of the models that a dataset carries, by their names without hashes."""
    return {path.name.partition("@")[0]: path for path in (data / "models" / "given").iterdir()}


# --- What it is for -------------------------------------------------------------------------


def test_a_dataset_replays_elsewhere_after_its_models_are_gone(data, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert replay.main([f"../{data.name}", *REPLAY]) == 0


@pytest.mark.slow
def test_workers_replay_it_elsewhere(data, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert replay.main([f"../{data.name}", "--workers", "1", "--quiet"]) == 0


def test_so_does_one_of_a_task_of_ones_own(tmp_path, monkeypatch):
    own = shutil.copytree(ROOT / "examples" / "basket", tmp_path / "basket")
    task, output = str(own / "task.yaml"), tmp_path / "data"
    assert collect.main(options(output, "--quiet", task=task, episodes=1)) == 0
    shutil.rmtree(own)
    data = output.rename(tmp_path / "moved")
    monkeypatch.chdir(ROOT)
    assert replay.main([str(data), *REPLAY]) == 0
    # The environment draws the scenes that it drew, from all models of the families.
    env = unwrap(Dataset(data).header.make_env())
    record = Dataset(data).stored()[0]
    env.reset(seed=record.seed)
    assert env.scene == Dataset(data).episode(record.attempt).scene
    assert {each.name for each in Dataset(data).header.models} == {
        path.parent.name for path in (ROOT / "examples" / "basket").glob("*/*/*/keypoints.yaml")
    }


def test_the_same_models_give_the_same_bytes_wherever_they_lie(kept, tmp_path):
    again = collected(tmp_path / "links are not followed", tmp_path / "again")
    one, other = without_times(kept), without_times(again)
    headers = [json.loads(files.pop("dataset.json")) for files in (one, other)]
    assert one == other
    assert headers[0]["models"] == headers[1]["models"]
    assert str(tmp_path) not in json.dumps(headers[1]["env_spec"]["kwargs"]["tool"])


def test_each_model_is_carried_once(data, tmp_path):
    header = Dataset(data).header
    assert sorted(carried(data)) == ["my_nail", "myclaw"]
    assert sorted(each.path for each in header.models) == sorted(
        path.relative_to(data / "models").as_posix() for path in carried(data).values()
    )
    before = {path: path.stat().st_mtime_ns for path in data.rglob("models/**/*")}
    given = copies(tmp_path / "mine")
    assert collect_quickly(data, tmp_path, *given) == 0
    assert before == {path: path.stat().st_mtime_ns for path in data.rglob("models/**/*")}


def test_a_dataset_of_the_packages_models_carries_none(tmp_path):
    output = tmp_path / "data"
    assert collect_quickly(output, tmp_path, episodes=1) == 0
    names = {path.name for path in output.iterdir()}
    assert names == {"dataset.json", "manifest.jsonl", "episodes"}
    assert json.loads((output / "dataset.json").read_text())["models"] == []


# --- Collecting -----------------------------------------------------------------------------


def test_a_changed_model_does_not_go_on_with_a_dataset(data, tmp_path, capsys):
    given = copies(tmp_path / "mine")
    labels = tmp_path / "mine" / "myclaw" / LABELS
    labels.write_text(labels.read_text() + "# another one\n")
    assert collect_quickly(data, tmp_path, *given) == 2
    message = capsys.readouterr().err
    assert "the tool myclaw is " in message
    assert "the object my_nail is " not in message


def test_what_it_carries_may_be_given_to_go_on(data, tmp_path):
    given = [
        f"{kind}={folder}"
        for kind, folder in zip(("object", "tool"), sorted(carried(data).values()), strict=True)
    ]
    assert collect_quickly(data, tmp_path, "--env", *given) == 0
    assert replay.main([str(data), *REPLAY]) == 0


def test_a_killed_writer_is_no_obstacle(data, tmp_path):
    given = copies(tmp_path / "mine")
    shutil.rmtree(carried(data)["myclaw"])
    (data / "models" / "given" / ".writing_1" / "new").mkdir(parents=True)
    assert collect_quickly(data, tmp_path, *given) == 0
    assert replay.main([str(data), *REPLAY]) == 0
    assert sorted(carried(data)) == ["my_nail", "myclaw"]


@pytest.mark.parametrize(
    ("edited", "message"),
    [
        ("later", "not the tool own that was used"),
        ("before", "outside of the model's folder"),
    ],
)
def test_a_model_edited_before_the_first_episode_or_with_absolute_paths_is_not_carried(
    edited, message, tmp_path
):
    tool = shutil.copytree(CLAW, tmp_path / "own")
    text = (tool / "model.sdf").read_text().replace("<uri>meshes", f"<uri>{tool}/meshes")
    if edited == "before":
        (tool / "model.sdf").write_text(text)
    spec = EnvSpec.of("hammer", tool=str(tool))
    header = describe(spec.make(), spec, policy="expert", seed=0, keep_failures=False)
    if edited == "later":
        (tool / LABELS).write_text((tool / LABELS).read_text() + "# edited\n")
    with pytest.raises(DatasetError, match=message):
        DatasetWriter(tmp_path / "data", header)
    assert not list((tmp_path / "data").rglob("models/**/*.sdf"))


def test_a_header_knows_its_models_in_another_process(data):
    header = pickle.loads(pickle.dumps(Dataset(data).header))
    assert unwrap(header.make_env()).task.given.alone
    alone = type(header).model_validate_json(header.to_json())
    with pytest.raises(DatasetError, match="together with its folder"):
        alone.make_env()


# --- Files that lie -------------------------------------------------------------------------


def edit(data: Path, pattern: str, old: str, new: str) -> None:
    path = next(carried(data)["myclaw"].rglob(pattern))
    path.write_text(path.read_text().replace(old, new, 1))


def link(path: Path, elsewhere: Path) -> None:
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def name_outside(data: Path) -> None:
    (data / "secret.obj").write_text("v 0 0 0\n")
    edit(data, "model.sdf", "meshes/handle.obj", "../../../secret.obj")


OTHER = "not the tool myclaw that was used: its hash is"
LINKED = "links are not followed"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "labels": (lambda data: edit(data, LABELS, "head", "haed"), OTHER),
    "mesh": (lambda data: edit(data, "*.obj", "v ", "v  "), OTHER),
    "missing": (
        lambda data: shutil.rmtree(carried(data)["my_nail"]),
        "the object my_nail cannot be used: .* is not a folder",
    ),
    "linked file": (
        lambda data: link(next(carried(data)["myclaw"].rglob("*.obj")), data / "mesh.obj"),
        LINKED,
    ),
    "linked model": (lambda data: link(carried(data)["myclaw"], data.parent / "outside"), LINKED),
    "linked folder": (lambda data: link(data / "models", data.parent / "models"), LINKED),
    "outside": (name_outside, "outside of the model's folder"),
    "huge": (
        lambda data: os.truncate(carried(data)["myclaw"] / "model.sdf", 10**11),
        "at most 2,000,000 bytes",
    ),
    "another": (
        lambda data: shutil.copytree(CLAW, data / "models/tools/hammer/extra"),
        "extra: the data were made without these models",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_was_altered_is_refused_before_anything_runs(data, damage, capsys):
    alter, message = damage
    alter(data)
    with pytest.raises(DatasetError, match=message):
        Dataset(data).header.make_env()
    assert replay.main([str(data), *REPLAY]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../../myclaw"},
        {"name": "/myclaw"},
        {"name": ".."},
        {"name": "my\0claw"},
        {"family": ".."},
        {"family": "a/b"},
        {"content_digest": "../../../../etc"},
        {"kind": "given/.."},
    ],
    ids=str,
)
def test_no_name_climbs_out_of_the_folder(data, change):
    document = json.loads((data / "dataset.json").read_text())
    document["models"][0] |= change
    (data / "dataset.json").write_text(json.dumps(document))
    with pytest.raises(DatasetError, match=r"models\.0"):
        Dataset(data)


def test_models_of_the_working_directory_are_not_used(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = carried(data)["myclaw"].name
    for folder in ("mine", name):
        shutil.copytree(CLAW, tmp_path / folder)
    env = unwrap(Dataset(data).header.make_env())
    scene = Dataset(data).episode(0).scene
    assert isinstance(scene, Scene)
    scene = scene.model_copy(update={"tool": "mine"})
    with pytest.raises(FleetToolsError, match=f"Unknown tool.*'mine'.*Known: .*{name}"):
        env.reset(options={"scene": scene})
    shutil.rmtree(carried(data)["myclaw"])
    with pytest.raises(DatasetError, match="the tool myclaw cannot be used"):
        Dataset(data).header.make_env()


def test_a_model_that_is_edited_while_it_is_used_is_refused(tmp_path):
    tool = shutil.copytree(CLAW, tmp_path / "own")
    env = unwrap(EnvSpec.of("hammer", tool=str(tool)).make())
    env.reset(seed=0)
    before = env.scene.tool
    (tool / LABELS).write_text((tool / LABELS).read_text() + "# edited\n")
    with pytest.raises(ConfigError, match=f"was {before}, is own@"):
        env.reset(seed=0)


# --- Robots -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="kept_robot")
def _kept_robot(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("robot")
    robot, output = six_joints(folder / "six"), folder / "kept"
    more = ("--quiet", "--robot", str(robot))
    assert collect.main(options(output, *more, episodes=1)) == 0
    shutil.rmtree(folder / "six")
    return output


@pytest.fixture(name="with_robot")
def _with_robot(kept_robot, tmp_path) -> Path:
    return shutil.copytree(kept_robot, tmp_path / "moved")


def test_it_replays_where_the_robot_is_no_more(with_robot):
    (model,) = Dataset(with_robot).header.models
    assert (model.kind, model.name.partition("@")[0]) == ("robot", "six")
    assert Dataset(with_robot).header.robot == "six"
    assert replay.main([str(with_robot), *REPLAY]) == 0


@pytest.mark.parametrize("file", ["six.yaml", "six.urdf", "meshes/link1_shell.obj"])
def test_a_robot_that_was_changed_is_refused(with_robot, file):
    (changed,) = with_robot.glob(f"models/given/six@*/{file}")
    changed.write_text(changed.read_text() + "\n")
    with pytest.raises(FleetToolsError, match="is damaged, or not the robot six"):
        Dataset(with_robot).header.make_env()


@pytest.mark.parametrize("robot", ["six", "/etc/passwd", "../../robots/own.yaml", 5])
def test_a_robot_that_the_dataset_does_not_carry_is_refused(with_robot, robot):
    header = json.loads((with_robot / "dataset.json").read_text())
    header["env_spec"]["kwargs"]["robot"] = robot
    (with_robot / "dataset.json").write_text(json.dumps(header))
    with pytest.raises(FleetToolsError, match=r"is neither one of .*panda.* nor stored"):
        Dataset(with_robot).header.make_env()
