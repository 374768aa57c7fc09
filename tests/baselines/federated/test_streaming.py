"""A streaming round: laws of the sum, of alignment at home, and of what robots may send."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("cryptography")

import numpy as np
import torch
from support.damage import damaged
from support.fleet_cases import (
    RecordingTransport,
    answered,
    arguments,
    config_of,
    local,
    plan_of,
    run_rounds,
    same,
    write_data,
)

from fleet_tools.baselines.federated.closing import LATE
from fleet_tools.baselines.federated.messages import LocalUpdate, LocalUpdateRequest
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.privacy.quantization import quantize
from fleet_tools.baselines.federated.progress import after_round
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.reply_cache import CachingTransport
from fleet_tools.baselines.federated.robot import FleetRobot, local_data_holder
from fleet_tools.baselines.federated.run import run
from fleet_tools.baselines.federated.streaming.alignment import align
from fleet_tools.baselines.federated.streaming.config import StreamingConfig
from fleet_tools.baselines.federated.streaming.mask_messages import (
    answer_mask_message,
    encode_key_request,
    encode_reveal_request,
)
from fleet_tools.baselines.federated.streaming.messages import (
    ChangeRequest,
    decode_change_request,
    decode_masked,
    decode_rounded,
    decode_vector,
    encode_change_request,
    encode_masked,
    encode_rounded,
    encode_vector,
)
from fleet_tools.baselines.federated.streaming.partial import Partial
from fleet_tools.baselines.federated.streaming.rounds import StreamedRound, run_streaming_round
from fleet_tools.baselines.federated.streaming.sums import FixedPointSum
from fleet_tools.baselines.federated.streaming.vectors import difference, displaced, sizes
from fleet_tools.baselines.federated.summary import as_text
from fleet_tools.baselines.federated.transport import Answers, LocalTransport, LostRobot, Transport
from fleet_tools.baselines.fleet import main
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.methods.content_order import content_order
from fleet_tools.baselines.merging.methods.fleet_merge import TRUST, align_with_mean, fleet_merge
from fleet_tools.baselines.merging.methods.git_rebasin import match_models
from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.training.errors import TrainingError
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError

COMMON: dict[str, Any] = {"initialization": "common", "method": "common_init"}


@pytest.fixture(scope="module", name="large")
def _large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a dataset with enough episodes for a dozen robots."""
    return write_data(tmp_path_factory.mktemp("large") / "data", [3, 5, 2, 4] * 5)


def stream(
    plan: FleetPlan, transport: Transport | None = None, count: int | None = None, **options: Any
) -> list[StreamedRound]:
    """Runs streaming rounds, all by default, without storing anything."""
    transport = transport or local(plan)
    results: list[StreamedRound] = []
    for number in range(1, (count or plan.config.rounds) + 1):
        weights = results[-1].weights if results else None
        results.append(run_streaming_round(plan, transport, number, weights, **options))
    return results


class Ordered:
    """A transport whose answers arrive in another order, and of which some never arrive.

    Args:
        inner: The transport.
        order: Sorts the robots.
        silent: Robots that do not answer before the deadline.
    """

    def __init__(
        self,
        inner: Transport,
        order: Callable[[int], float] = float,
        silent: tuple[int, ...] = (),
    ) -> None:
        self._inner, self._order, self._silent = inner, order, silent

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_s: float | None = None
    ) -> Answers:
        for robot in sorted(messages, key=self._order):
            if robot not in self._silent:
                yield from self._inner.exchange({robot: messages[robot]})

    def late(self) -> list[int]:
        return list(self._silent)

    def end(self, robot: int) -> None:
        self._inner.end(robot)

    def close(self) -> None:
        self._inner.close()


def furthest(one: Tensors, other: Tensors) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


# --- The sum ----------------------------------------------------------------------------------


