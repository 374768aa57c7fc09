"""The host's seed: what follows from it, who knows it, and when it ends."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.submitted import SMALL, write_entry

from fleet_tools.config.tasks import load_task
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.protocol_file import load_levels, protocol_names
from fleet_tools.leaderboard.host import (
    HOST,
    LEAST_SCENES,
    RESERVED,
    SCENES,
    Verification,
    fresh_protocol,
    key,
    open_round,
    publish,
    read_round,
)
from fleet_tools.sim.splits import EVALUATION

LEVELS = [each for name in protocol_names() for each in load_levels(name).values()]
NOMINAL = LEVELS[0]


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_fresh_scenes_follow_from_the_seed_alone_and_are_those_of_no_level(one, other):
    fresh = fresh_protocol(NOMINAL, one)
    assert fresh == fresh_protocol(NOMINAL, one)
    assert (fresh == fresh_protocol(NOMINAL, other)) == (one == other)
    ranges = [scenes.seeds() for scenes in fresh.splits.values()]
    seeds = {seed for each in ranges for seed in each}
    assert len(seeds) == SCENES * len(fresh.splits)
    assert all(seed in RESERVED and seed in EVALUATION for seed in seeds)
    for level in LEVELS:
        for scenes in level.splits.values():
            assert seeds.isdisjoint(scenes.seeds())


def test_fresh_scenes_have_the_rules_of_the_first_level_and_are_enough():
    fresh = fresh_protocol(NOMINAL, "1")
    assert fresh.scene_rules() == NOMINAL.scene_rules() and fresh.tasks == NOMINAL.tasks
    assert [*fresh.splits] == [*NOMINAL.splits]
    for task in fresh.tasks:
        assert len(fresh.trials(task)) >= LEAST_SCENES
    task = load_task(fresh.tasks[0])
    of_level = {NOMINAL.scene(task, t).digest() for t in NOMINAL.trials(task.name, scenes=2)}
    drawn = {fresh.scene(task, t).digest() for t in fresh.trials(task.name, scenes=2)}
    assert of_level.isdisjoint(drawn)


def test_a_round_is_drawn_once_and_ends_when_its_seed_is_public(tmp_path):
    first = open_round(tmp_path, SMALL, [])
    assert first == open_round(tmp_path, SMALL, []) == read_round(tmp_path)
    assert first.seed not in first.commitment and len(first.seed) == 32
    assert (tmp_path / HOST / ".gitignore").read_text() == "*\n"
    first = first.replaced(tmp_path, received={"it 00": "then"})
    with pytest.raises(ResultError, match="--new-round"):
        open_round(tmp_path, SMALL, [], "another seed")
    published = publish(tmp_path)
    assert published.published and not (tmp_path / HOST / ".gitignore").exists()
    assert publish(tmp_path) == published
    with pytest.raises(
        ResultError, match=r"was published on .* Start another round with --new-round"
    ):
        open_round(tmp_path, SMALL, [])
    second = open_round(tmp_path, SMALL, [], new=True)
    assert second.seed != first.seed and second.protocol != first.protocol
    assert second.published is None and second.received == first.received
    (kept,) = tmp_path.glob("host_*")
    assert json.loads((kept / "round.json").read_text())["seed"] == first.seed


def test_there_is_nothing_to_publish_before_the_first_round(tmp_path):
    with pytest.raises(ResultError, match="no round yet"):
        publish(tmp_path)


RECORD = Verification(
    name="it",
    submission="0",
    verified="now",
    commitment="0",
    evaluations={"a": "b"},
    checked={"results/nominal": ("c", "")},
    packages={},
).sealed("the seed")


@given(
    st.sampled_from(
        [
            {"submission": "1"},
            {"name": "that"},
            {"evaluations": {"a": "c"}},
            {"evaluations": {}},
            {"checked": {}},
            {"seal": "0" * 64},
            {"verified": "later"},
        ]
    ),
    st.text(max_size=10),
)
def test_only_who_knows_the_seed_can_write_a_record(changes, guess):
    assert RECORD.sealed("the seed") == RECORD
    forged = RECORD.model_copy(update=changes)
    assert forged.sealed("the seed") != forged
    assert forged.sealed(guess).sealed("the seed") != forged.sealed(guess)


def test_a_round_receives_the_entries_before_it_draws_and_keeps_their_order(tmp_path):
    one, other = (write_entry(tmp_path, name, content=b"same") for name in ("one", "other"))
    (mine,), (its,) = one.file.policies, other.file.policies
    first = open_round(tmp_path, SMALL, [other])
    assert first.has(other, its) and not first.has(one, mine)
    later = open_round(tmp_path, SMALL, [one, other])
    assert later.seed == first.seed and later.has(other, its) and not later.has(one, mine)
    second = open_round(tmp_path, SMALL, [one, other], new=True)
    assert second.has(one, mine) and second.received == later.received
    assert second.received[key(other, its)] < second.received[key(one, mine)]
