"""What the cameras say against what is so, for every task, in the middle of the work."""

import gymnasium
import numpy as np
import pytest
import trimesh
from conftest import IDS, needs_gl
from pydrake.math import RigidTransform, RollPitchYaw, RotationMatrix
from scipy.spatial import cKDTree
from solid_scene import cast, solid

from fleet_tools.config.poses import Pose
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.perception.segmentation import OBJECT, TOOL

SIZE = (160, 120)

pytestmark = needs_gl


@pytest.fixture(scope="module", name="scene_of", params=IDS)
def _scene_of(request):
    """Makes environments that all stand at the same moment of the expert's work."""
    expert_env = gymnasium.make(request.param).unwrapped
    observation, _ = expert_env.reset(seed=11)
    expert = ExpertPolicy(expert_env)
    expert.reset()
    for _ in range(8):
        observation, *_ = expert_env.step(expert.act(observation))
    state = expert_env.get_state()
    expert_env.close()
    made = {}

    def make(obs_mode, **keywords):
        key = (obs_mode, *keywords.items())
        if key not in made:
            made[key] = gymnasium.make(
                request.param, obs_mode=obs_mode, camera_size=SIZE, **keywords
            ).unwrapped
            made[key].reset(seed=11)
        return made[key], made[key].set_state(state)

    yield make
    for env in made.values():
        env.close()


@pytest.fixture(name="images")
def _images(scene_of):
    return scene_of("rgbd")


@pytest.fixture(name="cloud")
def _cloud(scene_of):
    env, observation = scene_of("point_cloud")
    return env, observation["point_cloud"]


def points_from(env, X_WC):
    """What both cameras see of tool and object from one place, in the world."""
    sight = env._sight
    return sight.rig.points(sight.query(env._simulation), dict.fromkeys(sight.rig.sensors, X_WC))


def as_pose(X):
    rpy = np.rad2deg(RollPitchYaw(X.rotation()).vector())
    return Pose(translation_m=tuple(X.translation()), rpy_deg=tuple(rpy))


def lens(observation, name):
    X_WC = np.vstack([observation[f"{name}_X_WC"], [0, 0, 0, 1]]).astype(float)
    return observation[f"{name}_K"].astype(float), X_WC


def in_world(env, p_E):
    return env.world_state().X_WE.multiply(p_E.T.astype(float)).T


def in_picture(observation, name, p_W):
    """Pixel coordinates (n, 2) and depths (n,) of points of the world."""
    K, X_WC = lens(observation, name)
    p_C = np.column_stack([p_W, np.ones(len(p_W))]) @ np.linalg.inv(X_WC).T[:, :3]
    return (p_C @ K.T)[:, :2] / p_C[:, 2:], p_C[:, 2]


def inside(uv):
    return ((uv > -0.01) & (uv < np.array(SIZE) - 0.99)).all(axis=1)


def at(image, uv):
    """The values of the pixels nearest to points in the picture."""
    u, v = np.rint(np.clip(uv, 0, np.array(SIZE) - 1)).astype(int).T
    return image[v, u]


def all_points(observation, name, segment):
    """Every pixel of a segment as a point in the world, by the matrices in the observation."""
    K, X_WC = lens(observation, name)
    depth = observation[f"{name}_depth"].astype(float)
    v, u = np.nonzero((observation[f"{name}_segmentation"] == segment) & (depth > 0))
    p_C = np.column_stack([u, v, np.ones(len(u))]) @ np.linalg.inv(K).T * depth[v, u, None]
    return p_C @ X_WC[:3, :3].T + X_WC[:3, 3]


@pytest.mark.parametrize("mask, segment", [(1, TOOL), (-1, OBJECT)], ids=["tool", "object"])
def test_every_point_lies_on_the_surface_that_it_is_labelled_with(cloud, mask, segment):
    env, rows = cloud
    p_W = in_world(env, rows[rows[:, 3] == mask, :3])
    assert len(p_W) == 512
    _, away_m, _ = trimesh.proximity.closest_point(solid(env, segment), p_W)
    assert away_m.max() < 1e-4  # 3 mm were asked for


