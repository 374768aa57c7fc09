"""Letters of methods that cannot be told apart: their laws, on all small and on random graphs."""

from itertools import chain, combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.leaderboard.letters import compact_letters, method_letters
from fleet_tools.utils.statistics import paired_p_value, told_apart

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


def tables(successes: int, failed: int = 0, runs: int = 1) -> list[np.ndarray]:
    """Returns outcomes in two strata of 20 scenes, of which the first ones have no trial."""
    row = [np.nan] * failed + [1.0] * (successes - failed) + [0.0] * (20 - successes)
    return [np.array([row] * runs)] * 2


def test_methods_are_told_apart_by_holms_procedure_on_all_pairs():
    successes = [20, 18, 14, 4]
    letters = method_letters([tables(k) for k in successes])
    pairs = [*combinations(range(4), 2)]
    p_values = [
        paired_p_value([(successes[one] - successes[other], 0, 20)] * 2) for one, other in pairs
    ]
    told = told_apart(p_values)
    assert True in told and False in told
    for (one, other), apart in zip(pairs, told, strict=True):
        assert bool({*letters[one]} & {*letters[other]}) != apart
    assert letters[0].startswith("a") and method_letters([]) == []


def test_training_runs_count_by_their_mean_and_scenes_without_a_trial_not_at_all():
    trained = [np.concatenate([tables(k)[0] for k in (10, 11, 12)])] * 2
    solved, once, mean = method_letters([tables(20, failed=2), tables(11), trained])
    assert (solved, once, mean) == ("a", "b", "b")