@pytest.mark.parametrize("server", [None, {"optimizer": "momentum", "momentum": 0.5}])
def test_streaming_is_the_merge_of_all_at_once(data: Path, server: Any) -> None:
    plan = plan_of(data, **COMMON, merge_every=None, server=server)
    (batch,) = run_rounds(plan)
    (streamed,) = stream(plan_of(data, **COMMON, merge_every=None, server=server, streaming={}))
    assert furthest(streamed.weights, batch.weights) < 1e-7
    assert streamed.loss == pytest.approx(batch.loss, abs=1e-7)
    assert [each.steps for each in streamed.robots.values()] == [
        each.update.steps for each in batch.robots.values() if each.update
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {**COMMON, "streaming": {}},
        {**COMMON, "streaming": {"bits": 4}},
        {**COMMON, "streaming": {"bits": 8, "neighbours": 2}},
        {**COMMON, "streaming": {"clip": 0.1, "noise": 1.0}},
        {"method": "git_rebasin", "streaming": {"passes": 2}},
    ],
    ids=["plain", "rounded", "masked", "noisy", "aligned"],
)
def test_the_order_of_arrival_does_not_matter(large: Path, changes: dict[str, Any]) -> None:
    if changes["streaming"].get("noise"):
        pytest.importorskip("dp_accounting")
    plan = plan_of(large, robots=6, **changes)
    orders = (lambda robot: robot, lambda robot: -robot, lambda robot: robot * 5 % 6)
    results = [stream(plan, Ordered(local(plan), order)) for order in orders]
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert same(one.weights, two.weights) and one.loss == two.loss


def test_robots_of_one_policy_merge_to_that_policy(data: Path) -> None:
    # With all data, one initialization and one seed, all robots train the same policy.
    plan = plan_of(data, **COMMON, split={"by": "nothing"}, streaming={}, merge_every=None)
    assignment = plan.clients[0].assignment
    copies = tuple(
        replace(client, assignment=assignment.model_copy(update={"robot": robot}))
        for robot, client in enumerate(plan.clients)
    )
    (streamed,) = stream(replace(plan, clients=copies))
    (single,) = run_rounds(
        plan_of(data, **COMMON, split={"by": "nothing"}, merge_every=None), count=1
    )
    alone = single.robots[0].merged_update
    assert alone is not None and furthest(streamed.weights, alone.weights) < 1e-8


def test_a_masked_sum_is_the_plain_sum_exactly(large: Path) -> None:
    streaming = {"bits": 8, "neighbours": 2, "largest": 0.05}
    plan = plan_of(large, **COMMON, robots=6, streaming=streaming, merge_every=None)
    (masked,) = stream(plan)
    base = plan.first_base()
    assert base is not None
    # The same robots without masks: each change rounded by the test, with the robot's own draws.
    total = np.zeros(sum(sizes(base)), np.int64)
    for assignment in plan.assignments:
        seed = assignment.training.seed
        bare = assignment.model_copy(update={"streaming": StreamingConfig()})
        request = encode_change_request(
            ChangeRequest(LocalUpdateRequest(1, 0, 4, None), None, 1000)
        )
        vector = decode_vector(FleetRobot(bare).answer(request), 1, total.size).vector
        total += quantize(vector, 0.05, 8, np.random.default_rng((seed, 1000, 1)))
    expected = displaced(base, (total / 127 * 0.05).astype(np.float32).astype(np.float64) / 6)
    assert same(masked.weights, expected)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rounded_changes_are_near_those_that_were_sent(large: Path, bits: int) -> None:
    plan = plan_of(large, **COMMON, robots=6, merge_every=None, streaming={"bits": bits})
    recording = RecordingTransport(local(plan))
    (rounded,) = stream(plan, recording)
    (exact,) = stream(plan_of(large, **COMMON, robots=6, merge_every=None, streaming={}))
    base = plan.first_base()
    assert base is not None
    moved = furthest(exact.weights, base)
    assert furthest(rounded.weights, exact.weights) <= moved / (2 ** (bits - 1) - 1) * 3
    size = sum(sizes(base))
    sent = [len(answered(answer)) for _, _, answer in recording.exchanges]
    assert max(sent) < size * bits / 8 + 600  # the rest is a header


