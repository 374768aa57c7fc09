"""Robots that fine-tune a backbone: who begins where, what is sent, and what is forgotten.

The task is one in which every policy succeeds at once, so that rollouts are real and quick.
"""

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.collected import ONE_PAIR, options, write_quick_task
from support.experiment_cases import result_in, run
from support.fleet_cases import RecordingTransport, arguments, config_of, local, run_rounds, same
from support.processes import ROOT
from support.shares import few, quick_first

from fleet_merging.errors import MessageError
from fleet_tools import collect
from fleet_tools.baselines import fleet, merge, train
from fleet_tools.baselines.experiments.fleets import ToolUse
from fleet_tools.baselines.experiments.form import load_experiment, planned_runs
from fleet_tools.baselines.federated.backbone import BackboneConfig
from fleet_tools.baselines.federated.compact import Known, UploadConfig, decode, encode
from fleet_tools.baselines.federated.messages import LocalUpdate, TrainRequest
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.references import reference
from fleet_tools.baselines.policies.checkpoint import BACKBONE, load_checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.config.values import parse
from fleet_tools.dataset.stored_episode import file_digest
from fleet_tools.errors import ConfigError

POLICY = {"body": {"type": "elman", "layers": 1, "width": 24}}
TUNED = ("all", "adapters", "head")
METHODS: dict[str, dict[str, Any]] = {
    "average": {"method": "naive_average"},
    "task_arithmetic": {"method": "task_arithmetic", "options": {"scale": 2.0}},
    "retain": {"method": "task_arithmetic", "options": {"scale": 0.5}},
    "ties": {"method": "ties"},
    "iso_c": {"method": "iso_c"},
    "analytic_head": {"method": "head_refit", "options": {"of": "base"}, "backbone.tuned": "head"},
    "ensemble": {"method": "naive_average", "last_method": "density_gated_ensemble"},
    "backbone_alone": {"method": "task_arithmetic", "options": {"scale": 0.0}},
    "raw": {"raw_data": {}},
}


