"""The life of a fleet: who takes part when, what the server keeps, and what it forgets."""

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from hypothesis import given
from hypothesis import strategies as st
from support.fleet_cases import (
    PROGRAM,
    RecordingTransport,
    arguments,
    local,
    plan_of,
    rounds_of,
    run_rounds,
    same,
    write_data,
)
from support.processes import ROOT
from support.shares import few

from fleet_merging.moments.measurement import Moments, combine, solve
from fleet_tools.baselines.federated import keeping, rounds
from fleet_tools.baselines.federated.life import EventError, Life
from fleet_tools.baselines.federated.life_report import episode_losses, personalize
from fleet_tools.baselines.federated.messages import LocalUpdate
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import KEPT, MONTHS, FleetWriter, load_progress
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.federated.transport import LostClient
from fleet_tools.baselines.fleet import main
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fleet_tools.config.values import parse
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError

Events = list[dict[str, Any]]

ANN = {"month": 1, "robot": "ann", "type": "arrives", "task": "hammer", "tools": ["tool_0"]}
EVE = {"month": 1, "robot": "eve", "type": "arrives", "task": "hammer", "tools": ["tool_1"]}
BOB = {"month": 2, "robot": "bob", "type": "arrives", "task": "hammer"}
EVENTS: Events = [
    ANN | {"episodes": 5},
    EVE | {"episodes": 5},
    BOB | {"episodes": 6},
    {"month": 3, "robot": "ann", "type": "is_away"},
    {"month": 3, "robot": "eve", "type": "leaves", "forget": True},
]
MLP = {"body": {"type": "mlp", "layers": 2, "width": 6}}
SHARED: dict[str, Any] = {"initialization": "common"}
ANALYTIC: dict[str, Any] = {
    **SHARED,
    **{"frozen": True, "last_method": "head_refit", "last_options": {"of": "base"}},
}
GATE: dict[str, Any] = {"last_method": "density_gated_ensemble"}
DISTILLATION: dict[str, Any] = {
    **SHARED,
    **{"last_method": "distillation", "last_options": {"mixtures": 2, "states": 99, "steps": 9}},
}


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("life") / "data", [3, 5, 2, 4] * 8)


def life_of(events: Sequence[Any] = EVENTS, months: int = 4, **changes: Any) -> dict[str, Any]:
    return {"months": months, "events": list(events), **changes}


def alive(data: Path, life: dict[str, Any] | None = None, **changes: Any) -> FleetPlan:
    """Returns the plan of a small fleet with a life."""
    settings = {"life": life or life_of(), "merge_every": None, "policy": MLP}
    return plan_of(data, **settings | changes)


def lived(folder: Path, plan: FleetPlan, transport: Any = None) -> dict[str, Any]:
    """Runs a fleet, and returns its report."""
    with FleetWriter(folder, plan) as writer:
        return complete(writer, transport or local(plan))


def policy_of(folder: Path, month: int) -> Checkpoint:
    return load_checkpoint(folder / MONTHS / f"{month}.safetensors")


@st.composite
def lives(draw: st.DrawFn) -> tuple[Life, dict[str, list[set[int]]]]:
    """Draws a life, and for each robot the months of each of its stays, by walking through it."""
    months, events, stays = draw(st.integers(1, 5)), [], dict[str, list[set[int]]]()
    here: set[str] = set()
    for month in range(1, months + 1):
        away: set[str] = set()
        for robot in draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=4)):
            event: dict[str, Any] = {"month": month, "robot": robot}
            if robot not in here:
                event |= {"type": "arrives", "task": f"task {robot}", "episodes": 1}
                here.add(robot)
                stays.setdefault(robot, []).append(set())
            elif draw(st.booleans()):
                event |= {"type": "leaves", "forget": draw(st.booleans())}
                here.remove(robot)
            else:
                event["type"] = "is_away"
                away.add(robot)
            events.append(event)
        for robot in here - away:
            stays[robot][-1].add(month)
    if not any(1 in months for each in stays.values() for months in each):
        events.insert(0, {"month": 1, "robot": "z", "type": "arrives", "task": "z", "episodes": 1})
        stays["z"] = [set(range(1, months + 1))]
    return parse(Life, {"months": months, "events": events}, "The test"), stays


