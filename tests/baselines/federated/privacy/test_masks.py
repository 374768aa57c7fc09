"""Masked sums: exact with what is revealed, and noise without any part of it."""

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest

pytest.importorskip("torch", reason="merging needs it")
pytest.importorskip("cryptography")

from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fleet_tools.baselines.federated.privacy.bit_packing import pack, unpack
from fleet_tools.baselines.federated.privacy.clipping import clip
from fleet_tools.baselines.federated.privacy.masks import (
    Reveal,
    mask,
    modulus_bits,
    neighbours,
    public_key,
    reveal,
    smallest_part,
    unmask,
)
from fleet_tools.baselines.federated.privacy.modular import reduce
from fleet_tools.baselines.federated.privacy.quantization import dequantize, quantize, top_level
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.errors import ConfigError

ROUND = 7


class MaskedFleet:
    """Robots with secrets, the graph of a round, and their messages."""

    def __init__(self, robots: Collection[int], degree: int, seed: int = 0) -> None:
        self.graph = neighbours(list(robots), degree, seed)
        generator = np.random.default_rng(seed)
        self.secrets = {robot: generator.bytes(32) for robot in self.graph}

    @cached_property
    def keys(self) -> dict[int, bytes]:
        return {robot: public_key(secret) for robot, secret in self.secrets.items()}

    def arguments(self, robot: int, round_number: int) -> dict:
        keys = {other: self.keys[other] for other in self.graph[robot]}
        return {
            "robot": robot,
            "secret": self.secrets[robot],
            "public_keys": keys,
            "round_number": round_number,
        }

    def answer(
        self, robot: int, integers: np.ndarray, bits: int, round_number: int = ROUND
    ) -> np.ndarray:
        return mask(integers, bits, **self.arguments(robot, round_number))

    def reveal(self, robot: int, lost: Collection[int], round_number: int = ROUND) -> Reveal:
        lost = set(self.graph[robot]) & set(lost)
        return reveal(lost, **self.arguments(robot, round_number))


def uniform(values: np.ndarray, bits: int) -> bool:
    """Returns whether residues look uniform: their highest and their lowest bits, to 1 in 10^6."""
    bins = min(bits, 6)
    parts = (values >> np.uint64(bits - bins), values & np.uint64(2**bins - 1))
    counts = [np.bincount(part.astype(np.int64), minlength=2**bins) for part in parts]
    return all(chisquare(each).pvalue > 1e-6 for each in counts)


# --- The sum -------------------------------------------------------------------------------


@st.composite
def rounds(draw: st.DrawFn) -> tuple[MaskedFleet, set[int], int, dict[int, np.ndarray]]:
    """A fleet, its lost robots, the bits of each integer, and integers by robot."""
    robots = draw(st.sets(st.integers(0, 10_000), min_size=2, max_size=9))
    fleet = MaskedFleet(robots, draw(st.integers(1, 9)), draw(st.integers(0, 1000)))
    lost = draw(st.sets(st.sampled_from(sorted(robots)), max_size=len(robots) - 1))
    bits = draw(st.sampled_from([2, 4, 8, 16, 40]))
    shape = draw(st.sampled_from([(0,), (1,), (5,), (2, 3)]))
    level = 2 ** (bits - 1) - 1
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    draw_extremes = draw(st.booleans())
    integers = {
        robot: np.full(shape, -level)
        if draw_extremes
        else generator.integers(-level, level, shape, endpoint=True)
        for robot in robots
    }
    return fleet, lost, bits, integers


@settings(max_examples=60)
@given(case=rounds())
def test_the_masked_sum_is_the_plain_sum_whoever_is_lost(case):
    fleet, lost, bits, integers = case
    answered = set(integers) - lost
    bits = modulus_bits(bits, len(integers))
    answers = {robot: fleet.answer(robot, each, bits) for robot, each in integers.items()}
    assert all(each.dtype == np.uint64 and (each < 2**bits).all() for each in answers.values())
    total = np.asarray(np.sum([answers[robot] for robot in answered], axis=0, dtype=np.uint64))
    if any(set(fleet.graph[robot]) <= lost for robot in answered):
        with pytest.raises(MessageError, match="given up"):
            [fleet.reveal(robot, lost) for robot in answered]
        return
    reveals = [fleet.reveal(robot, lost) for robot in answered]
    plain = np.sum([integers[robot] for robot in answered], axis=0)
    found = unmask(total, bits, reveals)
    assert found.dtype == np.int64 and found.shape == plain.shape
    assert (found == plain).all()
    assert (unmask(reduce(total, bits), bits, reversed(reveals)) == plain).all()