# --- Alignment at home --------------------------------------------------------------------------


def two_trained(data: Path) -> tuple[FleetPlan, list[LocalUpdate]]:
    plan = plan_of(data, merge_every=None)
    (result,) = run_rounds(plan)
    updates = [each.merged_update for each in result.robots.values()]
    return plan, [update for update in updates if update is not None]


def holder_of(plan: FleetPlan):
    return local_data_holder(plan.blueprint, plan.held_out_trajectories, 8)


@pytest.mark.parametrize("method", ["git_rebasin", "fleet_merge"])
def test_a_permuted_policy_is_brought_back(data: Path, method: str) -> None:
    plan, (one, *_) = two_trained(data)
    symmetry, generator = plan.blueprint.symmetry(), np.random.default_rng(0)
    group = symmetry.group(one.weights)
    shuffled = {name: generator.permutation(size[-1]) for name, size in group.sizes.items()}
    permuted = symmetry.apply(shuffled, one.weights)
    options = {"descent": Descent(steps=2)}
    back = align(method, options, symmetry, permuted, one.weights, holder_of(plan), 0)
    assert furthest(back, one.weights) == 0


def test_alignment_at_home_is_an_epoch_of_fleet_merge(data: Path) -> None:
    # Of two models, fleet_merge begins with the matching of the second with the first. With all
    # weight on the first, the average is the first, which each then meets at home.
    plan, (one, two, *_) = two_trained(data)
    symmetry, descent = plan.blueprint.symmetry(), Descent(steps=5)
    problem = MergeProblem(
        symmetry,
        [one.weights, two.weights],
        averaging_weights=[1.0, 0.0],
        data_holders=[holder_of(plan)] * 2,
    )
    result = fleet_merge(problem, epochs=1, descent=descent)
    order = content_order(problem.models)
    place = order.index(1)
    ordered = MergeProblem(
        symmetry,
        [problem.models[index] for index in order],
        averaging_weights=[float(problem.normalized_weights[index]) for index in order],
    )
    start = match_models(ordered)[place]
    mean = ordered.mean(match_models(ordered))
    generator = np.random.default_rng((0, 0, place))
    found = align_with_mean(
        symmetry, two.weights, start, mean, holder_of(plan), generator, descent, TRUST
    )
    assert all(np.array_equal(found[name], result.permutations[1][name]) for name in found)


def test_a_second_pass_aligns_with_the_mean_of_the_first(data: Path) -> None:
    recording = {}
    for passes in (1, 2):
        plan = plan_of(data, method="git_rebasin", streaming={"passes": passes}, merge_every=None)
        recording[passes] = RecordingTransport(local(plan))
        stream(plan, recording[passes])
    counts = {passes: len(each.exchanges) for passes, each in recording.items()}
    assert counts == {1: 1 + 3, 2: 1 + 3 + 3}  # the policy of one, then each pass


def test_a_robot_that_forgot_its_training_gives_the_same_bits(data: Path) -> None:
    plan = plan_of(data, method="git_rebasin", streaming={"passes": 2}, merge_every=None)

    class Forgetful(LocalTransport):
        def exchange(
            self, messages: Mapping[int, bytes], *, deadline_s: float | None = None
        ) -> Answers:
            for robot in list(messages):
                yield from LocalTransport(plan.assignments).exchange({robot: messages[robot]})

    (remembered,), (forgotten,) = stream(plan), stream(plan, Forgetful(plan.assignments))
    assert same(remembered.weights, forgotten.weights)


# --- When a round closes ------------------------------------------------------------------------


def test_a_round_closes_when_enough_have_answered(large: Path) -> None:
    closing = {"over_sampling": 1.5}
    plan = plan_of(
        large,
        **COMMON,
        robots=6,
        participation=0.67,
        merge_every=None,
        closing=closing,
        streaming={},
    )
    (result,) = stream(plan, Ordered(local(plan), lambda robot: -robot))
    left_out = {robot: each.left_out for robot, each in result.robots.items()}
    assert left_out == {0: LATE, 1: LATE, 2: None, 3: None, 4: None, 5: None}


