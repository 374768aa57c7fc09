"""Lines between policies: their middles are merges, their ends policies, and nothing is lost."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from conftest import ROOT, run_python
from fleet_cases import LAYOUT, STEPS, config_of, local, plan_of, write_data
from PIL import Image
from small_data_sets import Drawn, a_header, an_episode, hammer_header, write

from fleet_tools.baselines.barriers import main
from fleet_tools.baselines.experiments.barriers.lines import Lines
from fleet_tools.baselines.experiments.barriers.measuring import Measuring
from fleet_tools.baselines.experiments.barriers.trained import Trained
from fleet_tools.baselines.federated.config import FleetConfig, Split
from fleet_tools.baselines.federated.plan import deal
from fleet_tools.baselines.federated.record import load
from fleet_tools.baselines.federated.run import complete, run
from fleet_tools.baselines.merging.average import average
from fleet_tools.baselines.merging.barrier import Barrier
from fleet_tools.baselines.merging.errors import NotInvariantError
from fleet_tools.baselines.training.loop import validate
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.config.values import parse
from fleet_tools.dataset import DatasetWriter, Record, episode_file
from fleet_tools.dataset.reader import last_digest

ONE_SHOT = {
    "split": {"by": "nothing"},
    "merge_every": None,
    "training": {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "seed": 5},
}
METHODS: dict[str, dict[str, str]] = {
    "naive_average": {},
    "git_rebasin": {},
    "fleet_merge": {"epochs": "1", "steps": "3", "rate": "0.5"},
}
OPTIONS = [f"--option=fleet_merge.{text}" for text in ("epochs=1", "steps=3", "rate=0.5")]


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("barriers") / "data")


@pytest.fixture(scope="module", name="trained")
def _trained(data, tmp_path_factory):
    return fleet_in(tmp_path_factory.mktemp("three") / "out", data)


@pytest.fixture(scope="module", name="measured")
def _measured(trained, tmp_path_factory):
    """What the program makes of three policies at one go."""
    output = tmp_path_factory.mktemp("measured") / "out"
    assert barriers(trained, output) == 0
    return output


def fleet_in(folder, data, **changes):
    plan = plan_of(data, **(ONE_SHOT | changes))
    complete(plan, local(plan), folder)
    return folder


def write_learnable(folder):
    """Episodes whose actions follow from what was observed."""
    generator = np.random.default_rng(0)
    with DatasetWriter(folder, a_header(LAYOUT)) as writer:
        for number in range(30):
            episode = an_episode(generator, 8, observation=LAYOUT)
            actions = np.tanh(episode.observations["joint_position"][:-1, :6] / 100)
            episode = replace(episode, actions=actions.astype(np.float32))
            record = Record(
                attempt=number, seed=number, outcome="success", success=True, steps=8,
                state_digest=last_digest(episode), seconds=0.5,
            )  # fmt: skip
            writer.add(record, episode_file.to_bytes(episode, number))


def arguments(fleet, output, *more):
    common = [str(fleet), "--output", str(output), "--workers", "0", "--quiet", "--points", "5"]
    return [*common, *OPTIONS, *more]


def barriers(fleet, output, *more):
    return main(arguments(fleet, output, *more))


def told(output):
    return json.loads((output / "barriers.json").read_text())


def loss_of(fleet, weights):
    held = Trajectories(fleet.plan.held, fleet.plan.blueprint)
    return validate(fleet.plan.blueprint, held, fleet.plan.config.training, weights)


@given(
    st.lists(st.sampled_from("ab"), min_size=1),
    st.integers(1, 9),
    st.none() | st.floats(0.01, 100),
    st.integers(0, 9),
)
def test_who_differs_in_nothing_has_everything(kinds, robots, alpha, seed):
    dealt = deal(kinds, robots, Split(by="nothing", alpha=alpha), seed)
    assert dealt == [list(range(len(kinds)))] * robots


def test_robots_of_one_data_set_are_told_apart_by_their_seeds_alone(data):
    plan = plan_of(data, **ONE_SHOT)
    told_once = [home.assignment for home in plan.homes]
    assert len({(each.episodes, each.content_digest) for each in told_once}) == 1
    assert len(told_once[0].episodes) == len(STEPS) - len(plan.held.episodes)
    assert len({(each.training.seed, each.initialization) for each in told_once}) == 3


def test_the_middle_of_a_line_of_policies_as_they_are_is_their_naive_average(trained, measured):
    fleet = Trained.read(trained)
    curves = [curve for curve in told(measured)["curves"] if curve["method"] == "naive_average"]
    assert [curve["robots"] for curve in curves] == [[0, 1], [0, 2], [1, 2]]
    for curve in curves:
        pair = [fleet.policies[robot] for robot in curve["robots"]]
        values = curve["loss"]["values"]
        assert values[2] == pytest.approx(loss_of(fleet, average(pair)), rel=1e-5)
        assert [values[0], values[-1]] == [loss_of(fleet, each) for each in pair]


@pytest.mark.parametrize("method", METHODS)
def test_the_middle_of_an_aligned_line_is_what_the_fleet_itself_came_to(data, tmp_path, method):
    """Two robots merge once; the same two are then aligned apart from their fleet."""
    options = {
        name: float(text) if "." in text else int(text) for name, text in METHODS[method].items()
    }
    changes = ONE_SHOT | {"robots": 2, "method": method, "options": options}
    plan = plan_of(data, **changes)
    record = run(plan, local(plan), tmp_path / "two")
    fleet = Trained.read(tmp_path / "two")
    lines = Lines(methods={method: METHODS[method]}, points=3)
    came = Measuring(fleet, lines, tmp_path / "cells").line((0, 1), method)
    assert came["loss"][1] == pytest.approx(record.told[-1].loss, rel=1e-5)


def test_a_policy_and_itself_in_another_order_are_one_valley(tmp_path):
    write_learnable(tmp_path / "data")
    training = {"epochs": 30, "batch_size": 16, "learning_rate": 0.02, "seed": 5}
    fleet_in(tmp_path / "fleet", tmp_path / "data", robots=2, training=training)
    fleet = Trained.read(tmp_path / "fleet")
    one = fleet.policies[0]
    loss = loss_of(fleet, one)
    assert loss < 0.5 * loss_of(fleet, fleet.plan.blueprint.create(0).state_dict())  # it learned
    symmetry = fleet.plan.blueprint.create().symmetry()
    permutation = symmetry.group(one).random(np.random.default_rng(3))
    other = symmetry.apply(permutation, one)
    twins = replace(fleet, policies={0: one, 1: other})
    measuring = Measuring(twins, Lines(methods=METHODS, points=5), tmp_path / "cells")

    def height(method):
        return Barrier.of_losses(range(5), measuring.line((0, 1), method)["loss"]).height

    assert abs(height("git_rebasin")) < 1e-4 * loss
    assert measuring.line((0, 1), "naive_average")["moved"] == 0
    found, hidden = measuring.line((0, 1), "git_rebasin")["moved"], symmetry.group(one)
    assert found == hidden.moved([hidden.identity(), permutation])
    assert height("naive_average") > loss


def test_soft_permutations_of_ones_own_are_found_out(trained, tmp_path, monkeypatch):
    (tmp_path / "blurred.py").write_text(
        "from dataclasses import replace\n"
        "import torch\n"
        "from fleet_tools.baselines.merging.methods.naive import naive_average\n"
        "def merge(fleet):\n"
        "    soft = {name: torch.full((*size, size[-1]), 1 / size[-1])\n"
        "            for name, size in fleet.group.sizes.items()}\n"
        "    return replace(naive_average(fleet), permutations=(soft,) * len(fleet.models))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    lines = Lines(methods={"blurred:merge": {}})
    with pytest.raises(NotInvariantError, match="where permutations are hard"):
        Measuring(Trained.read(trained), lines, tmp_path / "cells").line((0, 1), "blurred:merge")


def test_the_report_and_the_picture_follow_from_the_curves(trained, measured, capsys):
    report = told(measured)
    (only,) = report["sets"]
    assert only["tasks"] == ["hammer"] and only["fleets"] == [str(trained)]
    assert len(report["curves"]) == 9 and not report["failed"]
    for row in report["summary"]:
        chosen = [each["loss"] for each in report["curves"] if each["method"] == row["method"]]
        for each in chosen:
            values = np.array(each["values"])
            assert each["height"] == (values - (values[0] + values[-1]) / 2).max()
        low, median, high = sorted(each["height"] for each in chosen)
        assert row["loss"] == {"median": median, "low": low, "high": high}
        assert row["pairs"] == 3 and row["success"] is None
    with Image.open(measured / "barriers.png") as picture:
        assert np.unique(np.asarray(picture)).size > 10


def test_what_is_measured_is_not_measured_again(trained, measured, capsys, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in measured.glob("cells/*/*.json")}
    assert len(before) == 9

    def forbidden(*rest):
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr("fleet_tools.baselines.experiments.barriers.measuring.validate", forbidden)
        assert barriers(trained, measured, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"output": str(measured), **told(measured)}
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # Other options are other cells.
    assert (
        barriers(
            trained,
            measured,
            "--method",
            "git_rebasin",
            "fleet_merge",
            "--option=fleet_merge.steps=2",
        )
        == 0
    )
    changed = {path.name for path in before if path.stat().st_mtime_ns != before[path]}
    assert changed == {f"{pair}-fleet_merge-loss.json" for pair in ("0-1", "0-2", "1-2")}
    assert barriers(trained, measured) == 0


def test_after_kill_9_it_comes_to_the_same(trained, measured, tmp_path):
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "fleet_tools.baselines.barriers", *arguments(trained, killed)]
    process = subprocess.Popen(command, cwd=ROOT)
    while process.poll() is None and len(list(killed.glob("cells/*/[0-9]*.json"))) < 3:
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (killed / "barriers.json").exists()
    assert barriers(trained, killed) == 0
    assert told(killed) == told(measured)


def test_lines_that_come_to_nothing_are_named_and_the_others_are_drawn(
    trained, tmp_path, capsys, monkeypatch
):
    bad = Trained.read(trained).policies[2]

    def broken(blueprint, trajectories, config, weights):
        same = all(torch.equal(weights[name], bad[name]) for name in bad)
        return np.inf if same else validate(blueprint, trajectories, config, weights)

    monkeypatch.setattr("fleet_tools.baselines.experiments.barriers.measuring.validate", broken)
    output = tmp_path / "out"
    more = ["--method", "naive_average", "--points", "3", "--workers", "0"]
    assert main([str(trained), "--output", str(output), *more]) == 1
    said = capsys.readouterr().out
    assert "robots 0 and 2 by naive_average, came to no result: a policy has the loss inf" in said
    report = told(output)
    assert [curve["robots"] for curve in report["curves"]] == [[0, 1]]
    assert [each["robots"] for each in report["failed"]] == [[0, 2], [1, 2]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--method", "git_rebasn", "fleet_merge"], "did you mean 'git_rebasin'"),
        (["--method", "git_rebasin_activations", "fleet_merge"], "matches by weights"),
        (["--method", "fleet_merge_soft", "fleet_merge"], "permutes softly"),
        (["--option", "fleet_merge.soft=true"], "permutes softly"),
        (["--option", "fleet_merge.stps=3"], "did you mean 'steps'"),
        (["--option", "fleet_merge.steps=few"], "is a whole number"),
        (["--option", "git_rebasn.rounds=2"], "did you mean 'git_rebasin'"),
        (["--option", "rounds=2"], "is no METHOD.NAME=VALUE"),
        (["--points", "4"], "4 points. Give an odd number"),
        (["--rollout-points", "2"], "2 points. Give an odd number"),
        (["--rollouts", "1"], "reads another layout"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused_before_anything_is(
    trained, tmp_path, capsys, more, message
):
    output = tmp_path / "refused"
    assert barriers(trained, output, *more) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_what_is_no_finished_fleet_of_two_is_refused(data, trained, tmp_path, capsys):
    def refused(folder):
        assert barriers(folder, tmp_path / "refused") == 2
        assert not (tmp_path / "refused").exists()
        return capsys.readouterr().err

    assert "is no fleet" in refused(tmp_path / "nowhere")
    assert "is no fleet" in refused(data)
    assert "1 robot was merged" in refused(fleet_in(tmp_path / "alone", data, robots=1))
    plan = plan_of(data, **ONE_SHOT, robots=2)

    def stop(*rest):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, local(plan), tmp_path / "half", try_out=stop)
    assert "has played 0 of 1 rounds" in refused(tmp_path / "half")
    other = write_data(tmp_path / "data", seed=1)
    fleet_in(tmp_path / "moved", other)
    (tmp_path / "data").rename(tmp_path / "old")
    assert "is not a data set" in refused(tmp_path / "moved")
    write_data(tmp_path / "data", steps=STEPS[::-1], seed=2)
    assert "holds other episodes" in refused(tmp_path / "moved")
    assert load(trained).robots.keys() == {0, 1, 2}


@pytest.mark.slow
def test_all_methods_share_the_ends_of_success(tmp_path, capsys):
    data, output = tmp_path / "data", tmp_path / "out"
    write(data, Drawn([5, 4, 6, 3], [True] * 4, 0), hammer_header())
    fleet = fleet_in(tmp_path / "fleet", data, robots=2)
    assert barriers(fleet, output, "--rollouts", "1", "--rollout-points", "3", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    curves = [curve["success"] for curve in report["curves"]]
    assert len(curves) == 3
    assert {(each["values"][0], each["values"][2]) for each in curves} == {
        (curves[0]["values"][0], curves[0]["values"][2])
    }
    cells = sorted(path.name for path in output.glob("cells/*/*rollouts*"))
    assert cells == [f"0-1-{method}-rollouts-0.5.json" for method in sorted(METHODS)]
    assert len(list(output.glob("cells/*/robot-*.json"))) == 2
    for each in curves:
        assert each["lambdas"] == [0, 0.5, 1] and each["by_task"] == {"hammer": each["values"]}


def test_the_example_is_one(data):
    example = yaml.safe_load((ROOT / "examples" / "fleet" / "barriers.yaml").read_text())
    config = parse(FleetConfig, example | {"data": [str(data)]}, "The example")
    assert config.rounds == 1 and config.split.by == "nothing"
    assert config_of(data).split.by == "tool"


def test_help_needs_no_pytorch():
    code = """
import contextlib, io, json, sys
from fleet_tools.baselines import barriers
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    barriers.main(["--help"])
print(json.dumps("torch" in sys.modules))
"""
    assert run_python(code) is False