@pytest.fixture(scope="module", name="world")
def _world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The robots' data, the backbone's, and the backbone."""
    root = tmp_path_factory.mktemp("backbone")
    task = str(write_quick_task(root, 0.5))
    for name, seed in (("private", "0"), ("public", "1")):
        given = ["--policy", "random", "--seed", seed, "--quiet", *ONE_PAIR]
        assert collect.main(options(root / name, *given, task=task, episodes=8)) == 0
    made = ["--architecture", "elman", "--set", "body.layers=1", "--set", "body.width=24"]
    made += ["--dataset", str(root / "public"), "--output", str(root / "run"), "--epochs", "2"]
    assert train.main([*made, "--threads", "1", "--batch-size", "8", "--quiet"]) == 0
    return {
        "private": str(root / "private"),
        "public": str(root / "public"),
        "checkpoint": str(root / "run/last.safetensors"),
    }


def base_of(world: dict[str, str], **changes: Any) -> dict[str, Any]:
    """Returns the keys of all runs of a small experiment."""
    base = {
        "public": [world["public"]],
        "policy": POLICY,
        "robots": 2,
        "held_out": 0.25,
        "server_blind": True,
        "split": {"by": "nothing"},
        "initialization": "common",
        "backbone": {"checkpoint": world["checkpoint"], "tuned": "all", "rank": 2},
        "training": {"epochs": 2, "batch_size": 8},
    }
    return base | changes


def plan_of(world: dict[str, str], **changes: Any) -> FleetPlan:
    return FleetPlan.of(
        config_of(world["private"], **base_of(world, **changes), merge_every=None)  # pyright: ignore
    )


@pytest.mark.parametrize("values", quick_first([("adapters",), TUNED], 1))
def test_every_method_and_control_is_measured_in_new_and_in_former_tasks(
    world, tmp_path, values
) -> None:
    changes = {
        "vary": "backbone.tuned",
        "values": list(values),
        "seeds": 1,
        "base": base_of(world, rollouts=1, uploads={"bits": 8}),
        "arms": METHODS,
        "references": ["joint", "single"],
    }
    assert run(tmp_path, Path(world["private"]), **changes) == 0
    result = result_in(tmp_path)
    assert not result["failed"]
    cells = {(each["arm"], each["value"]): each for each in result["cells"]}
    assert len(cells) == len(values) * (len(METHODS) + 2)
    for (arm, _), cell in cells.items():
        assert set(cell["success"]) == {"quick"}
        assert ("retained" in cell) == (arm != "single")
        assert cell.get("retained", {"quick": [[1]]}) == {"quick": [[1]]}
    for arm in ("average", "ties"):  # whatever is merged, robots have sent the same
        sent = [cells[arm, each]["uploaded"] for each in values]
        other = [cells["retain", each]["uploaded"] for each in values]
        assert sent == pytest.approx(other, rel=0.05)
        assert all(more > 1.5 * less > 0 for more, less in pairwise(sent))
    assert "tasks of the backbone" in (tmp_path / "out/small.md").read_text()


def test_robots_of_a_life_answer_about_a_backbone_and_their_months_are_drawn(world, tmp_path):
    events = [
        {"month": 1, "robot": "ann", "type": "arrives", "task": "quick", "episodes": 2},
        {"month": 2, "robot": "bob", "type": "arrives", "task": "quick", "episodes": 2},
        {"month": 3, "robot": "ann", "type": "leaves", "forget": True},
    ]
    frozen = {"method": "naive_average", "frozen": True}
    base = base_of(world, rollouts=1)
    del base["robots"], base["split"]
    changes = {
        **{"vary": None, "values": {"": {}}, "references": [], "seeds": 1, "base": base},
        "life": {"months": 3, "events": events},
        "arms": {
            "analytic": frozen | {"last_method": "head_refit", "last_options": {"of": "base"}},
            "alone": frozen | {"last_method": "naive_average", "life.control": "joint"},
        },
    }
    assert run(tmp_path, Path(world["private"]), **changes) == 0
    result = result_in(tmp_path)
    assert not result["failed"]
    cells = {each["arm"]: each for each in result["cells"]}
    assert [len(cells[arm]["curve"]) for arm in ("analytic", "alone")] == [3, 1]
    assert cells["alone"]["bytes"] == 0 < cells["analytic"]["bytes"]
    backbone = load_checkpoint(world["checkpoint"]).weights
    months = list((tmp_path / "out").glob("*/months/*.safetensors"))
    unchanged = [same(backbone, load_checkpoint(path).weights) for path in months]
    assert len(months) == 4 and sum(unchanged) == 1  # that of `alone`
    with Image.open(tmp_path / "out/small_months.webp") as animation:
        assert getattr(animation, "n_frames", 1) == 3
    assert "small_months.webp" in (tmp_path / "out/small.md").read_text()


def test_robots_begin_with_the_backbone_and_scale_as_it_does(world) -> None:
    policy = load_checkpoint(world["checkpoint"])
    for tuned in TUNED:
        plan = plan_of(world, backbone={"checkpoint": world["checkpoint"], "tuned": tuned})
        assert plan.blueprint == policy.blueprint
        base = plan.first_base()
        assert base is not None and same(base, policy.weights)
        (_, answer), *_ = local(plan).exchange({0: TrainRequest(1, 0, 1, None)})
        assert isinstance(answer, LocalUpdate) and not same(answer.weights, base)
    joint = FleetPlan.of(reference(plan_of(world).config, "joint"))
    assert joint.blueprint == policy.blueprint and joint.first_base() is not None


@pytest.mark.parametrize("tuned", TUNED)
def test_changes_arrive_as_what_was_trained(tuned, world) -> None:
    """Without rounding, a merge of changes is the merge of weights."""
    backbone = {"checkpoint": world["checkpoint"], "tuned": tuned, "rank": 2}
    plain, small = (
        run_rounds(plan_of(world, backbone=backbone, uploads=each))[-1] for each in (None, {})
    )
    for name, each in plain.weights.items():
        torch.testing.assert_close(small.weights[name], each, atol=1e-6, rtol=1e-5)
    sent, whole = (
        [robot.uploaded_bytes for robot in each.robots.values()] for each in (small, plain)
    )
    if tuned != "all":
        assert max(sent) < 0.5 * min(whole)


@pytest.mark.parametrize("lie", ["other name", "no tensor", "one number"])
def test_a_robot_whose_change_does_not_fit_is_left_out(lie, world) -> None:
    def tamper(robot: int, before: int, answer: Any) -> Any:
        if robot or not isinstance(answer, LocalUpdate):
            return answer
        weights = dict(answer.weights)
        name, tensor = weights.popitem()
        if lie != "no tensor":
            weights["more" if lie == "other name" else name] = tensor.flatten()[:1]
        return replace(answer, weights=weights)

    plan = plan_of(world, uploads={"bits": 8})
    (result,) = run_rounds(plan, RecordingTransport(local(plan), tamper))
    assert [robot for robot, each in result.robots.items() if each.left_out] == [0]


@few(10)
@given(seed=st.integers(0, 2**32), rank=st.integers(1, 4))
def test_a_change_of_low_rank_is_sent_as_its_factors(seed, rank) -> None:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Any:
        return torch.randn(shape, generator=generator)

    base = {"w": draw(30, 20), "conv": draw(40, 5, 2, 2), "bias": draw(30), "same": draw(9, 9)}
    base["count"] = torch.tensor(3)
    weights = dict(base)
    weights["w"] = base["w"] + draw(30, rank) @ draw(rank, 20)
    weights["conv"] = base["conv"] + (draw(40, rank) @ draw(rank, 20)).reshape(40, 5, 2, 2)
    weights["bias"], weights["count"] = base["bias"] + 1, torch.tensor(5)
    update, known = LocalUpdate(1, 2, 0.5, weights), Known(base, rank)
    changes = known.changes(weights)
    assert sum(each.numel() for each in changes.values()) == rank * (50 + 60) + 30 + 1
    found = decode(encode(update, UploadConfig(), known), known)
    assert list(found.weights) == list(base)
    for name, each in weights.items():
        torch.testing.assert_close(found.weights[name], each, atol=1e-4, rtol=1e-4)
    for lie in ({"more": draw(3)}, {"w": draw(1)}, {"left:w": draw(1, 30), "right:w": draw(1, 9)}):
        with pytest.raises((MessageError, RuntimeError)):
            known.changed(lie)
    # In few bits, a change loses less than weights do.
    few = UploadConfig(bits=8)
    error, coarse = (
        (decode(encode(update, few, each), each).weights["w"] - weights["w"]).norm()
        for each in (Known({**base, "w": weights["w"] - 0.01 * draw(30, 20)}), None)
    )
    assert error < 0.1 * coarse


def test_a_fleet_of_another_policy_is_refused(world) -> None:
    with pytest.raises(ConfigError, match=r"head.type.*give its config"):
        plan_of(world, policy={**POLICY, "head": {"type": "flow"}, "chunk": 4})
    with pytest.raises(ConfigError, match="initialization: common"):
        plan_of(world, initialization="own")


def test_a_merge_is_of_policies_of_one_backbone(world, tmp_path, capsys) -> None:
    changes = base_of(world, merge_every=None)
    assert fleet.main(arguments(Path(world["private"]), tmp_path / "fleet", **changes)) == 0
    first, second = (tmp_path / f"fleet/robots/{index}.safetensors" for index in range(2))
    backbone, other = Path(world["checkpoint"]), tmp_path / "other.safetensors"
    shutil.copy(backbone, tmp_path / "renamed.safetensors")

    def merged(*paths: Path, base: Path) -> int:
        given = ["--method", "task_arithmetic", "--base", str(base), "--quiet", "--overwrite"]
        return merge.main([*map(str, paths), *given, "--output", str(output)])

    output, once = tmp_path / "merged.safetensors", tmp_path / "once.safetensors"
    assert merged(first, second, base=tmp_path / "renamed.safetensors") == 0
    shutil.copy(output, once)
    # What is merged is of this backbone, too, and a base of the next round.
    origin = load_checkpoint(first).backbone("it")
    assert origin is not None and origin == load_checkpoint(once).backbone("it")
    assert origin == load_checkpoint(tmp_path / "fleet/merged.safetensors").backbone("it")
    assert merged(first, second, base=tmp_path / "fleet/merged.safetensors") == 0
    policy = load_checkpoint(backbone)
    save_checkpoint(other, replace(policy, notes={"trained": "again"}))
    assert merged(first, second, base=other) == 2
    assert "was fine-tuned from last.safetensors (digest" in capsys.readouterr().err
    for note, said in (
        (
            {"name": "other.safetensors", "file_digest": file_digest(other)},
            "from other.safetensors",
        ),
        (3, f"The backbone of {other}"),
    ):
        save_checkpoint(other, replace(load_checkpoint(second), notes={BACKBONE: note}))
        for path in (first, once):
            assert merged(path, other, base=backbone) == 2
            assert said in capsys.readouterr().err
    assert merged(first, second, base=Path("fleet-tools/backbone")) == 2
    assert "of backbone.safetensors (digest" in capsys.readouterr().err


def test_the_released_backbone_is_a_small_policy_of_the_stored_experiment() -> None:
    policy = BackboneConfig(checkpoint="fleet-tools/backbone").load()
    experiment = load_experiment(ROOT / "experiments/backbone/states.yaml")
    assert policy.blueprint.config == parse(PolicyConfig, experiment.base["policy"], "policy")
    assert sum(each.numel() for each in policy.weights.values()) <= 300_000


@pytest.mark.parametrize(("name", "sent"), [("states", 4), ("clouds", 3)])
def test_the_stored_experiments_have_all_methods_and_controls(name, sent) -> None:
    experiment = load_experiment(ROOT / f"experiments/backbone/{name}.yaml")
    arena = ToolUse(experiment)
    plans = [arena.plan(each) for each in planned_runs(experiment) if not each.is_reference]
    methods = {each.config.method for each in plans} | {each.config.last_method for each in plans}
    assert methods >= {"naive_average", "task_arithmetic", "ties", "iso_c", "fleet_merge"}
    assert methods >= {"head_refit", "density_gated_ensemble"}
    assert all(
        list(each.former) == experiment.base["public"] for each in plans if each.config.backbone
    )
    # Raw data are sent once for all that robots tune; without a limit, or as much as changes.
    raw = {(each.arm, each.folder) for each in plans if each.raw}
    assert len(raw) == sent * experiment.seeds
    assert {each.arm for each in plans if each.budget} == {each for each, _ in raw} - {"raw"}
