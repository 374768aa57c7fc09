"""What an episode's `info` says of what is to be imitated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import EXPERT_ACTIONS, LEARNER_STEPS, NOISE_STEPS, Labels

ACTION = [0.5, -1.0, 1.0, 0.0, 0.25, -0.125]
STEPS = st.lists(st.integers(0, 19), unique=True, max_size=20)


@given(noise=STEPS, learner=STEPS)
def test_labels_survive_or_are_refused(noise, learner):
    info = {
        NOISE_STEPS: noise,
        LEARNER_STEPS: learner,
        EXPERT_ACTIONS: [ACTION] * len(learner),
        "plans": 1,
    }
    if set(noise) & set(learner):
        with pytest.raises(DatasetError, match="twice"):
            Labels.of(info, 20)
        return
    labels = Labels.of(info, 20)
    assert list(labels.noise_steps) == noise
    assert list(labels.learner_steps) == learner
    if noise or learner:
        with pytest.raises(DatasetError, match="names step"):
            Labels.of(info, max(noise + learner))


@pytest.mark.parametrize(
    "info",
    [
        {NOISE_STEPS: [-1]},
        {NOISE_STEPS: [1, 1]},
        {NOISE_STEPS: "12"},
        {LEARNER_STEPS: [1]},
        {LEARNER_STEPS: [1], EXPERT_ACTIONS: [[0.0] * 5]},
        {LEARNER_STEPS: [1], EXPERT_ACTIONS: [[2.0] + [0.0] * 5]},
        {LEARNER_STEPS: [1], EXPERT_ACTIONS: [[float("nan")] * 6]},
    ],
)
def test_an_info_that_lies_is_refused(info):
    with pytest.raises(DatasetError):
        Labels.of(info, 20)


@given(kinds=st.lists(st.sampled_from(["plain", "noise", "learner"]), max_size=12), data=st.data())
def test_mask_actions_and_pieces_agree_with_each_other(kinds, data):
    steps = len(kinds)
    noise, learner = (
        [k for k in range(steps) if kinds[k] == name] for name in ("noise", "learner")
    )
    order = data.draw(st.permutations(learner))
    told = {step: [step / 20] * 6 for step in order}
    info = {NOISE_STEPS: noise, LEARNER_STEPS: order, EXPERT_ACTIONS: list(told.values())}
    labels, executed = Labels.of(info, steps), np.full((steps, 6), -1, np.float32)
    imitate, actions = labels.imitate(steps), labels.actions(executed)
    assert np.flatnonzero(~imitate).tolist() == noise
    assert [actions[k].tolist() for k in range(steps)] == [
        np.array(told.get(k, [-1] * 6), np.float32).tolist() for k in range(steps)
    ]
    assert (executed == -1).all()  # it was copied
    first = data.draw(st.integers(0, steps))
    end = data.draw(st.integers(first, steps))
    np.testing.assert_array_equal(labels.actions(executed[first:end], first), actions[first:end])
    for of_chunks in (False, True):
        pieces = labels.pieces(steps, of_chunks=of_chunks)
        covered = [step for piece in pieces for step in range(*piece)]
        assert covered == np.flatnonzero(imitate).tolist()  # each once, in order
        for begin, stop in pieces:
            at_the_end = stop == steps or kinds[stop] == "noise"
            assert at_the_end or (of_chunks and kinds[stop - 1] == "learner")
            assert not of_chunks or "learner" not in kinds[begin : stop - 1]


def test_actions_of_another_robot_are_refused_and_use_changes_no_labels():
    labels, again = (Labels.of({LEARNER_STEPS: [1], EXPERT_ACTIONS: [ACTION]}, 3) for _ in range(2))
    labels.actions(np.zeros((3, 6), np.float32))
    assert labels == again and labels.to_json() == again.to_json()
    assert hash(labels) == hash(again)
    with pytest.raises(DatasetError, match="6 entries, but the episode has actions with 4"):
        labels.actions(np.zeros((3, 4), np.float32))
    assert labels.actions(np.zeros((1, 4), np.float32)).shape == (1, 4)  # no learner acted there