@pytest.mark.parametrize("streaming", [None, {}], ids=["at_once", "streaming"])
def test_without_a_quorum_there_is_no_merge(large: Path, streaming: Any) -> None:
    closing = {"deadline": 5.0, "quorum": 0.8}
    plan = plan_of(large, **COMMON, robots=5, closing=closing, streaming=streaming)
    run = run_rounds if streaming is None else stream
    assert run(plan, Ordered(local(plan), silent=(3,)), count=1)  # 4 of 5
    with pytest.raises(TrainingError, match=r"3 of 5 .* quorum is 4"):
        run(plan, Ordered(local(plan), silent=(3, 4)), count=1)


def test_who_fails_is_dropped_without_beginning_anew(large: Path) -> None:
    plan = plan_of(large, **COMMON, robots=5, streaming={}, merge_every=None)
    recording = RecordingTransport(
        local(plan), lambda robot, before, answer: LostRobot("unplugged") if robot == 2 else answer
    )
    (result,) = stream(plan, recording)
    assert len(recording.exchanges) == 5
    assert [each.left_out for each in result.robots.values()] == [
        None,
        None,
        "unplugged",
        None,
        None,
    ]
    others = replace(plan, clients=tuple(each for each in plan.clients))
    (without,) = stream(others, Ordered(local(plan), silent=(2,)))
    assert same(result.weights, without.weights) and without.came_late == 1


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("after", [1, 3, 4])
def test_a_round_that_was_killed_goes_on_to_the_same_bits(
    large: Path, monkeypatch: pytest.MonkeyPatch, passes: int, after: int
) -> None:
    from fleet_tools.baselines.federated.streaming import rounds

    monkeypatch.setattr(rounds, "STORE_EVERY_S", 0.0)
    settings = {"method": "git_rebasin", "streaming": {"passes": passes}, "merge_every": None}
    plan = plan_of(large, robots=4, **settings)
    (undisturbed,) = stream(plan)
    stored: list[Partial] = []

    def store(partial: Partial) -> None:
        stored.append(replace(partial, robots=dict(partial.robots)))
        if len(stored) == after:
            raise _KilledError

    with pytest.raises(_KilledError):
        stream(plan, store=store)
    recording = RecordingTransport(local(plan))
    (resumed,) = stream(plan, recording, partial=stored[-1])
    assert same(resumed.weights, undisturbed.weights) and resumed.loss == undisturbed.loss
    assert resumed.robots == undisturbed.robots
    assert len(recording.exchanges) == 4 * passes - after  # nobody who answered is asked again


# --- What is not merged -------------------------------------------------------------------------


def test_who_reveals_nothing_leaves_the_sum(large: Path) -> None:
    streaming = {"bits": 8, "neighbours": 4}
    plan = plan_of(large, **COMMON, robots=6, streaming=streaming, merge_every=None)

    def silent_at_the_end(robot: int, before: int, answer: bytes | LostRobot):
        return LostRobot("unplugged") if robot == 4 and before >= 2 else answer

    recording = RecordingTransport(local(plan), silent_at_the_end)
    (result,) = stream(plan, recording)
    assert result.robots[4].left_out == "unplugged"
    (others,) = stream(plan, Ordered(local(plan), silent=(4,)))
    assert same(result.weights, others.weights)


def test_no_answer_under_masks_shows_a_change(large: Path) -> None:
    plan = plan_of(
        large, **COMMON, robots=6, streaming={"bits": 8, "neighbours": 2}, merge_every=None
    )
    recordings = [RecordingTransport(local(plan)) for _ in range(2)]
    for recording in recordings:
        stream(plan, recording)
    one, two = (
        [answer for _, _, answer in recording.exchanges if len(answered(answer)) > 600]
        for recording in recordings
    )
    assert len(one) == len(two) == 6
    base = plan.first_base()
    assert base is not None
    size = sum(sizes(base))
    for first, second in zip(one, two, strict=True):  # the same changes under other masks
        tails = [np.frombuffer(answered(each)[-size:], np.uint8) for each in (first, second)]
        assert np.mean(tails[0] == tails[1]) < 0.05
        assert len(np.unique(tails[0])) > 100


