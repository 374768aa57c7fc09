"""Windows: every step is in as many of them as length and stride say."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.dataset.windows import Windows


@given(st.lists(st.integers(0, 20)), st.integers(1, 9), st.integers(1, 9))
def test_windows_hold_every_step_as_often_as_they_should(steps, length, stride):
    padded = Windows(np.array(steps, int), length, stride, True)
    complete = Windows(np.array(steps, int), length, stride, False)
    counts = [np.zeros(T, int) for T in steps]
    for episode, start, size in zip(*padded.locate(range(len(padded))), strict=True):
        assert start % stride == 0 and 1 <= size <= length
        counts[episode][start : start + size] += 1
    if stride == length:
        assert all((count == 1).all() for count in counts)  # no step is lost or repeated
    if stride == 1:
        for T, count in zip(steps, counts, strict=True):
            assert (count == np.minimum(np.arange(T) + 1, length)).all()
    assert located(complete) == {window for window in located(padded) if window[2] == length}


def located(windows: Windows) -> set[tuple[int, ...]]:
    """Returns episode, start and size of every window."""
    return set(zip(*(row.tolist() for row in windows.locate(range(len(windows)))), strict=True))
