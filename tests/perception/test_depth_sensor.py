"""Cameras with errors in environments: noise on the ray, calibration, delay, and the same bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import task_files
from support.rendering import needs_gl

from fleet_tools.config.cameras import SENSORS, ActiveStereo, Sensor, StructuredLight
from fleet_tools.config.tasks import load_task
from fleet_tools.envs.observations import Observation
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.perception.camera_view import OBJECT, TOOL, CameraView, Hits, Pinhole
from fleet_tools.perception.depth_sensor import DepthSensor
from fleet_tools.perception.observer import camera_views
from fleet_tools.perception.point_cloud import MAX_POINTS

ACTION = np.array([0.4, -0.3, 0.2, 0.3, 0.0, -0.5], np.float32)
STILL: dict[str, Any] = {"translation_m": [0, 0, 0], "rpy_deg": [0, 0, 0]}
SMALL: dict[str, Any] = {"obs_mode": "point_cloud", "camera_size": (160, 120)}
CAMERAS = load_task("hammer").cameras


def own_task(folder: Path, **figures: Any) -> str:
    """Returns the path of the hammer's task file with other figures of active stereo cameras."""
    return task_files.own_task(folder, "hammer", sensors={"active_stereo": figures})


def episode(env: ToolUseEnv, seed: int = 3, steps: int = 3) -> list[Observation]:
    """Returns the first observations of an episode in which the arm moves."""
    observations = [env.reset(seed=seed)[0]]
    observations += [env.step(ACTION * (1 - k % 2 / 2))[0] for k in range(steps)]
    return observations


def assert_same(one: Observation, other: Observation) -> None:
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def in_world(observation: Observation) -> np.ndarray:
    """Returns the points of a cloud in the world."""
    pose, rows = observation["end_effector_pose"].astype(float), observation["point_cloud"]
    return rows[:, :3] @ pose[:, :3].T + pose[:, 3]