def test_changes_go_through_clipping_quantization_masks_and_bytes():
    robots, bits, largest, count = 20, 4, 0.5, 1001
    fleet, lost = MaskedFleet(range(robots), 6), {3, 11}
    generator = np.random.default_rng(0)
    modulus = modulus_bits(bits, robots)
    total, expected = np.zeros(count, np.uint64), np.zeros(count)
    for robot in set(range(robots)) - lost:
        change = generator.normal(size=count).astype(np.float32)
        clipped, _ = clip({"w": change}, 4.0)
        expected += clipped["w"]
        integers = quantize(clipped["w"], largest, bits, generator)
        data = pack(fleet.answer(robot, integers, modulus), modulus)
        assert len(data) == -(-count * modulus // 8)
        total += unpack(data, modulus, count)
    reveals = [fleet.reveal(robot, lost) for robot in set(range(robots)) - lost]
    found = dequantize(unmask(total, modulus, reveals), largest, bits)
    error = (found - expected) / (largest / top_level(bits))  # in steps
    assert np.abs(error).max() < len(reveals)
    assert np.std(error) <= 0.5 * np.sqrt(len(reveals))


@given(bits=st.integers(1, 40), robots=st.integers(1, 2**20))
def test_the_modulus_holds_every_sum(bits, robots):
    needed = modulus_bits(bits, robots)
    assert 2 ** (needed - bits - 1) < robots <= 2 ** (needed - bits)
    largest = robots * (2 ** (bits - 1) - 1)
    assert largest < 2 ** (needed - 1)


@pytest.mark.parametrize(("bits", "robots"), [(8, 0), (64, 2), (0, 1)])
def test_sums_without_a_modulus_are_refused(bits, robots):
    with pytest.raises(ConfigError):
        modulus_bits(bits, robots)


# --- What an answer reveals ----------------------------------------------------------------

COUNT = 20_000


@pytest.mark.parametrize("bits", [5, 8, 13, 24, 33])
def test_one_answer_is_uniform_and_new_in_every_round(bits):
    fleet = MaskedFleet(range(6), 4)
    zeros = np.zeros(COUNT, np.int64)
    first, second = (fleet.answer(2, zeros, bits, round_number) for round_number in (1, 2))
    assert uniform(first, bits) and uniform(second, bits)
    assert uniform(reduce(first - second, bits), bits)
    assert np.sum(first == second) <= 8 + 2 * COUNT * 2.0**-bits  # as by chance
    others = [fleet.answer(robot, zeros, bits, 1) for robot in range(6) if robot != 2]
    assert all(uniform(reduce(first - each, bits), bits) for each in others)


@pytest.mark.parametrize("missing", range(6))
def test_without_what_any_one_robot_reveals_the_sum_is_noise(missing):
    fleet, lost, bits = MaskedFleet(range(8), 4), {6, 7}, 11
    answered = [robot for robot in range(8) if robot not in lost]
    integers = np.ones(COUNT, np.int64)
    total = np.sum([fleet.answer(robot, integers, bits) for robot in answered], axis=0)
    reveals = {robot: fleet.reveal(robot, lost) for robot in answered}
    assert (unmask(total, bits, reveals.values()) == len(answered)).all()
    kept = [each for robot, each in reveals.items() if robot != missing]
    assert uniform(reduce(unmask(total, bits, kept), bits), bits)
    for other in reveals[missing].pairs:  # nor without any one seed
        pairs = {lost: seed for lost, seed in reveals[missing].pairs.items() if lost != other}
        partial = [*kept, replace(reveals[missing], pairs=pairs)]
        assert uniform(reduce(unmask(total, bits, partial), bits), bits)


def test_an_answer_that_comes_too_late_is_hidden_by_its_own_mask():
    fleet, late, bits = MaskedFleet(range(6), 2), 4, 9
    zeros = np.zeros(COUNT, np.int64)
    answer = fleet.answer(late, zeros, bits)
    pairs = {robot: fleet.reveal(robot, {late}).pairs[late] for robot in fleet.graph[late]}
    known = unmask(answer, bits, [Reveal(late, bytes(32), pairs)])  # all but its own seed
    assert uniform(reduce(known, bits), bits)
    # With its own seed, too, which it would reveal only if it were told that it is in the sum, the
    # answer is seen.
    own = fleet.reveal(late, ()).own
    assert not unmask(answer, bits, [Reveal(late, own, pairs)]).any()


def test_an_answer_in_the_sum_is_hidden_by_each_neighbour_that_is_not_lost():
    fleet, bits = MaskedFleet(range(6), 4), 9
    zeros = np.zeros(COUNT, np.int64)
    for kept in fleet.graph[1]:
        known = fleet.reveal(1, set(fleet.graph[1]) - {kept})
        assert uniform(reduce(unmask(fleet.answer(1, zeros, bits), bits, [known]), bits), bits)


def test_the_same_message_again_gives_the_same_answer():
    fleet, integers = MaskedFleet(range(4), 2), np.arange(10)
    assert (fleet.answer(1, integers, 12) == fleet.answer(1, integers, 12)).all()
    assert fleet.reveal(1, ()) == fleet.reveal(1, ())


def test_another_key_of_a_neighbour_gives_another_mask():
    fleet, zeros = MaskedFleet(range(4), 3), np.zeros(1000, np.int64)
    arguments = fleet.arguments(0, ROUND)
    keys = arguments["public_keys"] | {2: public_key(bytes(32))}
    other = mask(zeros, 40, **arguments | {"public_keys": keys})
    assert not (fleet.answer(0, zeros, 40) == other).any()


# --- The graph -----------------------------------------------------------------------------


@given(
    robots=st.sets(st.integers(0, 10_000), max_size=40),
    degree=st.integers(1, 50),
    seed=st.integers(0, 1000),
)
def test_neighbours_are_mutual_and_connected_and_as_many_as_asked(robots, degree, seed):
    graph = neighbours(list(robots), degree, seed)
    expected = min(degree + degree % 2, max(len(robots) - 1, 0))
    assert set(graph) == robots
    for robot, its in graph.items():
        assert robot not in its and len(set(its)) == len(its) == expected
        assert list(its) == sorted(its)
        assert all(robot in graph[other] for other in its)
    assert smallest_part(graph, robots) == len(robots)
    assert neighbours(sorted(robots, reverse=True), degree, seed) == graph


def test_another_seed_gives_other_neighbours_and_all_pairs_occur():
    graphs = [neighbours(range(10), 2, seed) for seed in range(60)]
    pairs = {(robot, other) for graph in graphs for robot in graph for other in graph[robot]}
    assert len(pairs) == 90 and any(graph != graphs[0] for graph in graphs)


@given(
    edges=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7))),
    answered=st.sets(st.integers(0, 7)),
)
def test_the_smallest_part_is_that_of_a_search_by_matrix_powers(edges, answered):
    graph = {
        robot: {b for a, b in edges | {(b, a) for a, b in edges} if a == robot}
        for robot in range(8)
    }
    ordered = sorted(answered)
    reach = np.array([[b in graph[a] or a == b for b in ordered] for a in ordered], int)
    reach = np.linalg.matrix_power(reach.reshape(len(ordered), len(ordered)), 8) > 0
    expected = min(reach.sum(axis=1), default=0)
    assert smallest_part(graph, answered) == expected