@pytest.mark.parametrize(
    "spoil",
    [
        lambda update, vector: encode_vector(update, vector[:-1]),
        lambda update, vector: encode_vector(update, vector.astype(np.float64)),
        lambda update, vector: encode_vector(update, np.full_like(vector, np.nan)),
        lambda update, vector: encode_vector(update, np.full_like(vector, 1e9)),
        lambda update, vector: encode_vector(replace(update, round=2), vector),
        lambda update, vector: encode_vector(replace(update, steps=0), vector),
        lambda update, vector: encode_vector(replace(update, steps=2**40), vector),
        lambda update, vector: encode_vector(replace(update, loss=float("nan")), vector),
        lambda update, vector: b"nothing",
    ],
    ids=["short", "double", "nan", "huge", "round", "steps", "heavy", "loss", "bytes"],
)
def test_an_invalid_answer_is_left_out(data: Path, spoil: Callable[..., bytes]) -> None:
    plan = plan_of(data, **COMMON, streaming={}, merge_every=None)
    base = plan.first_base()
    assert base is not None
    size = sum(sizes(base))

    def tamper(robot: int, before: int, answer: bytes | LostRobot) -> bytes | LostRobot:
        if robot != 1:
            return answer
        change = decode_vector(answered(answer), 1, size)
        return spoil(LocalUpdate(1, change.steps, change.loss, {}), change.vector)

    (result,) = stream(plan, RecordingTransport(local(plan), tamper))
    (others,) = stream(plan, Ordered(local(plan), silent=(1,)))
    assert result.robots[1].left_out and same(result.weights, others.weights)


def test_damaged_messages_are_refused_by_one_typed_error() -> None:
    generator = np.random.default_rng(0)
    keys = {3: bytes(range(32)), 5: bytes(32)}
    weights = {"a": torch.zeros(2, 3), "b": torch.ones(4)}
    training, update = LocalUpdateRequest(1, 0, 1, weights), LocalUpdate(1, 7, 0.5, {})
    vector = np.linspace(-1, 1, 10, dtype=np.float32)
    levels, largest = quantize(vector, 1.0, 8, generator), np.ones(2, np.float32)
    reads: list[tuple[bytes, Callable[[bytes], object]]] = [
        (
            encode_change_request(ChangeRequest(training, weights, 1000, 9, 5, keys)),
            decode_change_request,
        ),
        (encode_vector(update, vector), lambda each: decode_vector(each, 1, 10)),
        (
            encode_rounded(update, levels, largest, 8),
            lambda each: decode_rounded(each, 1, [6, 4], 8),
        ),
        (
            encode_masked(update, levels.astype(np.uint64) % 512, 9),
            lambda each: decode_masked(each, 1, 10, 9),
        ),
        (
            encode_reveal_request(5, keys, [3]),
            lambda each: answer_mask_message(each, 1, bytes(32)),
        ),
        (encode_key_request(), lambda each: answer_mask_message(each, 1, bytes(32))),
    ]
    outcomes = []
    for message, read in reads:
        if read is not reads[4][1]:  # its second key is of low order
            read(message)
        for _ in range(150):
            try:
                read(damaged(message, generator))
                outcomes.append("read")
            except MessageError:
                outcomes.append("refused")
    assert outcomes.count("refused") > 500  # any other error ends the test


