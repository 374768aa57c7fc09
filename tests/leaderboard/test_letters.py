"""Letters of methods that cannot be told apart: their laws, on all small and on random graphs."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.submitted import SMALL, evaluation_with, submission

from fleet_tools.envs.outcomes import SIMULATION_ERROR, SUCCESS, TIME_LIMIT
from fleet_tools.evaluation.protocol import Scenes
from fleet_tools.leaderboard.board import make_rankings
from fleet_tools.leaderboard.letters import compact_letters
from fleet_tools.utils.statistics import paired_p_value, told_apart

MANY = SMALL.model_copy(
    update={"splits": {"train": Scenes(scenes=20, first_seed=SMALL.splits["train"].first_seed)}}
)
GRAPHS = st.integers(0, 9).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.sets(st.sampled_from([*combinations(range(n), 2)])) if n > 1 else st.just(set()),
    )
)


def sharing(letters: list[set[str]]) -> set[tuple[int, int]]:
    pairs = combinations(range(len(letters)), 2)
    return {(i, j) for i, j in pairs if letters[i] & letters[j]}


@given(GRAPHS)
def test_two_share_a_letter_if_and_only_if_they_are_alike(graph):
    count, alike = graph
    letters = [{*each} for each in compact_letters(count, alike)]
    assert len(letters) == count
    assert sharing(letters) == alike
    assert all(letters)
    # No letter can be left out, and none could be given to one more.
    for letter in sorted(set(chain.from_iterable(letters))):
        fewer = [each - {letter} for each in letters]
        assert sharing(fewer) != alike or not all(fewer)
        for item in range(count):
            if letter not in letters[item]:
                more = [each | {letter} if k == item else each for k, each in enumerate(letters)]
                assert sharing(more) != alike


@given(GRAPHS)
def test_letters_are_in_the_order_of_the_items(graph):
    first = dict.fromkeys(chain.from_iterable(compact_letters(*graph)))
    assert [*first] == sorted(first)


def test_known_cases():
    assert compact_letters(0, set()) == []
    assert compact_letters(3, set()) == ["a", "b", "c"]
    assert compact_letters(3, {(0, 1), (0, 2), (1, 2)}) == ["a", "a", "a"]
    assert compact_letters(4, {(0, 1), (1, 2), (2, 3)}) == ["a", "ab", "bc", "c"]
    many = compact_letters(28, set())
    assert many[25:] == ["z", "a1", "b1"]


def rate(successes: int, name: str, failed: int = 0, seed: int | None = None):
    def outcome(trial):
        if trial.index < failed:
            return SIMULATION_ERROR
        return SUCCESS if trial.index < successes else TIME_LIMIT

    return submission(
        evaluation_with(outcome, name=name, protocol=MANY, training_seed=seed),
        folder=f"{name}/{seed}",
    )


def test_methods_are_told_apart_by_holms_procedure_on_all_pairs():
    successes = {"best": 20, "good": 18, "fair": 14, "poor": 4}
    (ranking,) = make_rankings([rate(k, name) for name, k in successes.items()], [MANY])
    pairs = [*combinations(successes, 2)]
    p_values = [
        paired_p_value([(successes[one] - successes[other], 0, 20)] * len(MANY.tasks))
        for one, other in pairs
    ]
    told = told_apart(p_values)
    assert True in told and False in told
    for (one, other), apart in zip(pairs, told, strict=True):
        assert bool({*ranking.letters[one]} & {*ranking.letters[other]}) != apart
    assert ranking.letters["best"].startswith("a")


def test_training_runs_count_by_their_mean_and_scenes_without_a_trial_not_at_all():
    runs = [rate(k, "trained", seed=k) for k in (10, 11, 12)]
    (ranking,) = make_rankings([*runs, rate(11, "once"), rate(20, "solved", failed=2)], [MANY])
    assert ranking.letters["trained"] == ranking.letters["once"] == "b"
    assert ranking.letters["solved"] == "a"


@pytest.mark.parametrize("same_outcome", [4, None])
def test_methods_without_rank_or_total_have_no_letters(same_outcome):
    partial = evaluation_with(lambda trial: SUCCESS, name="partial", tasks=["knife"])
    whole = evaluation_with(lambda trial: SUCCESS, name="whole")
    (ranking,) = make_rankings(
        [submission(each, same_outcome=same_outcome) for each in (partial, whole)], [SMALL]
    )
    assert ranking.letters == ({"whole": "a"} if same_outcome else {})
