"""A renderer and an observation mode of a user's own: one entry of a table each."""

from collections.abc import Collection, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from pydrake.geometry import QueryObject
from support.rendering import needs_gl

from fleet_tools.config.tasks import ObservedKeypoints
from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.envs.observation_modes import (
    OBS_MODES,
    ObservationMode,
    observation_kwargs,
    policy_kwargs,
)
from fleet_tools.envs.observations import Observable
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.perception.camera_view import OBJECT, TOOL, CameraView, Hits
from fleet_tools.perception.measurement import ObservationConfig
from fleet_tools.perception.render_scene import VtkRenderer
from fleet_tools.perception.renderer import RENDERERS, RayRenderer, Renderer
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.world import World

SMALL: dict[str, Any] = {"camera_size": [24, 16]}


class DistanceRenderer:
    """Fills images with the distance of the tool; a point of each part is at the first pixel."""

    shows = frozenset({"points", "rgb", "depth"})

    def __init__(self) -> None:
        self.worlds, self.scenes = 0, 0

    def enter(self, world: World) -> None:
        self.worlds += 1
        self._frame = world.plant.GetBodyFrameIdOrThrow(world.plant.GetBodyIndices(world.tool)[0])

    def begin(self, scene: Scene) -> None:
        self.scenes += 1

    def images(
        self, physics: QueryObject, views: Sequence[CameraView], channels: Collection[str]
    ) -> list[dict[str, np.ndarray]]:
        return [self._images(physics, view, channels) for view in views]

    def points(self, physics: QueryObject, views: Sequence[CameraView]) -> list[dict[int, Hits]]:
        hits = [Hits(np.zeros(1, int), np.full(1, self._depth(physics, v))) for v in views]
        return [{TOOL: each, OBJECT: each} for each in hits]

    def close(self) -> None:
        pass

    def _depth(self, physics: QueryObject, view: CameraView) -> np.float32:
        p_W = physics.GetPoseInWorld(self._frame).translation()
        return np.float32(np.linalg.norm(view.X_WC.inverse() @ p_W))

    def _images(
        self, physics: QueryObject, view: CameraView, channels: Collection[str]
    ) -> dict[str, np.ndarray]:
        size = (view.pinhole.height, view.pinhole.width)
        made = {
            "rgb": np.full((*size, 3), 7, np.uint8),
            "depth": np.full(size, self._depth(physics, view)),
        }
        return {channel: made[channel] for channel in channels}


@pytest.fixture(name="named")
def _named(monkeypatch):
    """The name of a renderer that is registered, and those that were made."""
    made: list[DistanceRenderer] = []
    monkeypatch.setitem(RENDERERS, "distance", lambda: made.append(DistanceRenderer()) or made[-1])
    return "distance", made


def test_images_and_clouds_come_from_a_renderer_of_ones_own(named):
    name, made = named
    kwargs = {"obs_mode": "rgbd", "channels": ["rgb", "depth"], "image_source": name, **SMALL}
    env = unwrap(gymnasium.make("FleetTools/Hammer-v0", **kwargs))
    for seed in (0, 1, 2):
        observation, _ = env.reset(seed=seed)
        assert env.observation_space.contains(observation)
        assert (observation["wrist_rgb"] == 7).all()
        assert np.ptp(observation["wrist_depth"]) == 0 < observation["wrist_depth"][0, 0]
    assert made[0].scenes == 3 >= made[0].worlds
    cloud_env = EnvSpec.of("hammer", obs_mode="point_cloud", cloud_source=name, **SMALL).make()
    cloud = cloud_env.reset(seed=0)[0]["point_cloud"]
    assert set(cloud[:, 3]) == {1.0, -1.0}
    again = EnvSpec.model_validate_json(EnvSpec.of("hammer", **kwargs).to_json())
    assert again.kwargs["image_source"] == name  # data name it; they hold no code


def test_a_renderer_that_lacks_what_is_asked_for_is_refused(named):
    name, _ = named
    for source, missing in ((name, "segmentation"), ("rays", "depth, rgb, segmentation")):
        with pytest.raises(ConfigError, match=rf"'{source}' shows .*, not {missing}"):
            EnvSpec.of("hammer", obs_mode="rgbd", image_source=source).make()
    with pytest.raises(ConfigError, match="not images"):
        RayRenderer().images(None, [], ["rgb"])  # pyright: ignore[reportArgumentType]


@needs_gl
def test_the_renderers_of_the_package_are_renderers():
    renderers: list[Renderer] = [RayRenderer(), VtkRenderer()]  # as pyright checks
    assert {type(make()) for make in RENDERERS.values()} == {type(each) for each in renderers}


def test_an_observation_mode_is_one_entry(monkeypatch):
    def joint_speeds(
        keypoints: ObservedKeypoints, config: ObservationConfig
    ) -> dict[str, Observable]:
        spec = ArraySpec(kind="state", shape=(1,), dtype="float32", unit="rad/s", frame=None)
        return {
            "top_speed": Observable(spec, lambda measured: np.abs(measured.state.v).max()[None])
        }

    mode = ObservationMode("the speed of the fastest joint", joint_speeds)
    monkeypatch.setitem(OBS_MODES, "speed", mode)
    env = EnvSpec.of("hammer", obs_mode="speed").make()
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert {"top_speed", "joint_position"} <= observation.keys() and len(observation) == 6
    assert observation_kwargs({"obs_mode": "speed", "split": "all"}) == {"obs_mode": "speed"}


def test_an_unknown_mode_is_an_error_everywhere():
    for use in (
        lambda: EnvSpec.of("hammer", obs_mode="speed").make(),
        lambda: observation_kwargs({"obs_mode": "speed"}),
    ):
        with pytest.raises(UnknownNameError, match="obs_mode: 'speed'"):
            use()
    assert "sensors" not in policy_kwargs()
