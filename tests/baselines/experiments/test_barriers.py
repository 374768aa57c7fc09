"""Lines between policies: their middles are merges, their ends policies, and nothing is lost."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from PIL import Image
from support.fleet_cases import LAYOUT, STEPS, config_of, local, plan_of, write_data
from support.processes import ROOT
from support.small_datasets import Drawn, a_header, a_record, an_episode, hammer_header, write

from fleet_tools.baselines.barriers import main
from fleet_tools.baselines.experiments.barriers.line_config import LineConfig
from fleet_tools.baselines.experiments.barriers.line_measurement import LineMeasurer
from fleet_tools.baselines.experiments.barriers.trained_fleet import TrainedFleet
from fleet_tools.baselines.federated.config import FleetConfig, PartitionConfig
from fleet_tools.baselines.federated.plan import FleetPlan, partition
from fleet_tools.baselines.federated.record import FleetWriter, load_progress
from fleet_tools.baselines.federated.run import complete, run
from fleet_tools.baselines.merging.average import average
from fleet_tools.baselines.merging.barrier import Barrier
from fleet_tools.baselines.merging.errors import NotInvariantError
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.config.values import parse
from fleet_tools.dataset import DatasetWriter, episode_file

ONE_SHOT: dict[str, Any] = {
    "split": {"by": "nothing"},
    "merge_every": None,
    "training": {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "seed": 5},
}
METHODS: dict[str, dict[str, str]] = {
    "naive_average": {},
    "git_rebasin": {},
    "fleet_merge": {"epochs": "1", "steps": "3", "rate": "0.5"},
}
OPTIONS = tuple(f"fleet_merge.{name}={value}" for name, value in METHODS["fleet_merge"].items())


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("barriers") / "data")


@pytest.fixture(scope="module", name="trained")
def _trained(data, tmp_path_factory):
    """The folder of a finished fleet of three robots."""
    return train_fleet(tmp_path_factory.mktemp("three") / "out", data)


@pytest.fixture(scope="module", name="measured")
def _measured(trained, tmp_path_factory):
    """What the program stores about its policies without interruption."""
    output = tmp_path_factory.mktemp("measured") / "out"
    assert barriers(trained, output) == 0
    return output


def train_fleet(folder: Path, data: Path, **changes: Any) -> Path:
    plan = plan_of(data, **(ONE_SHOT | changes))
    with FleetWriter(folder, plan) as writer:
        complete(writer, local(plan))
    return folder


def write_learnable(folder: Path) -> Path:
    """Writes episodes whose actions depend on the observations."""
    generator = np.random.default_rng(0)
    with DatasetWriter(folder, a_header(LAYOUT)) as writer:
        for number in range(30):
            episode = an_episode(generator, 8, observation=LAYOUT)
            actions = np.tanh(episode.observations["joint_position"][:-1, :6] / 100)
            episode = replace(episode, actions=actions.astype(np.float32))
            writer.add(a_record(number, episode), episode_file.to_bytes(episode, number))
    return folder


def arguments(fleet: Path, output: Path, *more: str) -> list[str]:
    options = [f"--options={text}" for text in OPTIONS]
    common = ["--output", str(output), "--workers", "0", "--quiet", "--points", "5"]
    return [str(fleet), *common, *options, *more]


def barriers(fleet: Path, output: Path, *more: str) -> int:
    return main(arguments(fleet, output, *more))


def stored_report(output: Path) -> dict[str, Any]:
    return json.loads((output / "barriers.json").read_text())


@given(
    st.lists(st.sampled_from("ab"), min_size=1),
    st.integers(1, 9),
    st.none() | st.floats(0.01, 100),
    st.integers(0, 9),
)
def test_robots_that_differ_in_nothing_have_all_episodes(kinds, robots, alpha, seed):
    parts = partition(kinds, robots, PartitionConfig(by="nothing", alpha=alpha), seed)
    assert parts == [list(range(len(kinds)))] * robots


def test_robots_with_the_same_data_differ_in_their_seeds_alone(data):
    plan = plan_of(data, **ONE_SHOT)
    assignments = plan.assignments
    assert len({(each.episodes, each.content_digest) for each in assignments}) == 1
    assert len(assignments[0].episodes) == len(STEPS) - len(plan.held_out.episodes)
    assert len({(each.training.seed, each.initialization) for each in assignments}) == 3


def test_the_middle_of_a_line_between_policies_as_they_are_is_their_naive_average(
    trained, measured
):
    fleet = TrainedFleet.read(trained)
    curves = [each for each in stored_report(measured)["curves"]]
    curves = [curve for curve in curves if curve["method"] == "naive_average"]
    assert [curve["robots"] for curve in curves] == [[0, 1], [0, 2], [1, 2]]
    for curve in curves:
        pair = [fleet.policies[robot] for robot in curve["robots"]]
        values = curve["loss"]["values"]
        assert values[2] == pytest.approx(fleet.plan.held_out_loss(average(pair)), rel=1e-5)
        assert [values[0], values[-1]] == [fleet.plan.held_out_loss(each) for each in pair]


@pytest.mark.parametrize("method", METHODS)
def test_the_middle_of_an_aligned_line_is_the_merge_of_a_fleet_of_two(data, tmp_path, method):
    """Two robots are merged once; then the same two are aligned without their fleet."""
    options = {
        name: float(text) if "." in text else int(text) for name, text in METHODS[method].items()
    }
    plan = plan_of(data, **ONE_SHOT, robots=2, method=method, options=options)
    with FleetWriter(tmp_path / "two", plan) as writer:
        progress = run(writer, local(plan))
    fleet = TrainedFleet.read(tmp_path / "two")
    texts = tuple(f"{method}.{name}={text}" for name, text in METHODS[method].items())
    config = LineConfig(methods=(method,), options=texts, points=3)
    line = LineMeasurer(fleet, config, tmp_path / "cache").measure_line((0, 1), method)
    assert line.losses[1] == pytest.approx(progress.rounds[-1].loss, rel=1e-5)


def test_a_policy_and_its_own_permutation_have_no_barrier_when_aligned(tmp_path):
    data = write_learnable(tmp_path / "data")
    training = {"epochs": 20, "batch_size": 16, "learning_rate": 0.02, "seed": 5}
    fleet = TrainedFleet.read(train_fleet(tmp_path / "fleet", data, robots=2, training=training))
    plan, policy = fleet.plan, fleet.policies[0]
    loss = plan.held_out_loss(policy)
    assert loss < 0.5 * plan.held_out_loss(plan.blueprint.create(0).state_dict())  # it learned
    symmetry = plan.blueprint.create().symmetry()
    group = symmetry.group(policy)
    permutation = group.random(np.random.default_rng(3))
    twins = replace(fleet, policies={0: policy, 1: symmetry.apply(permutation, policy)})
    config = LineConfig(methods=tuple(METHODS), options=OPTIONS, points=5)
    measurer = LineMeasurer(twins, config, tmp_path / "cache")
    naive, aligned = (
        measurer.measure_line((0, 1), method) for method in ("naive_average", "git_rebasin")
    )
    assert abs(Barrier.of_losses(range(5), aligned.losses).height) < 1e-4 * loss
    assert Barrier.of_losses(range(5), naive.losses).height > loss
    assert naive.moved_fraction == 0
    assert aligned.moved_fraction == group.moved_fraction([group.identity(), permutation])


def test_soft_permutations_of_a_users_own_method_are_detected(trained, tmp_path, monkeypatch):
    (tmp_path / "blurred.py").write_text(
        "from dataclasses import replace\n"
        "import torch\n"
        "from fleet_tools.baselines.merging.methods.rebasin import naive_average\n"
        "def merge(problem):\n"
        "    soft = {name: torch.full((*size, size[-1]), 1 / size[-1])\n"
        "            for name, size in problem.group.sizes.items()}\n"
        "    permutations = (soft,) * len(problem.models)\n"
        "    return replace(naive_average(problem), permutations=permutations)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = LineConfig(methods=("blurred:merge",))
    measurer = LineMeasurer(TrainedFleet.read(trained), config, tmp_path / "cache")
    with pytest.raises(NotInvariantError, match="requires hard permutations"):
        measurer.measure_line((0, 1), "blurred:merge")


def test_the_report_and_the_figure_follow_from_the_curves(trained, measured):
    report = stored_report(measured)
    (only,) = report["sets"]
    assert only["tasks"] == ["hammer"] and only["fleets"] == [str(trained)]
    assert report["methods"] == METHODS and report["points"] == 5
    assert len(report["curves"]) == 9 and not report["failed"]
    for row in report["summary"]:
        chosen = [each["loss"] for each in report["curves"] if each["method"] == row["method"]]
        for each in chosen:
            values = np.array(each["values"])
            assert each["height"] == (values - (values[0] + values[-1]) / 2).max()
        low, median, high = sorted(each["height"] for each in chosen)
        assert row["loss"] == {"median": median, "low": low, "high": high}
        assert row["pairs"] == 3 and row["success"] is None
        assert 0 <= row["of_norms"]["median"] <= row["of_difference"]["median"]
    norms = {row["method"]: row["of_norms"] for row in report["summary"]}
    assert len({round(each["median"], 6) for each in norms.values()}) == 1  # permutations keep them
    with Image.open(measured / "barriers.png") as image:
        assert np.unique(np.asarray(image)).size > 10


def test_fleets_of_the_same_data_are_told_apart_by_their_kind_of_policy(data, trained, tmp_path):
    policy = {"body": {"type": "elman", "width": 8, "layers": 1}}
    other = train_fleet(tmp_path / "elman", data, policy=policy, robots=2)
    options = ["--methods", "naive_average", "--workers", "0", "--quiet", "--points", "3"]
    assert main([str(trained), str(other), "--output", str(tmp_path / "out"), *options]) == 0
    report = stored_report(tmp_path / "out")
    assert {each["title"]: each["fleets"] for each in report["sets"]} == {
        "hammer (gru)": [str(trained)],
        "hammer (elman)": [str(other)],
    }
    pairs = {row["set"]: row["pairs"] for row in report["summary"]}
    assert pairs == {"hammer (gru)": 3, "hammer (elman)": 1}


def test_no_line_is_measured_again(trained, measured, capsys, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in measured.glob("cells/*/*.json")}
    assert len(before) == 9

    def refuse(*_: object) -> None:
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(FleetPlan, "held_out_loss", refuse)
        assert barriers(trained, measured, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"output": str(measured), **stored_report(measured)}
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # With other options, results are measured.
    more = ["--methods", "git_rebasin", "fleet_merge", "--options=fleet_merge.steps=2"]
    assert barriers(trained, measured, *more) == 0
    changed = {path.name for path in before if path.stat().st_mtime_ns != before[path]}
    assert changed == {f"{pair}-fleet_merge-loss.json" for pair in ("0-1", "0-2", "1-2")}
    assert barriers(trained, measured) == 0


@pytest.mark.slow
def test_after_kill_9_the_same_command_stores_the_same(trained, measured, tmp_path):
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "fleet_tools.baselines.barriers", *arguments(trained, killed)]
    process = subprocess.Popen(command, cwd=ROOT)
    while process.poll() is None and len(list(killed.glob("cells/*/[0-9]*.json"))) < 3:
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (killed / "barriers.json").exists()
    assert barriers(trained, killed) == 0
    assert stored_report(killed) == stored_report(measured)


def test_lines_that_fail_are_named_and_the_others_are_plotted(
    trained, tmp_path, capsys, monkeypatch
):
    bad, held_out_loss = TrainedFleet.read(trained).policies[2], FleetPlan.held_out_loss

    def loss_with_one_infinite(plan: FleetPlan, weights: Tensors) -> float:
        same = all(torch.equal(weights[name], bad[name]) for name in bad)
        return np.inf if same else held_out_loss(plan, weights)

    monkeypatch.setattr(FleetPlan, "held_out_loss", loss_with_one_infinite)
    output = tmp_path / "out"
    more = ["--methods", "naive_average", "--points", "3", "--workers", "0"]
    assert main([str(trained), "--output", str(output), *more]) == 1
    text = capsys.readouterr().out
    assert "robots 0 and 2 by naive_average, failed: a policy has the loss inf" in text
    report = stored_report(output)
    assert [curve["robots"] for curve in report["curves"]] == [[0, 1]]
    assert [each["robots"] for each in report["failed"]] == [[0, 2], [1, 2]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--methods", "git_rebasn", "fleet_merge"], "Did you mean 'git_rebasin'"),
        (["--methods", "git_rebasin_activations", "fleet_merge"], "matches by weights"),
        (["--methods", "fleet_merge_soft", "fleet_merge"], "permutes softly"),
        (["--options", "fleet_merge.soft=true"], "permutes softly"),
        (["--options", "fleet_merge.stps=3"], "Did you mean 'steps'"),
        (["--options", "fleet_merge.steps=few"], "is an integer"),
        (["--rollouts", "1"], "layout"),
    ],
)
def test_what_cannot_be_measured_is_refused_first(trained, tmp_path, capsys, more, message):
    output = tmp_path / "refused"
    assert barriers(trained, output, *more) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--options", "git_rebasn.rounds=2"], "Did you mean 'git_rebasin'"),
        (["--options", "rounds=2"], "METHOD.NAME=VALUE"),
        (["--points", "4"], "odd number"),
        (["--rollout-points", "2"], "odd number"),
    ],
)
def test_invalid_options_are_refused(trained, tmp_path, capsys, more, message):
    output = tmp_path / "refused"
    with pytest.raises(SystemExit, match="2"):
        barriers(trained, output, *more)
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not output.exists()


@pytest.fixture(name="refused")
def _refused(tmp_path, capsys) -> Iterator[Any]:
    """A function that returns the message with which a folder is refused."""

    def refused(folder: Path) -> str:
        assert barriers(folder, tmp_path / "refused") == 2
        return capsys.readouterr().err

    yield refused
    assert not (tmp_path / "refused").exists()


def test_folders_of_something_else_are_refused(data, tmp_path, refused):
    assert "is not a fleet" in refused(tmp_path / "nowhere")
    assert "is not a fleet" in refused(data)


def test_fleets_without_two_policies_are_refused(data, tmp_path, refused):
    assert "1 robot was merged" in refused(train_fleet(tmp_path / "alone", data, robots=1))
    plan = plan_of(data, **ONE_SHOT, robots=2, rollouts=1)

    def stop(checkpoint: Checkpoint, /, tasks: Any = None) -> None:
        raise KeyboardInterrupt

    with FleetWriter(tmp_path / "half", plan) as writer, pytest.raises(KeyboardInterrupt):
        run(writer, local(plan), measure_success=stop)
    assert "has run 0 of 1 rounds" in refused(tmp_path / "half")


def test_fleets_whose_data_changed_are_refused(trained, tmp_path, refused):
    fleet = train_fleet(tmp_path / "moved", write_data(tmp_path / "data", seed=1))
    (tmp_path / "data").rename(tmp_path / "old")
    assert "is not a dataset" in refused(fleet)
    write_data(tmp_path / "data", steps=STEPS[::-1], seed=2)
    assert "holds other episodes" in refused(fleet)
    assert load_progress(trained).robot_weights.keys() == {0, 1, 2}


@pytest.mark.slow
def test_all_methods_share_the_success_rates_of_the_ends(tmp_path, capsys):
    data, output = tmp_path / "data", tmp_path / "out"
    write(data, Drawn([5, 4, 6, 3], [True] * 4, 0), hammer_header())
    fleet = train_fleet(tmp_path / "fleet", data, robots=2)
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


def test_the_example_is_valid(data):
    example = yaml.safe_load((ROOT / "examples" / "fleet" / "barriers.yaml").read_text())
    config = parse(FleetConfig, example | {"data": [str(data)]}, "The example")
    assert config.rounds == 1 and config.split.by == "nothing"
    assert config_of(data).split.by == "tool"