def drawn(
    sensor: Sensor,
    name: str = "overhead",
    seed: int = 0,
    height: int = 240,
    error_scale: float = 1.0,
) -> DepthSensor:
    camera = CAMERAS[name]
    pinhole = Pinhole.of(camera, (4 * height // 3, height))
    return DepthSensor.draw(sensor, name, camera, pinhole, seed, error_scale)


# --- A camera's errors --------------------------------------------------------------------------


@pytest.mark.parametrize("sensor", [ActiveStereo(), StructuredLight()], ids=["stereo", "kinect"])
def test_errors_are_those_of_camera_and_scene(sensor):
    def facts(each: DepthSensor) -> bytes:
        return each.X_CK.GetAsMatrix34().tobytes()

    assert facts(drawn(sensor)) == facts(drawn(sensor))
    others = [drawn(sensor), drawn(sensor, "wrist"), drawn(sensor, seed=1)]
    assert len({facts(each) for each in others}) == 3
    for seed in range(50):
        X_CK = drawn(sensor, seed=seed).X_CK
        assert np.abs(X_CK.translation()).max() <= 0.002
        angle = X_CK.rotation().ToAngleAxis().angle()
        assert 0 < np.rad2deg(angle) <= 0.2 * np.sqrt(3) + 1e-9


def test_noise_is_that_of_the_device_at_any_resolution():
    small, large = drawn(ActiveStereo(), height=120).noise, drawn(ActiveStereo(), height=480).noise
    assert small.axial.growth_per_m == pytest.approx(large.axial.growth_per_m)
    assert small.lateral_px * 4 == pytest.approx(large.lateral_px)
    assert small.spacing_px * 4 == pytest.approx(large.spacing_px)
    # 40 degrees of 720 rows, 55 mm apart: 1.8 mm at 1.1 m.
    focal_px = 360 / np.tan(np.deg2rad(20))
    assert large.axial.sigma_m(np.array(1.1)) == pytest.approx(1.21 * 0.08 / focal_px / 0.055)
    wrist = drawn(ActiveStereo(), "wrist").noise.axial.sigma_m(np.array(0.2))
    assert wrist == pytest.approx(0.04 * 0.08 / (360 / np.tan(np.deg2rad(35))) / 0.018)


@pytest.mark.parametrize("kind", [ActiveStereo(), StructuredLight()], ids=["stereo", "kinect"])
def test_a_scale_multiplies_all_errors_and_nothing_else(kind):
    one, twice = drawn(kind), drawn(kind, error_scale=2.0)
    for of in ("translation", "rotation"):
        a, b = (getattr(each.X_CK, of)() for each in (one, twice))
        if of == "rotation":
            a, b = a.ToAngleAxis().angle(), b.ToAngleAxis().angle()
        np.testing.assert_allclose(b, 2 * np.asarray(a), rtol=1e-3)
    sigmas = [each.noise.axial.sigma_m(np.array([0.3, 0.9])) for each in (one, twice)]
    np.testing.assert_allclose(sigmas[1], 2 * sigmas[0])
    assert twice.noise.lateral_px == 2 * one.noise.lateral_px
    assert (twice.noise.spacing_px, twice.range_m) == (one.noise.spacing_px, one.range_m)


def test_images_and_hits_have_the_same_errors():
    sensor, generator = drawn(StructuredLight()), np.random.default_rng(0)
    depth = np.zeros((240, 320), np.float32)
    depth[50:150, 100:260] = 0.9 + generator.normal(0, 0.001, (100, 160))
    depth[0, 0], depth[0, 1] = np.inf, 0.0
    image = sensor.read_image(depth, 7)
    pixels = np.flatnonzero((depth > 0) & np.isfinite(depth))
    first, second = pixels[: len(pixels) // 2], pixels[len(pixels) // 2 :]
    parts = {TOOL: Hits(first, depth.ravel()[first]), OBJECT: Hits(second, depth.ravel()[second])}
    again = np.zeros_like(depth)
    again[0, 0] = np.inf  # too far, as before
    for hits in sensor.read_hits(parts, 7).values():
        again.ravel()[hits.pixels] = hits.depths
    np.testing.assert_array_equal(image, again)
    assert (image != sensor.read_image(depth, 8)).any()


def test_what_leaves_the_range_is_lost():
    near, far = CAMERAS["overhead"].depth_range_m
    sensor = drawn(StructuredLight())
    for limit in (near, far):
        image = sensor.read_image(np.full((240, 320), limit, np.float32), 0)
        read = image[image > 0]
        assert 0.3 < len(read) / image.size < 0.7
        assert read.min() >= near and read.max() <= far


def test_a_camera_that_sees_nothing_reads_nothing():
    nothing = Hits(np.zeros(0, int), np.zeros(0, np.float32))
    read = drawn(ActiveStereo()).read_hits({TOOL: nothing, OBJECT: nothing}, 0)
    assert [len(hits.pixels) for hits in read.values()] == [0, 0]


# --- Environments -------------------------------------------------------------------------------


@pytest.fixture(name="noisy")
def _noisy(make):
    return make(sensors="active_stereo", **SMALL)


@pytest.fixture(name="ideal")
def _ideal(make):
    return make(**SMALL)


@pytest.mark.slow
def test_cameras_without_any_error_are_ideal_ones(tmp_path, ideal):
    silent = {"disparity_noise_px": 0, "lateral_noise_px": 0, "delay_steps": 0}
    task = own_task(tmp_path, calibration_error=STILL, **silent)
    env = EnvSpec.of(task=task, sensors="active_stereo", **SMALL).make_tool_use()
    for one, other in zip(episode(env), episode(ideal), strict=True):
        assert_same(one, other)
    env.close()


def test_delayed_cameras_show_the_step_before(tmp_path):
    # Farthest points depend on rounding, which the present pose changes.
    kwargs = SMALL | {"sensors": "active_stereo", "cloud_sampling": "even"}
    prompt = EnvSpec.of(task=own_task(tmp_path, delay_steps=0), **kwargs).make_tool_use()
    delayed_env = EnvSpec.of(task="hammer", **kwargs).make_tool_use()
    now, late = episode(prompt), episode(delayed_env)
    assert_same(now[0], late[0])  # at the start they show the start
    for earlier, present, delayed in zip(now, now[1:], late[1:], strict=False):
        # Points are where they were in the world; the arm's own senses are of the present.
        np.testing.assert_allclose(in_world(delayed), in_world(earlier), atol=1e-6)
        np.testing.assert_array_equal(delayed["end_effector_pose"], present["end_effector_pose"])
        assert np.abs(in_world(present) - in_world(delayed))[:512].max() > 0.01
    prompt.close()
    delayed_env.close()


def test_every_point_lies_on_the_ray_of_a_pixel(tmp_path):
    task = own_task(tmp_path, calibration_error=STILL, delay_steps=0)
    env = EnvSpec.of(task=task, sensors="active_stereo", **SMALL).make_tool_use()
    observation, info = env.reset(seed=3)
    p_W = in_world(observation)
    from_ray = np.full(len(p_W), np.inf)
    for camera in info["cameras"].values():
        p_C = (p_W - camera["X_WC"][:3, 3]) @ camera["X_WC"][:3, :3]
        uv = (p_C @ camera["K"].T)[:, :2] / p_C[:, 2:]
        from_ray = np.minimum(from_ray, np.abs(uv - np.rint(uv)).max(axis=1))
    assert from_ray.max() < 1e-3  # pixels
    env.close()


def test_points_move_with_the_calibration(tmp_path, ideal):
    """Without noise, the points in a camera are the true ones; the camera is believed elsewhere."""
    silent = {"disparity_noise_px": 0, "lateral_noise_px": 0, "delay_steps": 0}
    env = EnvSpec.of(
        task=own_task(tmp_path, **silent), sensors="active_stereo", **SMALL
    ).make_tool_use()
    (_, info), (_, true) = env.reset(seed=3), ideal.reset(seed=3)
    views, sensors = views_of(env), env._observer._sensors
    believed = env._observer.visible_points(env.simulation, views)
    exact = ideal._observer.visible_points(ideal.simulation, views)
    sizes = []
    for (name, X), hits in zip(
        [(view.name, view.X_WC) for view in views], seen_by(ideal), strict=True
    ):
        sizes.append(min(len(hits[TOOL].pixels), MAX_POINTS))
        shift = X @ sensors[name].X_CK @ X.inverse()
        rows = slice(sum(sizes[:-1]), sum(sizes))
        moved = shift.multiply(exact[0][rows].T).T
        np.testing.assert_allclose(believed[0][rows], moved, atol=1e-9)
        np.testing.assert_array_equal(true["cameras"][name]["X_WC"], X.GetAsMatrix4())
        reported = (X @ sensors[name].X_CK).GetAsMatrix4()
        np.testing.assert_array_equal(info["cameras"][name]["X_WC"], reported)
    env.close()


def seen_by(env: ToolUseEnv) -> list[dict[int, Hits]]:
    """Returns what ideal cameras see, one camera after the other."""
    renderer = env._observer._renderer
    assert renderer is not None
    return renderer.points(env.simulation.query(), views_of(env))


def views_of(env: ToolUseEnv) -> list[CameraView]:
    """Returns the cameras where they are now."""
    cameras, X_WE = env.scene.cameras, env.world_state().X_WE
    return camera_views(env.task.cameras, cameras, X_WE, SMALL["camera_size"])


@needs_gl
@pytest.mark.parametrize(
    "sensors", [SENSORS[1], *(pytest.param(s, marks=pytest.mark.slow) for s in SENSORS[2:])]
)
def test_depth_images_err_and_other_images_do_not(sensors):
    kwargs = {"obs_mode": "rgbd", "camera_size": (160, 120)}
    exact, with_errors = (
        EnvSpec.of(task="hammer", sensors=s, **kwargs).make_tool_use() for s in ("ideal", sensors)
    )
    one, other = exact.reset(seed=3)[0], with_errors.reset(seed=3)[0]
    for name in ("overhead", "wrist"):
        np.testing.assert_array_equal(one[f"{name}_rgb"], other[f"{name}_rgb"])
        np.testing.assert_array_equal(one[f"{name}_segmentation"], other[f"{name}_segmentation"])
        assert (one[f"{name}_X_WC"] != other[f"{name}_X_WC"]).any()
        true, read = one[f"{name}_depth"], other[f"{name}_depth"]
        lost = (read == 0) & (true > 0)
        assert 0 < lost.mean() < 0.2
        measured = (read > 0) & np.isfinite(read)
        assert 1e-4 < np.median(np.abs(read[measured] - true[measured])) < 5e-3
        np.testing.assert_array_equal(np.isinf(read), np.isinf(true))
    later = [env.step(ACTION)[0] for env in (exact, with_errors)]
    assert (later[0]["wrist_rgb"] != later[1]["wrist_rgb"]).any()
    np.testing.assert_array_equal(later[1]["wrist_rgb"], one["wrist_rgb"])  # of the step before
    exact.close()
    with_errors.close()


@pytest.mark.slow
@needs_gl
def test_rendered_clouds_have_the_errors_of_clouds_by_rays(tmp_path):
    task = own_task(tmp_path, calibration_error=STILL, delay_steps=0)
    errors = []
    for source in ("rays", "vtk"):
        clouds = []
        for sensors in ("ideal", "active_stereo"):
            env = EnvSpec.of(
                task=task, sensors=sensors, cloud_source=source, **SMALL
            ).make_tool_use()
            env.reset(seed=3)
            seen = seen_by(env)[0]
            if sensors != "ideal":
                seen = env._observer._sensors["overhead"].read_hits(seen, 0)
            image = np.full(160 * 120, np.nan)
            image[seen[TOOL].pixels] = seen[TOOL].depths
            clouds.append(image)
            env.close()
        errors.append(clouds[1] - clouds[0])
    assert np.isfinite(errors[0]).sum() > 100
    close = np.isclose(*errors, atol=1e-5, equal_nan=True)
    assert close.mean() > 0.98  # on an edge, a ray and a renderer may differ
