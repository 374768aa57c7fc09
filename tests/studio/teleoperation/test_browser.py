"""A person in a real browser makes episodes that are stored and replay; other sites do not."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from support.strangers import VISER_PROTOCOL, drag_message, hostile_page
from support.teleoperated import (
    PATIENCE_S,
    ExpertWishes,
    act_in,
    act_out,
    end_and_save,
    opened,
    wait_for_phase,
)

from fleet_tools import replay
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.attempts import scene_seed
from fleet_tools.dataset.samples import Samples
from fleet_tools.perception.camera_view import Pinhole
from fleet_tools.perception.display import look_at
from fleet_tools.robot.pose_delta import displacement
from fleet_tools.studio.teleoperation.display import EYE, GIZMO_SIZE_M, TARGET
from fleet_tools.studio.teleoperation.page_server import Controls

viser = pytest.importorskip("viser", reason="the extra `browser` is not installed")

pytestmark = pytest.mark.slow  # it starts a browser

PAIR: dict[str, Any] = {"tool": "claw", "object": "round_nail"}
FIELD_OF_VIEW_DEG = 75.0  # of viser's first camera, vertically


def poses_of(folder: Path, attempt: int) -> np.ndarray:
    """Returns the poses of the end effector in a stored episode, (T + 1, 3, 4)."""
    return Dataset(folder).episode(attempt).observations["end_effector_pose"].astype(float)


def act_with_keys(page, *keys: str, ms: int = 800) -> None:
    for key in keys:
        page.keyboard.down(key)
    wait_for_phase(page, "Running")
    page.wait_for_timeout(ms)
    for key in keys:
        page.keyboard.up(key)


def test_episodes_are_saved_discarded_and_begun_again(tmp_path, capsys):
    def person(page) -> None:
        wait_for_phase(page, "Move to begin")
        page.keyboard.press("Enter")  # there is nothing to be saved
        # Attempt 0: upwards, ended and saved by keys.
        act_with_keys(page, "KeyE")
        page.keyboard.press("Enter")
        wait_for_phase(page, "without success: save, discard or retry?")
        assert not Dataset(tmp_path).manifest()
        page.keyboard.press("Enter")
        page.get_by_text("attempt 1:").wait_for()
        assert len(Dataset(tmp_path)) == 1  # already on the disk
        # Attempt 1: begun again by a key, then by a click, and discarded by a click.
        for again in (
            lambda: page.keyboard.press("KeyT"),
            lambda: page.get_by_role("button", name="Retry").click(),
        ):
            act_with_keys(page, "KeyE", "KeyA")
            again()
            wait_for_phase(page, "Move to begin")
        act_with_keys(page, "KeyS")
        page.get_by_role("button", name="Discard").click()
        page.get_by_text("attempt 2:").wait_for()
        assert "0 of 1 successes, 1 saved, 1 discarded" in page.inner_text("#counts")
        # Attempt 2: a key stays pressed when the page loses the focus, and is released.
        page.keyboard.down("KeyE")
        wait_for_phase(page, "Running")
        page.evaluate("dispatchEvent(new Event('blur'))")
        page.wait_for_timeout(2500)  # steps are slow on a busy machine
        page.keyboard.up("KeyE")
        end_and_save(page)
        # Attempt 3 is under way at Ctrl-C.
        page.get_by_text("attempt 3:").wait_for()
        act_with_keys(page, "KeyW")

    with opened(tmp_path, "hammer", **PAIR) as session:
        act_in(session, person)
    saved, discarded, blurred = Dataset(tmp_path).manifest()
    assert (saved.outcome, saved.success, saved.info["retries"]) == ("policy_error", False, 0)
    assert saved.info["devices"] == ["keyboard"]
    assert (discarded.outcome, discarded.file, discarded.info["retries"]) == ("discarded", None, 2)
    assert [record.seed for record in (saved, discarded)] == [scene_seed(0, k) for k in (0, 1)]
    # As long as E was pressed, the arm moved straight up.
    p_W = poses_of(tmp_path, 0)[:, :, 3]
    assert p_W[-1, 2] - p_W[0, 2] > 0.05
    np.testing.assert_allclose(p_W[-1, :2], p_W[0, :2], atol=0.01)
    actions = Dataset(tmp_path).episode(blurred.attempt).actions
    assert actions[0].any()
    assert not actions[-1].any()
    assert replay.main([str(tmp_path), "--workers", "0"]) == 0
    assert "2 of 2 episodes identical bit for bit" in capsys.readouterr().out


def test_the_arm_follows_the_dragged_gizmo(hammer, tmp_path):
    hammer.reset(seed=scene_seed(0, 0))
    X_WE = hammer.world_state().X_WE
    targets = []

    def person(page) -> None:
        wait_for_phase(page, "Move to begin")
        page.frame_locator("#scene").get_by_text("Connected").wait_for()
        z_W = X_WE.rotation().matrix()[:, 2]  # an arrow of the gizmo, which points down
        grab, release = (
            pixel_of(page, X_WE.translation() + length * GIZMO_SIZE_M * z_W)
            for length in (0.95, -0.05)
        )
        for seconds in (2, 5, 10, 20):  # the scene may not be there yet
            page.wait_for_timeout(1000 * seconds)
            page.mouse.move(*grab)
            page.wait_for_timeout(1000)
            page.mouse.down()
            page.mouse.move(*release, steps=5)
            page.mouse.up()
            page.wait_for_timeout(2000)
            if "Running" in page.inner_text("#phase"):
                break
            page.reload()  # a miss turned the view
            page.frame_locator("#scene").get_by_text("Connected").wait_for()
        # The arm's time, which a busy machine delays.
        arrived = "parseFloat(document.getElementById('time').textContent) > 4"
        page.wait_for_function(arrived, timeout=1000 * PATIENCE_S)
        targets.append(session.inputs.given().target)
        end_and_save(page)  # the page has the focus, although the scene was clicked
        page.get_by_text("attempt 1:").wait_for()

    with opened(tmp_path, "hammer", **PAIR) as session:
        act_in(session, person, width=1000, height=500)
    (record,) = Dataset(tmp_path).stored()
    assert record.info["devices"] == ["gizmo"]
    (target,) = targets
    dragged = displacement(X_WE, target)
    assert dragged[2] == pytest.approx(-GIZMO_SIZE_M, abs=0.04)
    np.testing.assert_allclose(np.delete(dragged, 2), 0, atol=1e-3)
    reached = poses_of(tmp_path, 0)[-1]
    np.testing.assert_allclose(reached[:, 3], target.translation(), atol=0.005)
    assert replay.main([str(tmp_path), "--workers", "0", "--quiet"]) == 0


def pixel_of(page, p_W: np.ndarray) -> tuple[float, float]:
    """Returns where the page shows a point of the world at first, in pixels."""
    box = page.locator("#scene").bounding_box()
    size = round(box["width"]), round(box["height"])
    pinhole = Pinhole.from_field_of_view(*size, FIELD_OF_VIEW_DEG)
    right, down = pinhole.project((look_at(EYE, TARGET).inverse() @ p_W)[np.newaxis])[0]
    return box["x"] + right, box["y"] + down


def test_a_page_of_another_site_steers_nothing(tmp_path):
    forward, drag = Controls(keys=frozenset({"KeyW"})).to_json().encode(), drag_message("/gizmo")

    def person(page) -> None:
        wait_for_phase(page, "Move to begin")
        page.frame_locator("#scene").get_by_text("Connected").wait_for()
        own, scene = urlsplit(session.url), urlsplit(page.locator("#scene").get_attribute("src"))
        with hostile_page(page) as stranger:
            for host in ("127.0.0.1", "localhost"):
                for path in ("/", "/socket", f"{own.path}socket"):  # maybe it learns the address
                    assert not stranger.attack(f"ws://{host}:{own.port}{path}", [forward])
                for path in ("/", scene.path[:-1]):
                    url = f"ws://{host}:{scene.port}{path}"
                    assert not stranger.attack(url, [drag], VISER_PROTOCOL)
            for url in (session.url, scene.geturl()):
                assert stranger.read(url) is None
                stranger.submit(url)
            # Without a gate, the same page does steer.
            drags = []
            bare = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
            bare.scene.add_transform_controls("/gizmo").on_update(drags.append)
            url = f"ws://127.0.0.1:{bare.get_port()}/"
            assert stranger.attack(url, [drag], VISER_PROTOCOL)
            bare.stop()
            assert drags
        assert not session.inputs.given().moves
        wait_for_phase(page, "Move to begin")
        # Nor does a second tab of the person, who is told so.
        second = page.context.new_page()
        second.goto(session.url)
        second.get_by_text("open in another tab").wait_for()
        second.close()
        page.bring_to_front()
        page.reload()
        wait_for_phase(page, "Move to begin")
        act_with_keys(page, "KeyE")
        end_and_save(page)
        page.get_by_text("attempt 1:").wait_for()

    with opened(tmp_path, "hammer", **PAIR) as session:
        act_in(session, person, width=600, height=400)
    (record,) = Dataset(tmp_path).stored()
    assert record.info["devices"] == ["keyboard"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["hammer", "wrench", "spatula", "knife"])
def test_a_task_is_solved_through_the_gamepad(task, tmp_path):
    paces: list[ExpertWishes] = []

    def make_pace(env, inputs, period_s) -> ExpertWishes:
        paces.append(ExpertWishes(env, inputs))
        return paces[0]

    with opened(tmp_path, task, verify=True, make_pace=make_pace) as session:
        act_in(session, lambda page: act_out(page, paces[0].wishes))
    dataset = Dataset(tmp_path)
    (record,) = dataset.stored()
    assert dataset.header.policy == "teleoperation"
    assert (record.success, record.verified, record.attempt) == (True, True, 0)
    assert record.info["devices"] == ["gamepad"]
    assert replay.main([str(tmp_path), "--workers", "0"]) == 0
    assert len(Samples(tmp_path)) == record.steps
