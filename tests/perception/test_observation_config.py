"""Keyword arguments of environments that affect observations: their checks and their effects."""

import re
import shutil
from typing import Any

import gymnasium
import pytest
import yaml
from support.rendering import needs_gl
from support.task_files import whole_task

from fleet_tools.config.file_access import assets_root
from fleet_tools.config.tasks import load_task
from fleet_tools.envs.observation_modes import OBS_MODES, observables, observation_config
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.perception.camera_view import CHANNELS
from fleet_tools.perception.point_cloud import OBJECT_MASK

KWARGS: dict[str, Any] = {
    "obs_mode": "rgbd",
    "camera_size": (320, 240),
    "channels": CHANNELS,
    "cloud_size": (512, 512),
    "cloud_sampling": "farthest",
    "cloud_source": "rays",
    "sensors": "ideal",
}


@pytest.fixture(scope="module", name="task")
def _task():
    return load_task("hammer")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"obs_mode": "rgb"}, "obs_mode: 'rgb'. Did you mean 'rgbd'"),
        ({"cloud_sampling": "farthst"}, "Did you mean 'farthest'"),
        ({"cloud_source": "ray"}, "Did you mean 'rays'"),
        ({"image_source": "vkt"}, "Did you mean 'vtk'"),
        ({"sensors": "active_sterio"}, "Did you mean 'active_stereo'"),
        ({"channels": ["rgb", "dept"]}, "channel: 'dept'. Did you mean 'depth'"),
        ({"channels": "rgb"}, "channels among rgb, depth, segmentation"),
        ({"channels": []}, "channels among rgb, depth, segmentation"),
        ({"channels": ["rgb", "rgb"]}, "channels among rgb, depth, segmentation"),
        ({"camera_size": (320,)}, r"\(width, height\) in pixels, two integers from 1"),
        ({"camera_size": 320}, "two integers from 1 to 4,096; given: 320"),
        ({"camera_size": (320, 0)}, "two integers from 1"),
        ({"camera_size": (320.0, 240.0)}, "two integers from 1"),
        ({"camera_size": (320, 10**9)}, "two integers from 1 to 4,096"),
        ({"cloud_size": (10**9, 512)}, "two integers from 1 to 100,000"),
        ({"keypoint_rows": 0}, "from 1 to 1,000 as keypoint_rows; given: 0"),
        ({"cloud_size": (512, True)}, r"of \(tool, object\), two integers from 1"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused_with_the_valid_ones(task, kwargs, message):
    with pytest.raises((UnknownNameError, ConfigError), match=message):
        observation_config(task, **{**KWARGS, **kwargs})


@pytest.mark.parametrize("mode", OBS_MODES)
def test_every_mode_has_proprioception(task, mode):
    config = observation_config(task, **{**KWARGS, "obs_mode": mode})
    names = observables(mode, task.keypoints, config, 7)
    assert len({name for name in names if name.startswith(("joint", "end"))}) == 5


def test_without_cameras_images_are_refused_and_the_remedy_is_named(task):
    without_cameras = task.model_copy(update={"cameras": {}})
    of_states = observation_config(without_cameras, **{**KWARGS, "obs_mode": "state"})
    assert of_states.seen == "nothing"
    with pytest.raises(ConfigError, match=r"has none. Add `cameras` and `randomization.cameras`"):
        observation_config(without_cameras, **KWARGS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda task: task["cameras"].pop("wrist"), "name the same cameras"),
        (lambda task: task["randomization"]["cameras"].pop("wrist"), "name the same cameras"),
        (lambda task: task["cameras"]["wrist"].update(frame="hand"), "'world' or 'end_effector'"),
        (lambda task: task["cameras"]["wrist"].update(field_of_view_deg=180), "less than 180"),
        (lambda task: task["cameras"]["wrist"].update(depth_range_m=[2, 1]), "nearer limit"),
        (lambda task: task["cameras"]["wrist"].update(depth_range_m=[0.001, 1]), "both within"),
    ],
)
def test_a_task_file_with_impossible_cameras_is_refused(tmp_path, change, message):
    content = whole_task("hammer")
    change(content)
    path = tmp_path / "task.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=message):
        load_task(str(path))


@needs_gl
def test_only_the_requested_channels_are_given():
    env = gymnasium.make(
        "FleetTools/Hammer-v0", obs_mode="rgbd", channels=["depth"], camera_size=(200, 50)
    )
    observation, _ = env.reset(seed=0)
    images = {name: value.shape for name, value in observation.items() if value.ndim > 1}
    assert images == {
        "end_effector_pose": (3, 4),
        **{f"{name}_depth": (50, 200) for name in ("overhead", "wrist")},
        **{f"{name}_K": (3, 3) for name in ("overhead", "wrist")},
        **{f"{name}_X_WC": (3, 4) for name in ("overhead", "wrist")},
    }
    env.close()


@needs_gl
def test_a_tool_without_visuals_has_no_points(tmp_path):
    folder = shutil.copytree(assets_root() / "tools" / "hammer" / "claw", tmp_path / "invisible")
    model = folder / "model.sdf"
    model.write_text(re.sub(r"<visual.*?</visual>", "", model.read_text(), flags=re.DOTALL))
    env = gymnasium.make(
        "FleetTools/Hammer-v0", tool=str(folder), obs_mode="point_cloud", cloud_size=(20, 30)
    )
    observation, _ = env.reset(seed=0)
    assert not observation["point_cloud"][:20].any()
    assert (observation["point_cloud"][20:, 3] == OBJECT_MASK).all()
    env.close()
