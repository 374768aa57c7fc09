"""What task files say about the errors of depth cameras."""

import json
from typing import Any

import pytest
import yaml

from fleet_tools.config.cameras import SENSORS, ActiveStereo, Sensors, StructuredLight
from fleet_tools.config.file_access import task_configs_root
from fleet_tools.config.tasks import TaskConfig, load_task
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError


def content(**sensors: Any) -> dict[str, Any]:
    """Returns the content of the hammer's task file, with errors of cameras."""
    text = (task_configs_root() / "hammer.yaml").read_text()
    return yaml.safe_load(text) | {"sensors": sensors}


def test_a_task_file_changes_one_figure_and_keeps_the_others():
    task = parse(TaskConfig, content(active_stereo={"disparity_noise_px": 0.2}), "it")
    assert task.sensors.active_stereo == ActiveStereo(disparity_noise_px=0.2)
    assert task.sensors.structured_light == StructuredLight()
    assert task.digest() != load_task("hammer").digest()
    assert parse(TaskConfig, json.loads(task.to_json()), "it") == task


def test_every_kind_has_figures_but_the_ideal_one():
    assert (*Sensors.model_fields,) == SENSORS[1:]
    assert Sensors().named("ideal") is None
    assert all(Sensors().named(name) is not None for name in SENSORS[1:])


@pytest.mark.parametrize(
    ("sensors", "message"),
    [
        ({"active_stereo": {"disparity_noise_px": -0.1}}, "at least 0"),
        ({"active_stereo": {"lateral_noise_px": {"uniform": [-1, 1]}}}, "at least 0"),
        ({"active_stereo": {"disparity_noise": 0.1}}, "Did you mean 'disparity_noise_px'"),
        ({"active_stereo": {"baseline_m": {"hand": 0.1}}}, "hand"),
        ({"structured_light": {"window_px": 0}}, "greater than 0"),
        ({"structured_light": {"delay_steps": 2}}, "0 or 1"),
        ({"structured_light": {"rows": 0}}, "greater than or equal to 1"),
        ({"passive_stereo": {}}, "passive_stereo"),
    ],
    ids=str,
)
def test_impossible_figures_are_refused(sensors, message):
    with pytest.raises(ConfigError, match=message):
        parse(TaskConfig, content(**sensors), "it")
