"""Lines between policies: their middles are merges, their ends policies, and nothing is lost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from PIL import Image
from support.experiment_cases import content_of, result_in, run
from support.fleet_cases import LAYOUT, STEPS, local, plan_of, write_data
from support.small_datasets import Drawn, a_header, a_record, an_episode, hammer_header, write

from fleet_merging.average import average
from fleet_merging.barrier import Barrier
from fleet_merging.errors import NotInvariantError
from fleet_tools.baselines.experiments import lines as lines_module
from fleet_tools.baselines.experiments.form import LineConfig
from fleet_tools.baselines.experiments.lines import Aligner, LineMeasurer
from fleet_tools.baselines.federated.config import PartitionConfig
from fleet_tools.baselines.federated.plan import FleetPlan, partition
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import FleetWriter, load_progress
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.dataset import DatasetWriter, episode_file

ONE_SHOT: dict[str, Any] = {
    "split": {"by": "nothing"},
    "merge_every": None,
    "training": {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "seed": 5},
}
METHODS: dict[str, dict[str, Any]] = {
    "naive_average": {},
    "git_rebasin": {},
    "fleet_merge": {"epochs": 1, "steps": 3, "rate": 0.5},
}


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("lines") / "data")


@pytest.fixture(scope="module", name="measured")
def _measured(data, tmp_path_factory):
    """Folder of what the program stores about three robots without interruption."""
    folder = tmp_path_factory.mktemp("measured")
    assert barriers(folder, data) == 0
    return folder


def content(data: Path, **changes: Any) -> dict[str, Any]:
    """Returns what an experiment on lines changes in the small one."""
    training = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01}
    base = content_of(data)["base"] | {"robots": 3, "split": {"by": "nothing"}}
    of_lines = {
        "values": {"three": {}},
        "vary": "fleet",
        "seeds": 1,
        "base": base | {"training": training},
        "arms": {name: {"method": name, "options": each} for name, each in METHODS.items()},
        "references": [],
        "lines": {"points": 5},
    }
    return of_lines | changes


def barriers(folder: Path, data: Path, *more: str, **changes: Any) -> int:
    """Runs the program on an experiment on lines."""
    return run(folder, data, *more, **content(data, **changes))


def train_fleet(folder: Path, data: Path, **changes: Any) -> tuple[FleetPlan, FleetProgress]:
    plan = plan_of(data, **(ONE_SHOT | changes))
    with FleetWriter(folder, plan) as writer:
        complete(writer, local(plan))
    return plan, load_progress(folder)


def measurer(
    plan: FleetPlan, policies: dict[int, Tensors], steps: dict[int, int], points: int
) -> LineMeasurer:
    config = LineConfig(points=points)
    return LineMeasurer(plan, policies, steps, config, lambda *_, **__: None, lambda robot: {})


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


@pytest.mark.parametrize("method", METHODS)
def test_the_middle_of_a_line_is_the_merge_of_a_fleet_of_two(data, tmp_path, method):
    """Two robots are merged once; then the same two are aligned without their fleet."""
    options = METHODS[method]
    plan, progress = train_fleet(tmp_path / "two", data, robots=2, method=method, options=options)
    steps = {each.robot: each.steps or 0 for each in progress.rounds[-1].robots}
    aligner = Aligner(method, plan.config.method_options())
    policies = dict(progress.robot_weights)
    line = measurer(plan, policies, steps, 3).measure((0, 1), aligner)
    start, middle, end = line["loss"]["values"]
    assert middle == pytest.approx(progress.rounds[-1].loss, rel=1e-5)
    assert [start, end] == [plan.held_out_loss(policies[robot]) for robot in (0, 1)]
    if method == "naive_average":
        merged = average([policies[0], policies[1]])
        assert middle == pytest.approx(plan.held_out_loss(merged), rel=1e-5)


def test_a_policy_and_its_own_permutation_have_no_barrier_when_aligned(tmp_path):
    data = write_learnable(tmp_path / "data")
    training = {"epochs": 20, "batch_size": 16, "learning_rate": 0.02, "seed": 5}
    plan, progress = train_fleet(tmp_path / "fleet", data, robots=2, training=training)
    policy = progress.robot_weights[0]
    loss = plan.held_out_loss(policy)
    assert loss < 0.5 * plan.held_out_loss(plan.blueprint.create(0).state_dict())  # it learned
    symmetry = plan.blueprint.create().symmetry()
    group = symmetry.group(policy)
    permutation = group.random(np.random.default_rng(3))
    twins = {0: policy, 1: symmetry.apply(permutation, policy)}
    naive, aligned = (
        measurer(plan, twins, {0: 1, 1: 1}, 5).measure((0, 1), Aligner(method, {}))
        for method in ("naive_average", "git_rebasin")
    )
    assert abs(aligned["loss"]["height"]) < 1e-4 * loss
    assert naive["loss"]["height"] > loss and naive["moved"] == 0
    assert aligned["moved"] == group.moved_fraction([group.identity(), permutation])


def test_soft_permutations_of_a_users_own_method_are_detected(data, tmp_path, monkeypatch):
    (tmp_path / "blurred.py").write_text(
        "from dataclasses import replace\n"
        "import torch\n"
        "from fleet_merging.methods.rebasin import naive_average\n"
        "def merge(problem):\n"
        "    soft = {name: torch.full((*size, size[-1]), 1 / size[-1])\n"
        "            for name, size in problem.group.sizes.items()}\n"
        "    permutations = (soft,) * len(problem.models)\n"
        "    return replace(naive_average(problem), permutations=permutations)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plan, progress = train_fleet(tmp_path / "fleet", data, robots=2)
    policies = dict(progress.robot_weights)
    with pytest.raises(NotInvariantError, match="requires hard permutations"):
        measurer(plan, policies, {0: 1, 1: 1}, 3).measure((0, 1), Aligner("blurred:merge", {}))


def test_the_result_and_the_figure_follow_from_the_lines(measured):
    result = result_in(measured)
    lines = {cell["arm"]: cell["lines"] for cell in result["cells"]}
    assert lines.keys() == METHODS.keys() and not result["failed"]
    for row in result["rows"]:
        chosen = lines[row["arm"]]
        assert [line["robots"] for line in chosen] == [[0, 1], [0, 2], [1, 2]]
        for each in chosen:
            values = np.array(each["loss"]["values"])
            assert len(values) == 5
            assert each["loss"]["height"] == (values - (values[0] + values[-1]) / 2).max()
        low, median, high = sorted(each["loss"]["height"] for each in chosen)
        assert row["barrier"] == {"median": median, "low": low, "high": high}
        assert row["pairs"] == 3 and row["success_barrier"] is None
        assert 0 <= row["of_norms"]["median"] <= row["of_difference"]["median"]
    norms = {row["arm"]: row["of_norms"] for row in result["rows"]}
    assert len({round(each["median"], 6) for each in norms.values()}) == 1  # permutations keep them
    with Image.open(measured / "out" / "small.png") as image:
        assert np.unique(np.asarray(image)).size > 10


def test_no_line_is_measured_again(measured, data, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in measured.glob("out/cells/*.json")}
    stored = result_in(measured)
    assert len(before) == 9

    def refuse(*_: object) -> None:
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(LineMeasurer, "measure", refuse)
        assert barriers(measured, data) == 0
    assert result_in(measured) == stored
    # With another arm, its lines alone are measured.
    more = content(data)["arms"] | {"few": {"method": "fleet_merge", "options": {"steps": 2}}}
    assert barriers(measured, data, arms=more) == 0
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    assert len(list(measured.glob("out/cells/*.json"))) == 12
    (measured / "out" / "small.json").unlink()
    assert barriers(measured, data) == 0 and result_in(measured) == stored


def test_arms_that_fail_are_named_and_the_others_are_plotted(data, tmp_path, monkeypatch):
    held_out_loss = FleetPlan.held_out_loss
    monkeypatch.setattr(lines_module, "lambdas_of", lambda points: np.linspace(0, 1, points))
    arms = {name: {"method": name} for name in ("naive_average", "git_rebasin")}
    align = LineMeasurer.align

    def align_badly(self: LineMeasurer, robots: tuple[int, int], aligner: Aligner) -> Any:
        pair = align(self, robots, aligner)
        if aligner.method == "git_rebasin":
            monkeypatch.setattr(FleetPlan, "held_out_loss", lambda plan, weights: np.inf)
        return pair

    monkeypatch.setattr(LineMeasurer, "align", align_badly)
    assert barriers(tmp_path, data, arms=arms) == 1
    monkeypatch.setattr(FleetPlan, "held_out_loss", held_out_loss)
    result = result_in(tmp_path)
    assert [cell["arm"] for cell in result["cells"]] == ["naive_average"]
    (failed,) = result["failed"]
    assert failed["arm"] == "git_rebasin" and "has the loss inf" in failed["why"]


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ({"method": "git_rebasn"}, "Did you mean 'git_rebasin'"),
        ({"method": "fleet_merge_soft"}, "permutes softly"),
        ({"method": "fleet_merge", "options": {"soft": True}}, "permutes softly"),
        ({"method": "fleet_merge", "options": {"stps": 3}}, "Did you mean 'steps'"),
        ({"method": "fleet_merge", "options": {"steps": "few"}}, "is an integer"),
    ],
)
def test_what_cannot_be_measured_is_refused_first(data, tmp_path, capsys, arm, message):
    assert barriers(tmp_path, data, arms={"a": arm}) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_fleets_without_two_policies_have_no_lines(data, tmp_path, capsys):
    base = content(data)["base"] | {"robots": 1}
    assert barriers(tmp_path, data, base=base) == 2
    assert "1 robot was merged" in capsys.readouterr().err


@pytest.mark.slow
def test_all_methods_share_the_success_rates_of_the_ends(tmp_path):
    data = tmp_path / "data"
    write(data, Drawn([5, 4, 6, 3], [True] * 4, 0), hammer_header())
    base = content(data)["base"] | {"robots": 2}
    lines = {"points": 3, "rollouts": 1, "rollout_points": 3}
    assert barriers(tmp_path, data, base=base, lines=lines) == 0
    found = [line["success"] for cell in result_in(tmp_path)["cells"] for line in cell["lines"]]
    assert len(found) == 3
    assert len({(each["values"][0], each["values"][2]) for each in found}) == 1
    for each in found:
        assert each["lambdas"] == [0, 0.5, 1] and each["by_task"] == {"hammer": each["values"]}
        performances = Barrier.of_performances(each["lambdas"], each["values"])
        assert each["height"] == performances.height
