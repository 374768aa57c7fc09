"""What of a law is tried in the quick tests, and what in the slow ones."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

QUICK_EXAMPLES = 20
"""How many examples the quick tests try of most properties."""


def crossed(one: Sequence[Any], other: Sequence[Any], every: int) -> list[Any]:
    """Returns all pairs of two lists of parameters, of which a share is quick.

    Args:
        one: The values of the first parameter.
        other: The values of the second one.
        every: Of so many pairs one is quick. Each value is in a quick pair if both lists are at
            least as long.
    """
    return [
        pytest.param(a, b, marks=[pytest.mark.slow] if (i + j) % every else [])
        for i, a in enumerate(one)
        for j, b in enumerate(other)
    ]


def quick_first(values: Sequence[Any], count: int) -> list[Any]:
    """Returns the values of a parameter, each once, of which the first ones are quick."""
    return [
        pytest.param(each, marks=[] if index < count else [pytest.mark.slow])
        for index, each in enumerate(dict.fromkeys(values))
    ]


def few(count: int) -> settings:
    """Returns settings of a property whose examples take long.

    Args:
        count: How many examples the quick tests try. Other profiles try as many times more as
            they try of most properties.
    """
    return settings(max_examples=count * settings().max_examples // QUICK_EXAMPLES)