@pytest.mark.parametrize("name", ["overhead", "wrist"])
def test_depth_and_labels_agree_with_a_ray_cast(images, name):
    env, observation = images
    pixels = np.random.default_rng(0).integers(0, SIZE, (3000, 2))
    depth, segment = cast(env, *lens(observation, name), pixels)
    seen = observation[f"{name}_depth"][pixels[:, 1], pixels[:, 0]]
    labelled = observation[f"{name}_segmentation"][pixels[:, 1], pixels[:, 0]]
    # On an edge, a ray and a renderer's rounding may fall to either side.
    assert (segment == labelled).mean() > 0.999
    both = np.isfinite(depth) & np.isfinite(seen)
    assert (np.isfinite(depth) == np.isfinite(seen)).mean() > 0.999
    error_m = np.abs(depth[both] - seen[both])
    assert np.quantile(error_m, 0.99) < 1e-4


def test_each_point_of_the_cloud_projects_back_onto_its_label(cloud, images):
    env, rows = cloud
    _, observation = images
    landed = []
    for mask, segment in ((1, TOOL), (-1, OBJECT)):
        p_W = in_world(env, rows[rows[:, 3] == mask, :3])
        on_label = np.zeros(len(p_W), bool)
        for name in ("overhead", "wrist"):
            uv, depth = in_picture(observation, name, p_W)
            labelled = at(observation[f"{name}_segmentation"], uv) == segment
            as_deep = np.abs(at(observation[f"{name}_depth"], uv) - depth) < 1e-4
            central = np.abs(uv - np.rint(uv)).max(axis=1) < 0.01
            on_label |= labelled & as_deep & central & inside(uv)
        landed.append(on_label)
    assert np.concatenate(landed).all()


def test_no_camera_sees_through_what_the_other_sees(images):
    _, observation = images
    compared = 0
    for name, other in (("overhead", "wrist"), ("wrist", "overhead")):
        for segment in (TOOL, OBJECT):
            uv, depth = in_picture(observation, other, all_points(observation, name, segment))
            there = inside(uv) & (depth > 0.05)
            # Pixels around it, too: the edge of a thin thing may pass between them.
            around = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
            image = observation[f"{other}_depth"]
            nearest = np.min([at(image, uv[there] + offset) for offset in around], axis=0)
            compared += there.sum()
            assert (nearest < depth[there] + 0.003).mean() > 0.99
    assert compared > 100


def test_where_both_cameras_see_the_same_place_they_agree_on_what_it_is(images):
    _, observation = images
    for name, other in (("overhead", "wrist"), ("wrist", "overhead")):
        for segment in (TOOL, OBJECT):
            uv, depth = in_picture(observation, other, all_points(observation, name, segment))
            same = inside(uv) & (np.abs(at(observation[f"{other}_depth"], uv) - depth) < 0.001)
            if same.sum() > 20:
                labels = at(observation[f"{other}_segmentation"], uv[same])
                assert (labels == segment).mean() > 0.97


def test_colours_change_rgb_and_neither_depth_nor_labels(images):
    env, observation = images
    state, digest = env.get_state(), env.state_digest()
    looks = {"table_texture": "tiles", "tool_tint": (0.4, 1.0, 0.6), "object_tint": (1.0, 0.4, 0.4)}
    scene = env.scene.model_copy(update=looks)
    env.reset(options={"scene": scene})
    other = env.set_state(type(state)(scene, *list(vars(state).values())[1:]))
    assert env.state_digest() == digest
    for name, image in observation.items():
        if name.endswith("_rgb"):
            assert (other[name] != image).any(axis=2).mean() > 0.3
        else:
            np.testing.assert_array_equal(other[name], image)


def test_the_cloud_is_part_of_what_the_whole_pictures_show(cloud, images):
    env, rows = cloud
    _, observation = images
    for mask, segment in ((1, TOOL), (-1, OBJECT)):
        p_W = in_world(env, rows[rows[:, 3] == mask, :3])
        seen = [all_points(observation, name, segment) for name in ("overhead", "wrist")]
        away_m, _ = cKDTree(np.concatenate(seen)).query(p_W)
        assert away_m.max() < 1e-5


