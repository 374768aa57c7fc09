"""What a verification shows, on this machine and on others."""

from hypothesis import given
from hypothesis import strategies as st
from support.submitted import verification

from fleet_tools.leaderboard.records import EXCUSED_SHARE, Verification
from fleet_tools.storage.provenance import Machine

ELSEWHERE = {"instructions": ("avx avx2 fma", "sse4_2")}
NEWER = {"drake": ("1.0", "2.0")}
RERUNS = st.integers(1, 480).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


def of(episodes: int, same_outcome: int, **changes: object) -> Verification:
    return verification("theirs", same_outcome, episodes=episodes, **changes)


@given(RERUNS, st.sampled_from([{}, ELSEWHERE]), st.sampled_from([{}, NEWER]))
def test_only_a_result_whose_every_episode_ended_alike_is_verified(reruns, machine, versions):
    episodes, same_outcome = reruns
    found = of(episodes, same_outcome, other_machine=machine, other_versions=versions)
    assert (found.status == "verified") == (same_outcome == episodes)


@given(RERUNS)
def test_here_one_other_end_refutes(reruns):
    episodes, same_outcome = reruns
    found = of(episodes, same_outcome)
    assert found.status == ("verified" if same_outcome == episodes else "refuted")


@given(RERUNS)
def test_elsewhere_few_other_ends_leave_it_unverified_and_many_refute(reruns):
    episodes, same_outcome = reruns
    others = episodes - same_outcome
    found = of(episodes, same_outcome, other_machine=ELSEWHERE)
    if others > max(1, EXCUSED_SHARE * episodes):
        assert found.status == "refuted"
    elif others:
        assert found.status == "unverified"
    # A policy computes other actions there.
    by_policy = of(episodes, same_outcome, other_machine=ELSEWHERE, by="policy")
    assert by_policy.status == ("unverified" if others else "verified")


@given(RERUNS, st.integers(0, 480))
def test_bits_and_distances_decide_nothing(reruns, same):
    episodes, same_outcome = reruns
    plain = of(episodes, same_outcome)
    other = of(episodes, same_outcome, same=same, within=0, measured=1, largest_distance_m=0.2)
    assert plain.status == other.status


def test_machines_differ_only_in_what_both_know():
    here = Machine.here()
    assert here.differences(here) == {}
    older = here.model_copy(update={"instructions": "", "c_library": ""})
    assert older.differences(here) == here.differences(older) == {}
    other = here.model_copy(update={"processor": "another", "c_library": "glibc 2.0"})
    assert here.differences(other).keys() <= {"processor", "c_library"}
    assert other.differences(here.model_copy(update={"processor": "ours"})) != {}