@pytest.mark.parametrize(("robots", "degree"), [([1, 2, 2], 2), ([1, 2], 0), ([1, 2], -1)])
def test_a_graph_that_is_none_is_refused(robots, degree):
    with pytest.raises(ConfigError):
        neighbours(robots, degree, 0)


# --- Bad messages --------------------------------------------------------------------------


def test_a_robot_without_neighbours_is_not_masked():
    with pytest.raises(MessageError, match="no neighbours"):
        mask(np.zeros(3, np.int64), 8, robot=1, secret=bytes(32), public_keys={}, round_number=0)


def test_a_robot_that_is_named_its_own_neighbour_refuses():
    arguments = MaskedFleet(range(4), 2).arguments(1, ROUND)
    keys = arguments["public_keys"] | {1: public_key(arguments["secret"])}
    with pytest.raises(MessageError, match="own neighbour"):
        mask(np.zeros(3, np.int64), 8, **arguments | {"public_keys": keys})


def test_a_robot_does_not_reveal_seeds_with_strangers_or_with_all():
    fleet = MaskedFleet(range(6), 2)
    arguments = fleet.arguments(0, ROUND)
    (stranger, *_) = set(range(1, 6)) - set(fleet.graph[0])
    with pytest.raises(MessageError, match=f"{stranger}.*no neighbours"):
        reveal([stranger], **arguments)
    with pytest.raises(MessageError, match="All 2 neighbours"):
        reveal(fleet.graph[0], **arguments)


@pytest.mark.parametrize("bits", [0, 65])
def test_a_modulus_that_is_none_is_refused(bits):
    fleet = MaskedFleet(range(3), 2)
    with pytest.raises(ConfigError):
        fleet.answer(0, np.zeros(3, np.int64), bits)
    with pytest.raises(ConfigError):
        unmask(np.zeros(3, np.uint64), bits, [])


def test_numbers_that_are_no_integers_are_not_masked():
    with pytest.raises(MessageError, match="not float64"):
        MaskedFleet(range(3), 2).answer(0, np.array([np.nan]), 8)


def test_reveals_that_contradict_each_other_are_refused():
    fleet, total = MaskedFleet(range(4), 3), np.zeros(3, np.uint64)
    zero = fleet.reveal(0, {1})
    for others in ([fleet.reveal(0, ())], [fleet.reveal(1, ())]):  # twice; lost, and yet in the sum
        with pytest.raises(MessageError, match="expected: one of each robot"):
            unmask(total, 8, [zero, *others])
    with pytest.raises(MessageError, match="expected: one of each robot"):
        unmask(total, 8, [replace(zero, pairs={0: bytes(32)})])
    for bad in (replace(zero, own=bytes(31)), replace(zero, pairs={1: bytes(33)})):
        with pytest.raises(MessageError, match="expected: 32 bytes"):
            unmask(total, 8, [bad])
