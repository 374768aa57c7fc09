"""Images and point clouds compared with ray casts, for every task, in the middle of an episode."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import trimesh
from pydrake.math import RigidTransform, RollPitchYaw, RotationMatrix
from scipy.spatial import KDTree
from support.environments import IDS
from support.rendering import needs_gl
from support.solid_scene import cast_rays, solid

from fleet_tools.config.geometry import Pose
from fleet_tools.envs.observations import Observation
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.perception.camera_view import OBJECT, TOOL, CameraView
from fleet_tools.perception.observer import Observer, camera_views

SIZE = (160, 120)
CLOUD_SOURCES = ("rays", "vtk")

pytestmark = needs_gl


@pytest.fixture(
    scope="module",
    name="scene_of",
    params=[IDS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in IDS[1:])],
)
def _scene_of(request):
    """A function that makes environments in the same state of the expert's episode."""
    expert_env = unwrap(gymnasium.make(request.param))
    observation, _ = expert_env.reset(seed=11)
    expert = ExpertPolicy(expert_env)
    expert.reset()
    for _ in range(8):
        observation, *_ = expert_env.step(expert.act(observation))
    state = expert_env.get_state()
    expert_env.close()
    made: dict[tuple[str, str], ToolUseEnv] = {}

    def make(obs_mode: str, source: str = "rays") -> tuple[ToolUseEnv, Observation]:
        if (obs_mode, source) not in made:
            kwargs = {"obs_mode": obs_mode, "camera_size": SIZE, "cloud_source": source}
            made[obs_mode, source] = unwrap(gymnasium.make(request.param, **kwargs))
            made[obs_mode, source].reset(seed=11)
        return made[obs_mode, source], made[obs_mode, source].set_state(state)

    yield make
    for env in made.values():
        env.close()


@pytest.fixture(name="images")
def _images(scene_of):
    return scene_of("rgbd")


@pytest.fixture(name="cloud", params=CLOUD_SOURCES)
def _cloud(scene_of, request):
    env, observation = scene_of("point_cloud", request.param)
    return env, observation["point_cloud"]


def visible_points(env: ToolUseEnv, X_WC: RigidTransform) -> tuple[np.ndarray, np.ndarray]:
    """Returns what all cameras, at one pose, see of tool and object, in the world."""
    # A camera of the hand that moves in it sees what it holds anew.
    env._observer.begin(env.scene)
    views = [replace(view, X_WC=X_WC) for view in views_of(env)]
    return env._observer.visible_points(env.simulation, views)


def views_of(env: ToolUseEnv) -> list[CameraView]:
    """Returns the cameras where they are now."""
    return camera_views(env.task.cameras, env.scene.cameras, env.world_state().X_WE, SIZE)


def as_pose(X: RigidTransform) -> Pose:
    x, y, z = X.translation()
    roll, pitch, yaw = np.rad2deg(RollPitchYaw(X.rotation()).vector())
    return Pose(translation_m=(x, y, z), rpy_deg=(roll, pitch, yaw))


