"""Success by a number of the scene: what is counted, and numbers that do not exist."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from success_by_number import main, number_of
from support.evaluated import FIRST
from support.submitted import SMALL, random_evaluation, write

from fleet_tools.errors import ConfigError
from fleet_tools.evaluation.protocol import Scenes
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.sim.scene import Scene

YAW = "object_pose.rpy_deg.2"
WRENCH = SMALL.model_copy(
    update={"tasks": ("wrench",), "splits": {"train": Scenes(scenes=12, first_seed=FIRST)}}
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result with made-up outcomes."""
    made = random_evaluation(0.5, protocol=WRENCH)
    return write(made, tmp_path_factory.mktemp("results") / "somebody")


@pytest.fixture(scope="module")
def scenes(folder: Path) -> list[tuple[Scene, bool]]:
    evaluation = load_evaluation(folder)
    protocol = evaluation.result.local_protocol()
    task = protocol.load_task("wrench")
    return [(protocol.scene(task, each), each.success) for each in evaluation.episodes]


def counted(folder: Path, capsys: pytest.CaptureFixture[str], *within: float) -> dict[str, str]:
    ends = [str(end) for end in within]
    assert main([str(folder), "--number", YAW, "--within", *ends, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    return row


def test_a_number_is_the_one_that_the_environment_places(folder, scenes):
    env = load_evaluation(folder).result.local_protocol().make_env("wrench")
    env.reset(options={"scene": scenes[0][0]})
    X_WO = env.world_state().X_WO
    yaw_deg = np.degrees(np.arctan2(*X_WO.rotation().matrix()[[1, 0], 0]))
    assert number_of(scenes[0][0], YAW) == pytest.approx(yaw_deg)


def test_scenes_are_counted_once_each(folder, scenes, capsys):
    middle = sorted(number_of(scene, YAW) for scene, _ in scenes)[5]
    row = counted(folder, capsys, -1e3, middle)
    below = [success for scene, success in scenes if number_of(scene, YAW) < middle]
    above = [success for scene, success in scenes if number_of(scene, YAW) >= middle]
    assert row["within"] == f"{sum(below)} of 5" and len(below) == 5
    assert row["outside"] == f"{sum(above)} of {len(above)}"


def test_an_interval_of_all_scenes_tells_nothing(folder, scenes, capsys):
    solved = sum(success for _, success in scenes)
    row = counted(folder, capsys, -1e3, 1e3)
    assert (row["within"], row["outside"]) == (f"{solved} of {len(scenes)}", "0 of 0")
    assert float(row["p"]) == 1.0


@given(st.text(st.sampled_from("ab.0"), max_size=4).map(lambda end: f"object_pose.{end}"))
def test_numbers_that_do_not_exist_are_named(scenes, path):
    with pytest.raises(ConfigError, match="object_pose has translation_m, rpy_deg"):
        number_of(scenes[0][0], path)


def test_what_is_no_number_is_refused_before_anything_is_printed(folder, capsys):
    assert main([str(folder), "--number", "object_pose.rpy_deg", "--within", "0", "1"]) == 2
    out, err = capsys.readouterr()
    assert not out and "is no number: [0.0, 0.0," in err