def test_clipped_and_rounded_changes_are_not_longer_than_the_clip(large: Path) -> None:
    for bits in (None, 2, 8):
        streaming = {"clip": 0.01, "bits": bits}
        plan = plan_of(large, **COMMON, robots=4, streaming=streaming, merge_every=None)
        recording = RecordingTransport(local(plan))
        stream(plan, recording)
        base = plan.first_base()
        assert base is not None
        counts = sizes(base)
        for _, _, answer in recording.exchanges:
            reply = answered(answer)
            if bits is None:
                vector = decode_vector(reply, 1, sum(counts)).vector
            else:
                vector = decode_rounded(reply, 1, counts, bits).vector
            assert 0 < np.linalg.norm(vector.astype(np.float64)) <= 0.01 * (1 + 1e-6)


def test_noise_has_the_spread_that_epsilon_counts(large: Path) -> None:
    pytest.importorskip("dp_accounting")
    settings = {**COMMON, "robots": 4, "merge_every": None}
    quiet = stream(plan_of(large, **settings, streaming={"clip": 0.5}))[0]
    loud = stream(plan_of(large, **settings, streaming={"clip": 0.5, "noise": 2.0}))[0]
    noise = difference(loud.weights, quiet.weights)
    assert np.std(noise) == pytest.approx(2.0 * 0.5 / 4, rel=0.2)


def test_a_robot_of_another_fleet_refuses_a_request(data: Path) -> None:
    (assignment, *_) = plan_of(data).assignments
    request = encode_change_request(ChangeRequest(LocalUpdateRequest(1, 0, 1, None), None, 1000))
    with pytest.raises(MessageError, match="does not stream"):
        FleetRobot(assignment).answer(request)