@given(lives())
def test_robots_take_part_from_arrival_to_departure_but_for_months_away(
    drawn: tuple[Life, dict[str, list[set[int]]]],
) -> None:
    life, expected = drawn
    found: dict[str, list[set[int]]] = {}
    for stay in life.stays():
        found.setdefault(stay.robot, []).append(set(stay.rounds))
    assert found == expected
    forgotten = {stay.robot for stay in life.stays() if stay.forgotten is not None}
    assert forgotten == {e.robot for e in life.events if e.type == "leaves" and e.forget}
    without = life.model_copy(update={"control": "without"}).stays()
    for one, other in zip(life.stays(), without, strict=True):
        assert other.rounds == (one.rounds if one.forgotten is None else ())
    begun = life.model_copy(update={"control": "sequential"}).stays()
    assert sorted(n for stay in begun for n in stay.arrivals) == sorted(
        stay.arrivals[0] for stay in life.stays() if stay.rounds
    )
    kept = [stay for stay in life.stays() if stay.forgotten is None]
    if kept:
        (joint,) = life.model_copy(update={"control": "joint"}).stays()
        assert joint.arrivals == tuple(n for stay in kept for n in stay.arrivals)


@given(seed=st.integers(0, 10**6))
def test_no_two_robots_share_an_episode_and_each_has_its_tools(data: Path, seed: int) -> None:
    samples = Samples([str(data)], observations=[])
    free = sorted(np.random.default_rng(seed).permutation(32)[:28].tolist())
    life = parse(Life, life_of(), "The test")
    parts = life.parts(samples, free, seed)
    every = [index for part in parts for index in part]
    assert len(set(every)) == len(every) == 16 and set(every) <= set(free)
    for part, tools in zip(parts, [{"tool_0"}, {"tool_1"}, {"tool_0", "tool_1"}], strict=True):
        assert {samples.episodes[index].record.tool for index in part} <= tools


@given(
    robots=st.integers(2, 6),
    size=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    leaver=st.integers(0, 5),
)
def test_sums_without_a_robot_are_the_sums_of_the_others(
    robots: int, size: int, seed: int, leaver: int
) -> None:
    generator, leaver = np.random.default_rng(seed), leaver % robots

    def of_robot() -> Moments:
        x = np.pad(generator.normal(size=(20, size)), ((0, 0), (0, 1)), constant_values=1.0)
        y = generator.normal(size=(20, 3))
        return Moments(torch.from_numpy(x.T @ x)[None], torch.from_numpy(x.T @ y)[None])

    sums, prior = [of_robot() for _ in range(robots)], torch.zeros(1, size + 1, 3).double()
    total = combine(sums, [1.0] * robots)
    after = combine([total, sums[leaver]], [1.0, -1.0])
    others = combine([each for k, each in enumerate(sums) if k != leaver], [1.0] * (robots - 1))
    torch.testing.assert_close(
        solve(after, prior, 1e-6), solve(others, prior, 1e-6), rtol=0, atol=1e-6
    )


@pytest.fixture(scope="module", name="backbone")
def _backbone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    blueprint, path = alive(data).blueprint, tmp_path_factory.mktemp("backbone") / "b.safetensors"
    save_checkpoint(path, Checkpoint(blueprint, blueprint.create(7).state_dict()))
    return path


@pytest.mark.parametrize("name", ["analytic", "backbone", "gate", "distillation"])
def test_a_forgotten_robot_leaves_no_trace(
    data: Path, backbone: Path, tmp_path: Path, name: str
) -> None:
    own = {"backbone": {"checkpoint": str(backbone), "tuned": "head"}}
    arm = {"backbone": ANALYTIC | own, "gate": GATE, "distillation": DISTILLATION}.get(
        name, ANALYTIC
    )
    report = lived(tmp_path / "with", alive(data, **arm))
    lived(tmp_path / "without", alive(data, life_of(control="without"), **arm))
    one, other = (policy_of(tmp_path / name, 4) for name in ("with", "without"))
    assert one.blueprint == other.blueprint and same(dict(one.weights), dict(other.weights))
    assert not same(dict(policy_of(tmp_path / "with", 2).weights), dict(other.weights))
    assert not list((tmp_path / "with" / KEPT).glob("1-*"))
    assert list(load_progress(tmp_path / "with").robot_weights) == [0, 2]
    (entry,) = report["life"]["forgotten"]
    assert entry["robot"] == 1 and entry["month"] == 3 and entry["after"] == entry["end"]
    if name == "backbone":  # only the last layer is fitted
        before, last = load_checkpoint(backbone).weights, alive(data).affine_maps[-1].name
        fitted = {key for key in before if not torch.equal(before[key], one.weights[key])}
        assert {key.rpartition(".")[0] for key in fitted} == {last}


