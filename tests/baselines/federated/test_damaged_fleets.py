"""A damaged fleet is refused with a typed error, or goes on to the same bits."""

import os
import time
from itertools import chain, islice
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.damaged_runs import (
    damaged_bytes,
    damaged_metadata,
    damaged_state,
    damaged_tensors,
    with_digest,
    without_digest,
    write_files,
)
from support.fleet_cases import RecordingTransport, arguments, equal, local, plan_of, same
from support.folders import contents

from fleet_tools.baselines.federated.messages import encode
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.rounds import RoundResult, run_round
from fleet_tools.baselines.federated.run import run
from fleet_tools.baselines.federated.transport import CachingTransport
from fleet_tools.baselines.fleet import main
from fleet_tools.baselines.training.state import TrainingError
from fleet_tools.storage.atomic_files import clear_old_leftovers

SHORT = {"merge_every": 1, "training": {"epochs": 3, "batch_size": 8, "seed": 5}}
REPLY = "replies/0.safetensors"


@pytest.fixture(scope="module", name="plan")
def _plan(data: Path) -> FleetPlan:
    return plan_of(data, **SHORT)


@pytest.fixture(scope="module", name="stopped")
def _stopped(plan: FleetPlan, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a fleet that was stopped in its third round, with two replies."""
    folder = tmp_path_factory.mktemp("stopped") / "fleet"

    def stop(robot: int, before: int, answer):
        if (robot, before) == (2, 2):
            raise KeyboardInterrupt
        return answer

    with FleetWriter(folder, plan) as writer, pytest.raises(KeyboardInterrupt):
        run(writer, RecordingTransport(local(plan), stop))
    return contents(folder)


def test_no_damage_of_the_state_is_taken_as_it_is(
    plan: FleetPlan, stopped: dict[str, bytes], tmp_path: Path
):
    write_files(tmp_path / "fleet", stopped)
    tried = refused = 0
    with FleetWriter(tmp_path / "fleet", plan) as writer:
        whole = writer.load()
        for what, state in damaged_state(stopped["state.safetensors"]):
            if state is None:
                continue
            (writer.folder / "state.safetensors").write_bytes(state)
            tried += 1
            try:
                assert equal(writer.load(), whole), what
            except TrainingError as error:
                refused += 1
                assert "--restart" in str(error), what
    assert tried > 250 and refused > 0.8 * tried


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_behind_a_forged_digest_names_shapes_and_counts_are_checked(
    plan: FleetPlan, stopped: dict[str, bytes], tmp_path: Path, every: int
):
    """Wrong losses and finite weights are taken there."""
    bare = without_digest(stopped["state.safetensors"])
    unknowable = ("nudged", "negative", "steps", "seconds", "loss", "moved", "messages", "left_out")
    write_files(tmp_path / "fleet", stopped)
    with FleetWriter(tmp_path / "fleet", plan) as writer:
        whole = writer.load()
        damages = chain(damaged_tensors(bare), damaged_metadata(bare))
        for what, content in islice(damages, 0, None, every):
            assert content is not None
            with_digest(content, writer.folder / "state.safetensors")
            try:
                taken = writer.load()
            except TrainingError:
                continue
            assert equal(taken, whole) or any(each in what for each in unknowable), what


def test_damaged_replies_are_requested_again(
    plan: FleetPlan, stopped: dict[str, bytes], tmp_path: Path
):
    write_files(tmp_path / "fleet", stopped)
    path = tmp_path / "fleet" / REPLY
    with FleetWriter(tmp_path / "fleet", plan) as writer:
        whole = writer.replies(3)
        assert whole.keys() == {0, 1}
        for what, content in chain(damaged_bytes(stopped[REPLY]), damaged_tensors(stopped[REPLY])):
            path.write_bytes(content or b"")
            found = writer.replies(3).get(0, whole[0])
            assert encode(found) == encode(whole[0]), what


def test_a_damaged_cache_of_replies_changes_nothing(plan: FleetPlan, tmp_path: Path):
    def first_round() -> tuple[RecordingTransport, RoundResult]:
        inner = RecordingTransport(local(plan))
        return inner, run_round(
            plan, CachingTransport(inner, plan.assignments, tmp_path / "cache"), 1, None
        )

    _, expected = first_round()
    for path in sorted((tmp_path / "cache").iterdir())[:2]:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    inner, result = first_round()
    assert len(inner.exchanges) == 2
    assert same(result.weights, expected.weights)
    assert result.robots.keys() == expected.robots.keys()


def test_old_temporary_files_of_killed_fleets_are_removed(tmp_path: Path):
    """Fleets of a sweep share the folder of replies, so that one of another process may be new."""
    (tmp_path / "first_replies").mkdir()
    old, new = (tmp_path / "first_replies" / f".r.{k}.aside.safetensors" for k in (1, 2))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, times=(0, time.time() - 7200))
    clear_old_leftovers(tmp_path)
    assert not old.exists() and new.exists()
    clear_old_leftovers(tmp_path / "absent")


def test_a_lost_state_is_named_and_restart_keeps_the_other_files(
    data: Path, stopped: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    output = tmp_path / "fleet"
    rest = {name: each for name, each in stopped.items() if name != "state.safetensors"}
    write_files(output, rest)
    options = arguments(data, output, **SHORT)
    assert main(options) == 2
    assert "state.safetensors is missing" in capsys.readouterr().err
    assert contents(output) == rest
    assert main([*options, "--restart"]) == 0
    assert "fleet-former-1" in capsys.readouterr().err
    assert contents(tmp_path / "fleet-former-1") == rest
    assert len((output / "rounds.jsonl").read_bytes().splitlines()) == 3