def test_the_objects_points_move_with_it(cloud):
    env, _ = cloud
    state, X_WO = env.get_state(), env.scene.object_pose.to_transform()
    X_OC = RigidTransform(RotationMatrix.MakeXRotation(np.pi), [0.1, -0.3, 0.5])
    turned = RigidTransform(RotationMatrix.MakeZRotation(0.7), [0.03, -0.05, 0.0]) @ X_WO
    seen = []
    for pose in (env.scene.object_pose, as_pose(turned)):
        env.reset(options={"scene": env.scene.model_copy(update={"object_pose": pose})})
        X_WC = pose.to_transform() @ X_OC
        _, p_W = env._sight.rig.points(
            env._sight.query(env._simulation), dict.fromkeys(env._sight.rig.sensors, X_WC)
        )
        seen.append(pose.to_transform().inverse().multiply(p_W.T).T)
    env.set_state(state)
    assert len(seen[0]) > 100
    away_m = cKDTree(seen[0]).query(seen[1])[0]
    # Rounding may give a pixel of the edge to the table.
    assert (away_m < 1e-4).mean() > 0.98


def test_the_tools_points_move_with_the_hand(cloud):
    env, _ = cloud
    state, seen = env.get_state(), []
    env.reset(options={"scene": env.scene})
    for _ in range(3):
        X_WE = env.world_state().X_WE
        X_EC = env.scene.cameras["wrist"].to_transform()
        p_W, _ = env._sight.rig.points(
            env._sight.query(env._simulation), dict.fromkeys(env._sight.rig.sensors, X_WE @ X_EC)
        )
        seen.append(X_WE.inverse().multiply(p_W.T).T)
        env.step(np.float32([-0.3, 0.2, -0.5, 0.2, 0.1, -0.3]))
    env.set_state(state)
    for points in seen[1:]:
        assert (cKDTree(seen[0]).query(points)[0] < 1e-4).mean() > 0.98


def test_what_is_nearer_than_the_sensors_range_is_absent(cloud):
    env, rows = cloud
    query, sensor = env._sight.query(env._simulation), env._sight.rig.sensors["wrist"]
    near, far = sensor.depth_range_m
    R_WC = env._moment.X_WC["wrist"].rotation()
    p_WQ = in_world(env, rows[:1, :3])[0]
    for away_m in (0.2 * near, 0.9 * near, 1.2 * near, 4 * near):
        X_WC = RigidTransform(R_WC, p_WQ - away_m * R_WC.matrix()[:, 2])
        depth = sensor.depth(query, X_WC)
        points = np.concatenate(sensor.points(query, X_WC))
        z_C = X_WC.inverse().multiply(points.T)[2]
        assert ((z_C > near - 1e-6) & (z_C < far)).all()
        assert ((depth == 0) | (depth > near - 1e-6)).all()
        if away_m < near:
            assert (depth == 0).any()
            assert np.linalg.norm(points - p_WQ, axis=1).min(initial=np.inf) > 1e-3
    assert len(points) > 0


def test_what_is_out_of_view_has_rows_of_zeros(cloud):
    env, _ = cloud
    state, scene = env.get_state(), env.scene
    up = Pose(translation_m=(0.5, 0.0, 1.5))  # looks at the sky
    hand = Pose(translation_m=(0.0, 0.0, -0.3), rpy_deg=(180.0, 0.0, 0.0))  # along the arm
    away = scene.model_copy(update={"cameras": {"overhead": up, "wrist": hand}})
    observation, _ = env.reset(options={"scene": away})
    np.testing.assert_array_equal(observation["point_cloud"], np.zeros((1024, 4)))
    assert env.observation_space.contains(observation)
    observation, *_ = env.step(np.zeros(6, np.float32))
    assert not observation["point_cloud"].any()
    env.reset(options={"scene": scene})
    env.set_state(state)