def test_answers_are_asked_for_once_and_the_absent_still_count(data: Path, tmp_path: Path) -> None:
    events = [*EVENTS[:3], {"month": 2, "robot": "ann", "type": "leaves"}]
    report = lived(tmp_path / "out", alive(data, life_of(events), **ANALYTIC))
    asked = [[each["robot"] for each in month["robots"]] for month in rounds_of(tmp_path / "out")]
    assert asked == [[0, 1], [2], [], []]
    last = [policy_of(tmp_path / "out", month).weights for month in (2, 3, 4)]
    assert same(dict(last[0]), dict(last[1])) and same(dict(last[0]), dict(last[2]))
    names = [path.name[0] for path in (tmp_path / "out" / KEPT).iterdir()]
    assert sorted(names) == ["0", "1", "2"] and report["life"]["kept_bytes"] > 0


@pytest.mark.parametrize("arm", [ANALYTIC, GATE], ids=["analytic", "gate"])
def test_a_refused_answer_is_not_kept_and_asked_for_again(
    data: Path, tmp_path: Path, arm: dict[str, Any]
) -> None:
    plan, queries = alive(data, life_of(EVENTS[:2], months=2), **arm), []

    def broken(robot: int, before: int, answer: Any) -> Any:
        if robot != 0 or isinstance(answer, LocalUpdate):
            return answer
        queries.append(before)
        if len(queries) > 1:
            return answer
        return {name: replace(m, inputs=m.inputs * torch.nan) for name, m in answer.items()}

    lived(tmp_path / "broken", plan, RecordingTransport(local(plan), broken))
    lived(tmp_path / "valid", plan)
    first, second = rounds_of(tmp_path / "broken")
    assert "NaN or infinity" in first["robots"][0]["left_out"] and len(queries) == 2
    assert not any(each["left_out"] for each in second["robots"])
    one, other = (dict(policy_of(tmp_path / name, 2).weights) for name in ("broken", "valid"))
    assert same(one, other)


def test_answers_are_sent_once_although_another_robot_is_lost(data: Path, tmp_path: Path) -> None:
    plan = alive(data, life_of(EVENTS[:2], months=1), **ANALYTIC)

    def lost(robot: int, before: int, answer: Any) -> Any:
        return LostClient("it had not answered when the round closed") if robot == 1 else answer

    lived(tmp_path / "lost", plan, RecordingTransport(local(plan), lost))
    lived(tmp_path / "alone", alive(data, life_of(EVENTS[:1], months=1), **ANALYTIC))
    ((robot, other),), ((alone,),) = (
        [each["robots"] for each in rounds_of(tmp_path / name)] for name in ("lost", "alone")
    )
    assert other["left_out"] is not None
    assert robot["uploaded_bytes"] == alone["uploaded_bytes"] > 0