# --- Configuration ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "least_squares", "streaming": {}}, "those that stream are naive_average"),
        ({"method": "fleet_merge", "options": {"soft": True}, "streaming": {}}, "'soft'"),
        ({"streaming": {"neighbours": 4}}, "give `bits`"),
        ({"streaming": {"noise": 1.0}}, "units of `clip`"),
        ({"streaming": {"bits": 8, "neighbours": 4}}, "initialization: common"),
        ({**COMMON, "streaming": {"passes": 2}}, "passes: 1"),
        ({**COMMON, "streaming": {}, "try_robots": True}, "keeps no robot's weights"),
        ({**COMMON, "streaming": {"bits": 5}}, "bits"),
        ({**COMMON, "closing": {"over_sampling": 0.5}}, "over_sampling"),
        ({**COMMON, "closing": {"deadline": 0}}, "deadline"),
    ],
)
def test_what_cannot_stream_is_refused(data: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(data, **changes)


def test_assignments_of_other_fleets_are_as_they_were(data: Path) -> None:
    (assignment, *_) = plan_of(data).assignments
    assert not {"streaming", "method", "options"} & set(assignment.model_dump(mode="json"))
    assert torch.get_num_threads() == 1


# --- The program ----------------------------------------------------------------------------------


def test_the_program_stores_answers_and_resumes(large: Path, tmp_path: Path) -> None:
    changes = {**COMMON, "robots": 10, "participation": 0.5, "streaming": {"bits": 8}}
    assert main(arguments(large, tmp_path / "whole", **changes)) == 0
    report = json.loads((tmp_path / "whole/report.json").read_text())
    numbers = {"robots": 10, "asked": 10, "merged": 10, "failed": 0}
    assert report["streaming"] == numbers | {"not_awaited": 0, "came_late": 0}
    assert report["robots"] == [] and report["traffic"]["messages"] == 10
    lines = [(tmp_path / f"whole/answers/{n}.jsonl").read_text().splitlines() for n in (1, 2)]
    assert [len(each) for each in lines] == [5, 5]
    plan = plan_of(large, **changes)
    assert [json.loads(line)["robot"] for line in lines[1]] == plan.participants(2)
    # Killed after the first round, with half of the second one done.
    with FleetWriter(tmp_path / "killed", plan) as writer:
        first = run_streaming_round(plan, local(plan), 1, None)
        writer.save(after_round(None, plan, first, None, 0.0))
        writer.save_answers(1, first.robots.values())
        stored: list[Partial] = []

        def store(partial: Partial) -> None:
            writer.save_partial(partial)
            stored.append(partial)
            if len(stored) == 3:
                raise _KilledError

        with pytest.MonkeyPatch.context() as patch, pytest.raises(_KilledError):
            patch.setattr("fleet_tools.baselines.federated.streaming.rounds.STORE_EVERY_S", 0.0)
            run_streaming_round(plan, local(plan), 2, first.weights, store=store)
    assert main(arguments(large, tmp_path / "killed", **changes)) == 0
    assert "10 requests: 10 changes merged, 0 not awaited, 0 failed" in as_text("", report)
    for name in ("merged.safetensors", "report.json", "answers/2.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "killed/exchange.safetensors").exists()


@pytest.mark.parametrize("damage", [b"", b"nothing", None])
def test_a_damaged_exchange_is_asked_for_again(
    large: Path, tmp_path: Path, damage: bytes | None
) -> None:
    plan = plan_of(large, **COMMON, robots=4, streaming={}, merge_every=None)
    other = plan_of(large, **COMMON, robots=4, streaming={}, policy={"body": {"type": "mlp"}})
    with FleetWriter(tmp_path / "fleet", plan) as writer:
        if damage is None:  # of another network
            base = other.first_base()
            assert base is not None
            total = FixedPointSum.zero(sum(sizes(base)))
            writer.save_partial(Partial(1000, base, total, {}, (0, 1, 2, 3)))
        else:
            (tmp_path / "fleet/exchange.safetensors").write_bytes(damage)
        assert writer.partial() is None


@pytest.mark.parametrize(
    "lie",
    [
        {"waiting": (0, 1, 2, 999)},
        {"waiting": (-1,)},
        {"session": -5},
        {"total": FixedPointSum(np.zeros(7, np.int64))},
        {"count": 4, "weight": 0},
        {"count": 3, "weight": 30},
        {"count": -1, "weight": 5},
        {"count": 1, "weight": 2**40},
    ],
    ids=["stranger", "negative", "round", "size", "weightless", "many", "fewer", "heavy"],
)
def test_an_exchange_that_lies_is_asked_for_again(
    large: Path, tmp_path: Path, lie: dict[str, Any]
) -> None:
    plan = plan_of(large, **COMMON, robots=4, streaming={}, merge_every=None)
    base = plan.first_base()
    assert base is not None
    zero = FixedPointSum.zero(sum(sizes(base)))
    honest = Partial(1000, base, zero, {}, (0, 1, 2, 3))
    total = replace(zero, **{name: lie.pop(name) for name in ("count", "weight") if name in lie})
    with FleetWriter(tmp_path / "fleet", plan) as writer:
        writer.save_partial(honest)
        assert writer.partial() is not None
        writer.save_partial(replace(honest, **{"total": total, **lie}))
        assert writer.partial() is None
        assert run(writer, local(plan)).rounds[0].tally is not None


def test_a_cache_of_replies_lets_changes_through(large: Path, tmp_path: Path) -> None:
    plan = plan_of(large, method="git_rebasin", robots=4, streaming={}, merge_every=None)
    cached = [CachingTransport(local(plan), plan.assignments, tmp_path) for _ in range(2)]
    results = [stream(plan, transport)[0] for transport in (*cached, local(plan))]
    assert same(results[0].weights, results[2].weights)
    assert same(results[1].weights, results[2].weights)


def test_no_row_of_data_is_in_changes(large: Path) -> None:
    plan = plan_of(
        large, method="fleet_merge", options={"steps": 2}, streaming={}, merge_every=None
    )
    recording = RecordingTransport(local(plan))
    stream(plan, recording)
    exchanged = b"".join(sent + answered(answer) for _, sent, answer in recording.exchanges)
    for assignment in plan.assignments:
        samples = Samples(assignment.data).subset(assignment.episodes)
        rows = samples.gather(np.arange(len(samples)))
        for array in (rows["action"], *rows["observation"].values()):
            for row in array.reshape(len(array), -1):
                assert row[:2].tobytes() not in exchanged