def camera_matrices(observation: Observation, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns K (3, 3) and X_WC (4, 4) of a camera."""
    X_WC = np.vstack([observation[f"{name}_X_WC"], [0, 0, 0, 1]]).astype(float)
    return observation[f"{name}_K"].astype(float), X_WC


def in_world(env: ToolUseEnv, p_E: np.ndarray) -> np.ndarray:
    return env.world_state().X_WE.multiply(p_E.T.astype(float)).T


def all_points(observation: Observation, name: str, segment: int) -> np.ndarray:
    """Returns all pixels of a segment as points in the world, by the observation's matrices."""
    K, X_WC = camera_matrices(observation, name)
    depth = observation[f"{name}_depth"].astype(float)
    v, u = np.nonzero((observation[f"{name}_segmentation"] == segment) & (depth > 0))
    p_C = np.column_stack([u, v, np.ones(len(u))]) @ np.linalg.inv(K).T * depth[v, u, None]
    return p_C @ X_WC[:3, :3].T + X_WC[:3, 3]


@pytest.mark.parametrize("mask, segment", [(1, TOOL), (-1, OBJECT)], ids=["tool", "object"])
def test_every_point_lies_on_the_surface_that_it_is_labelled_with(cloud, mask, segment):
    env, rows = cloud
    p_W = in_world(env, rows[rows[:, 3] == mask, :3])
    assert len(p_W) == 512
    _, distance_m, _ = trimesh.proximity.closest_point(solid(env, segment), p_W)
    assert distance_m.max() < 1e-4


@pytest.mark.parametrize("name", ["overhead", "wrist"])
def test_depth_and_labels_agree_with_a_ray_cast(images, name):
    env, observation = images
    pixels = np.random.default_rng(0).integers(0, SIZE, (3000, 2))
    depth, segment = cast_rays(env, *camera_matrices(observation, name), pixels)
    measured = observation[f"{name}_depth"][pixels[:, 1], pixels[:, 0]]
    labelled = observation[f"{name}_segmentation"][pixels[:, 1], pixels[:, 0]]
    # On an edge, a ray and a renderer's rounding may fall to either side.
    assert (segment == labelled).mean() > 0.999
    both = np.isfinite(depth) & np.isfinite(measured)
    assert (np.isfinite(depth) == np.isfinite(measured)).mean() > 0.999
    error_m = np.abs(depth[both] - measured[both])
    assert np.quantile(error_m, 0.99) < 1e-4


def test_colours_change_rgb_and_neither_depth_nor_labels(images):
    env, observation = images
    state, digest = env.get_state(), env.state_digest()
    tints = {"tool_tint": (0.4, 1.0, 0.6), "object_tint": (1.0, 0.4, 0.4)}
    scene = env.scene.model_copy(update={"table_texture": "tiles", **tints})
    env.reset(options={"scene": scene})
    other = env.set_state(replace(state, scene=scene))
    assert env.state_digest() == digest
    for name, image in observation.items():
        if name.endswith("_rgb"):
            assert (other[name] != image).any(axis=2).mean() > 0.3
        else:
            np.testing.assert_array_equal(other[name], image)


def test_rays_and_renderer_see_the_same_points(scene_of, monkeypatch):
    monkeypatch.setattr("fleet_tools.perception.point_cloud.MAX_POINTS", SIZE[0] * SIZE[1])
    seen = []
    for source in CLOUD_SOURCES:
        env, _ = scene_of("point_cloud", source)
        seen.append(env._observer.visible_points(env.simulation, views_of(env)))
    for one, other in zip(*seen, strict=True):
        assert abs(len(one) - len(other)) <= 2e-4 * SIZE[0] * SIZE[1]
        for first, second in ((one, other), (other, one)):
            # On an edge, a ray and a renderer's rounding may fall to either side.
            assert (KDTree(second).query(first)[0] < 1e-5).mean() > 0.98


def test_what_the_hand_holds_is_seen_once_an_episode(scene_of):
    env, _ = scene_of("point_cloud")
    kept = env._observer.visible_points(env.simulation, views_of(env))
    env._observer.begin(env.scene)  # as if the episode began here
    anew = env._observer.visible_points(env.simulation, views_of(env))
    for one, other in zip(kept, anew, strict=True):
        assert (KDTree(other).query(one)[0] < 1e-5).mean() > 0.98
    np.testing.assert_array_equal(kept[1], anew[1])


def test_the_cloud_is_part_of_the_points_of_the_whole_images(cloud, images):
    env, rows = cloud
    _, observation = images
    for mask, segment in ((1, TOOL), (-1, OBJECT)):
        p_W = in_world(env, rows[rows[:, 3] == mask, :3])
        visible = [all_points(observation, name, segment) for name in ("overhead", "wrist")]
        distance_m, _ = KDTree(np.concatenate(visible)).query(p_W)
        assert distance_m.max() < 1e-5


def test_the_objects_points_move_with_it(cloud):
    env, _ = cloud
    state, X_WO = env.get_state(), env.scene.object_pose.to_transform()
    X_OC = RigidTransform(RotationMatrix.MakeXRotation(np.pi), [0.1, -0.3, 0.5])
    turned = RigidTransform(RotationMatrix.MakeZRotation(0.7), [0.03, -0.05, 0.0]) @ X_WO
    visible = []
    for pose in (env.scene.object_pose, as_pose(turned)):
        env.reset(options={"scene": env.scene.model_copy(update={"object_pose": pose})})
        _, p_W = visible_points(env, pose.to_transform() @ X_OC)
        visible.append(pose.to_transform().inverse().multiply(p_W.T).T)
    env.set_state(state)
    assert len(visible[0]) > 100
    distance_m = KDTree(visible[0]).query(visible[1])[0]
    # Rounding may give a pixel of the edge to the table.
    assert (distance_m < 1e-4).mean() > 0.98


def test_the_tools_points_move_with_the_hand(cloud):
    env, _ = cloud
    state, visible = env.get_state(), []
    env.reset(options={"scene": env.scene})
    for _ in range(3):
        X_WE = env.world_state().X_WE
        X_EC = env.scene.cameras["wrist"].to_transform()
        p_W, _ = visible_points(env, X_WE @ X_EC)
        visible.append(X_WE.inverse().multiply(p_W.T).T)
        env.step(np.array([-0.3, 0.2, -0.5, 0.2, 0.1, -0.3], np.float32))
    env.set_state(state)
    for points in visible[1:]:
        assert (KDTree(visible[0]).query(points)[0] < 1e-4).mean() > 0.98


def test_points_nearer_than_the_cameras_range_are_absent(cloud):
    env, rows = cloud
    simulation, view = env.simulation, views_of(env)[1]
    observer = Observer(env._observer._config)
    observer.enter(simulation.world)
    near, far = view.depth_range_m
    R_WC = view.X_WC.rotation()
    p_WQ = in_world(env, rows[:1, :3])[0]
    points = np.zeros((0, 3))
    for distance_m in (0.2 * near, 0.9 * near, 1.2 * near, 4 * near):
        X_WC = RigidTransform(R_WC, p_WQ - distance_m * R_WC.matrix()[:, 2])
        observer.begin(env.scene)
        points = np.concatenate(observer.visible_points(simulation, [replace(view, X_WC=X_WC)]))
        z_C = X_WC.inverse().multiply(points.T)[2]
        assert ((z_C > near - 1e-6) & (z_C < far)).all()
        if distance_m < near:
            assert np.linalg.norm(points - p_WQ, axis=1).min(initial=np.inf) > 1e-3
    assert len(points) > 0


def test_parts_out_of_view_have_rows_of_zeros(cloud):
    env, _ = cloud
    state, scene = env.get_state(), env.scene
    up = Pose(translation_m=(0.5, 0.0, 1.5))  # looks upwards
    hand = Pose(translation_m=(0.0, 0.0, -0.3), rpy_deg=(180.0, 0.0, 0.0))  # along the arm
    turned = scene.model_copy(update={"cameras": {"overhead": up, "wrist": hand}})
    observation, _ = env.reset(options={"scene": turned})
    np.testing.assert_array_equal(observation["point_cloud"], np.zeros((1024, 4)))
    assert env.observation_space.contains(observation)
    observation, *_ = env.step(np.zeros(6, np.float32))
    assert not observation["point_cloud"].any()
    env.reset(options={"scene": scene})
    env.set_state(state)