@pytest.mark.parametrize("arm", [ANALYTIC, GATE], ids=["analytic", "gate"])
def test_killed_after_compressed_answers_it_reports_the_same_bytes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: dict[str, Any]
) -> None:
    plan = alive(data, life_of(EVENTS[:2], months=2), uploads={"bits": 8}, **arm)
    expected = lived(tmp_path / "whole", plan)

    def killed_after(*inputs: Any) -> None:
        rounds.combine(*inputs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(keeping, "combine", killed_after)
        lived(tmp_path / "killed", plan)
    assert lived(tmp_path / "killed", plan) == expected
    assert rounds_of(tmp_path / "killed") == rounds_of(tmp_path / "whole")


def test_changes_of_several_months_are_sent_with_their_whole_rank(
    data: Path, backbone: Path, tmp_path: Path
) -> None:
    tuned = {"checkpoint": str(backbone), "tuned": "adapters", "rank": 1}
    training = {"epochs": 8, "batch_size": 8, "learning_rate": 0.05}
    arm = {"backbone": tuned, "initialization": "common", "training": training, **GATE}
    for name, uploads in (("exact", None), ("rounded", {"bits": 16})):
        plan = alive(data, life_of(EVENTS[:2], months=3), uploads=uploads, **arm)
        lived(tmp_path / name, plan)
    one, other = (load_progress(tmp_path / name).robot_weights for name in ("exact", "rounded"))
    before = load_checkpoint(backbone).weights
    for robot in one:
        for key, each in one[robot].items():
            assert (other[robot][key] - each).norm() <= 0.01 * (each - before[key]).norm() + 1e-6


SLOW = pytest.mark.slow  # each starts processes; the gate trains, asks and keeps


@pytest.mark.parametrize(
    "arm",
    [
        pytest.param(GATE, id="gate"),
        pytest.param(SHARED, id="average", marks=SLOW),
        pytest.param(ANALYTIC, id="analytic", marks=SLOW),
    ],
)
def test_killed_within_a_month_and_between_months_it_ends_with_the_same_bits(
    data: Path, tmp_path: Path, arm: dict[str, Any]
) -> None:
    changes = {"life": life_of(), "policy": MLP, "training": {"epochs": 2, "batch_size": 8}, **arm}
    calls = {}
    for name in ("whole", "killed"):
        calls[name] = arguments(data, tmp_path / name, **changes)
        content = yaml.safe_load(Path(calls[name][0]).read_text())
        del content["merge_every"]
        Path(calls[name][0]).write_text(yaml.safe_dump(content))
    assert main(calls["whole"]) == 0
    folder = tmp_path / "killed"
    for moment in ("config.json", f"{MONTHS}/2.safetensors"):
        process = subprocess.Popen([*PROGRAM, *calls["killed"]], cwd=ROOT)
        while process.poll() is None and not (folder / moment).exists():
            time.sleep(0.001)
        process.kill()
        process.wait()
    assert main(calls["killed"]) == 0
    assert rounds_of(tmp_path / "whole") == rounds_of(folder)
    files = ["report.json", *(f"{MONTHS}/{month}.safetensors" for month in range(1, 5))]
    for name in files:
        assert (tmp_path / "whole" / name).read_bytes() == (folder / name).read_bytes(), name


def without_ann_in_month_2() -> dict[str, Any]:
    events = [*EVENTS[:3], {"month": 2, "robot": "ann", "type": "is_away"}]
    return life_of(events, months=3)


@pytest.mark.parametrize("fault", ["late", "stale", "poor"])
def test_a_late_an_old_and_too_large_an_answer_are_not_merged(data: Path, fault: str) -> None:
    events: Events = EVENTS[:3]
    if fault == "poor":
        events = [events[0] | {"bytes": 10}, *events[1:]]
    plan = alive(data, life_of(events, months=3), **SHARED)

    def tamper(robot: int, before: int, answer: Any) -> Any:
        if robot != 0 or before != 1 or fault == "poor":
            return answer
        if fault == "late":
            return LostClient("it had not answered when the round closed")
        assert isinstance(answer, LocalUpdate)
        return replace(answer, round=1)

    found = run_rounds(plan, RecordingTransport(local(plan), tamper))
    left_out = [each.robots[0].left_out for each in found]
    if fault == "poor":
        assert all(why is not None and "may upload 10 bytes" in why for why in left_out)
        assert [each.robots[0].uploaded_bytes for each in found] == [0, 0, 0]
        never = run_rounds(alive(data, life_of([EVENTS[1], EVENTS[2]], months=3), **SHARED))
        assert [sorted(each.robot_weights) for each in found] == [[1], [1, 2], [1, 2]]
        assert len(never) == 3
        return
    assert left_out[0] is None and left_out[1] is not None and left_out[2] is None
    expected = run_rounds(alive(data, without_ann_in_month_2(), **SHARED))
    for one, other in zip(found, expected, strict=True):
        assert same(one.weights, other.weights)


def test_a_late_robot_still_counts_by_what_the_server_keeps(data: Path, tmp_path: Path) -> None:
    plan = alive(data, life_of(EVENTS[:3], months=2), **GATE)

    def late(robot: int, before: int, answer: Any) -> Any:
        lost = robot == 0 and before == 2  # after its first network and the answer about states
        return LostClient("it had not answered when the round closed") if lost else answer

    lived(tmp_path / "late", plan, RecordingTransport(local(plan), late))
    lived(tmp_path / "away", alive(data, life_of(without_ann_in_month_2()["events"], 2), **GATE))
    one, other = (policy_of(tmp_path / name, 2) for name in ("late", "away"))
    assert same(dict(one.weights), dict(other.weights))
    robot, *others = rounds_of(tmp_path / "late")[1]["robots"]
    assert robot["robot"] == 0 and "had not answered" in robot["left_out"]
    expected = {each["robot"]: each for each in rounds_of(tmp_path / "away")[1]["robots"]}
    for each in others:  # the merge began again without it, and nothing was sent twice
        assert each["uploaded_bytes"] == expected[each["robot"]]["uploaded_bytes"] > 0


@few(10)
@given(seed=st.integers(0, 10**6))
def test_a_policy_at_home_fits_its_robot_and_stays_near_where_it_is_held(
    data: Path, seed: int
) -> None:
    for ridge, holds in ((1e-6, False), (1e9, True)):
        plan = alive(data, personal_ridge=ridge, **SHARED)
        shared = Checkpoint(plan.blueprint, plan.blueprint.create(seed).state_dict())
        own = personalize(plan, 0, shared)
        part = Samples([str(data)], observations=list(plan.blueprint.observation))
        part = part.subset(plan.assignments[0].episodes)
        before, after = (
            np.average(episode_losses(plan, each, part), weights=part.lengths)
            for each in (shared, own)
        )
        if holds:
            assert after == pytest.approx(before, rel=1e-4)
        else:
            assert after < before


BAD: list[tuple[Any, int, str]] = [
    ([*EVENTS[2:3], *EVENTS[:2]], 5, "in the order of months"),
    ([EVENTS[0], {"month": 1, "robot": "bob", "type": "leaves"}], 5, "'bob' is not here yet"),
    ([EVENTS[0], {"month": 2, "robot": "bo", "type": "is_away"}], 5, "here are ann"),
    ([EVENTS[0], EVENTS[0]], 5, "is here already"),
    ([EVENTS[0], BOB | {"episodes": 1, "month": 9}], 5, "the last of 4"),
    ([EVENTS[2]], 4, "no robot takes part in the first month"),
    ([EVENTS[0], EVE | {"episodes": 5, "arm": "panda2"}], 5, "Did you mean 'panda'"),
    ([EVENTS[0], EVE | {"episodes": 0}], 5, "greater than or equal to 1"),
    ([EVENTS[0], EVE | {"episodes": 5, "task": "hamer"}], 5, "Did you mean 'hammer'"),
    ([EVENTS[0], EVE | {"episodes": 5, "tools": ["tool_7"]}], 5, "tool in the data of hammer"),
    ([EVENTS[0], EVE | {"episodes": 5, "arm": "ur5e"}], 5, "arm in the data of hammer"),
    ([EVENTS[0], EVE | {"episodes": 99}], 5, "'eve' has 99 episodes of hammer"),
]


@pytest.mark.parametrize(("events", "line", "reason"), BAD)
def test_bad_events_are_one_error_with_their_line(
    data: Path, tmp_path: Path, capsys: Any, events: Events, line: int, reason: str
) -> None:
    lines = ["life:", "  months: 4", "  events:", *(f"    - {json.dumps(e)}" for e in events)]
    rest = {"policy": MLP, "method": "naive_average", "training": {"epochs": 1}}
    path = tmp_path / "bad.yaml"
    path.write_text("\n".join([*lines, yaml.safe_dump({"data": [str(data)], **rest})]))
    assert main([str(path), "--output", str(tmp_path / "out"), "--workers", "0", "--quiet"]) == 2
    message = capsys.readouterr().err
    assert reason in message and message.count("bad.yaml, line") == 1
    assert f"bad.yaml, line {line}: life.events" in message
    assert not (tmp_path / "out").exists()


def test_what_a_life_cannot_have_is_said(data: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"merge_every": 1}, "leave out merge_every"),
        ({"frozen": True}, "and `initialization: common`"),
    ]
    for changes, reason in cases:
        with pytest.raises(ConfigError, match=reason):
            alive(data, **changes)
    with pytest.raises(ConfigError, match="need a `life`"):
        plan_of(data, personal_ridge=0.1)
    with pytest.raises(EventError, match=r"life\.events\.0: 'ann' has 50"):
        alive(data, life_of([ANN | {"episodes": 50}]))
