"""Actions: their checks, their clipping and their effect."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fleet_tools.envs.array_spec import check_action
from fleet_tools.errors import InvalidActionError

STILL = np.zeros(6, np.float32)


class Unwilling:
    """What can neither be made an array nor be shown."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise KeyError("not an array")

    def __repr__(self) -> str:
        raise KeyError("no text")


@pytest.mark.parametrize(
    "action",
    [
        np.full(6, np.nan),
        np.array([0, 0, np.inf, 0, 0, 0]),
        np.zeros(5),
        np.zeros((1, 6)),
        np.zeros(6, bool),
        np.zeros(6, complex),
        np.array(["0"] * 6),
        np.array([None] * 6),
        [[0.0, 1.0], [0.0]],
        "forward",
        None,
        0.0,
        "x" * 10**6,
        [10**5000] * 6,
        Unwilling(),
        np.ma.masked_array(np.ones(6), [True] + [False] * 5),
        torch.zeros(6, requires_grad=True),
        torch.zeros(6, dtype=torch.bfloat16),
        torch.zeros(6, device="meta"),
        [torch.zeros((), requires_grad=True)] * 6,
    ],
    ids=lambda action: type(action).__name__,
)
def test_an_invalid_action_is_refused_and_nothing_changes(hammer, action):
    hammer.reset(seed=0)
    hammer.step(STILL)
    before = hammer.state_digest()
    with pytest.raises(InvalidActionError, match=r"(?s)Expected an action .*given: ") as error:
        hammer.step(action)
    assert len(str(error.value)) < 1000
    assert hammer.state_digest() == before
    assert hammer.step(STILL)[4]["outcome"] == "running"


@given(arrays.arrays(np.float32, 6, elements=st.floats(-2, 2, width=32)))
def test_executed_actions_are_the_nearest_multiples_and_execute_as_themselves(action):
    executed, clipped = check_action(action)
    assert (executed * 4096 == np.round(executed * 4096)).all()
    assert np.abs(executed - np.clip(action, -1, 1)).max() <= 1 / 8192
    assert clipped == bool((np.abs(action) > 1).any())
    again, clipped_again = check_action(executed)
    assert again.tobytes() == executed.tobytes() and not clipped_again


def test_actions_out_of_range_are_clipped_and_info_reports_it(hammer):
    digests = []
    for action, clipped in [([9.0, -3, 0.5, 0, 0, 0], True), ([1.0, -1, 0.5, 0, 0, 0], False)]:
        hammer.reset(seed=0)
        info = hammer.step(np.array(action, np.float32))[4]
        assert info["action_clipped"] is clipped
        digests.append(hammer.state_digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("action", [np.random.default_rng(0).uniform(-1, 1, 6), [0, 1, 0, 1, 1, 0]])
def test_an_action_is_the_same_numbers_in_whatever_holds_them(hammer, action):
    exact, rounded = np.array(action), np.array(action, np.float32)
    same = [action, exact, rounded, list(exact), tuple(rounded.tolist()), torch.tensor(rounded)]
    if exact.dtype.kind == "i":
        same += [exact.astype(kind) for kind in ("i1", "u1", ">i4", "u8", "f2", "g")]
        same += [torch.tensor(exact), exact * 2**40]  # the last one is clipped
    digests = set()
    for each in same:
        hammer.reset(seed=0)
        assert hammer.step(each)[4]["action"].dtype == np.float32
        digests.add(hammer.state_digest())
    assert len(digests) == 1
