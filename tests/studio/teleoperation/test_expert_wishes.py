"""Each task is solved through the devices: a gamepad in the browser, moved by the expert's plan."""

from pathlib import Path

import pytest
from support.teleoperated import ExpertWishes, act_in, act_out, opened

from fleet_tools import replay
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.samples import Samples

pytest.importorskip("viser", reason="the extra `browser` is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["hammer", "wrench", "spatula", "knife"])
def test_a_task_is_solved_through_the_gamepad(task: str, tmp_path: Path):
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
