"""A dataset with a robot that is not the package's carries it, and takes no other from its path."""

import json
import shutil
from pathlib import Path

import pytest
from support.arms import six_joints
from support.collected import options

from fleet_tools import collect, replay
from fleet_tools.dataset import Dataset
from fleet_tools.errors import FleetToolsError

REPLAY = ("--workers", "0", "--quiet")


@pytest.fixture(scope="module", name="kept")
def _kept(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("robot")
    robot, output = six_joints(folder / "six"), folder / "kept"
    more = ("--quiet", "--robot", str(robot))
    assert collect.main(options(output, *more, episodes=1)) == 0
    shutil.rmtree(folder / "six")
    return output


@pytest.fixture(name="data")
def _data(kept, tmp_path) -> Path:
    return shutil.copytree(kept, tmp_path / "moved")


def test_it_replays_where_the_robot_is_no_more(data):
    (model,) = Dataset(data).header.models
    assert (model.kind, model.name.partition("@")[0]) == ("robot", "six")
    assert Dataset(data).header.robot == "six"
    assert replay.main([str(data), *REPLAY]) == 0


@pytest.mark.parametrize("file", ["six.yaml", "six.urdf", "meshes/link1_shell.obj"])
def test_a_robot_that_was_changed_is_refused(data, file):
    (changed,) = data.glob(f"models/given/six@*/{file}")
    changed.write_text(changed.read_text() + "\n")
    with pytest.raises(FleetToolsError, match="is damaged, or not the robot six"):
        Dataset(data).header.make_env()


@pytest.mark.parametrize("robot", ["six", "/etc/passwd", "../../robots/own.yaml", 5])
def test_a_robot_that_the_dataset_does_not_carry_is_refused(data, robot):
    header = json.loads((data / "dataset.json").read_text())
    header["env_spec"]["kwargs"]["robot"] = robot
    (data / "dataset.json").write_text(json.dumps(header))
    with pytest.raises(FleetToolsError, match=r"is neither one of .*panda.* nor stored"):
        Dataset(data).header.make_env()
