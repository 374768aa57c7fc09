"""What every family's own test file asks of the members that ship, and of random ones."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_tools.assets.model import Model

seeds = st.integers(0, 2**32 - 1)


def shipped(family: ModuleType) -> list[Model]:
    """The members of a family that ship."""
    return [family.build(params, name) for name, params in family.CATALOGUE.items()]


def family_laws(
    family: ModuleType, check: Callable[[Model], None], examples: int = 20
) -> tuple[Callable, Callable]:
    """Returns `test_shipped` and `test_random`, which check members of a family."""

    @pytest.mark.parametrize("model", shipped(family), ids=lambda model: model.name)
    def test_shipped(model):
        check(model)

    @settings(max_examples=examples, deadline=None)
    @given(seeds)
    def test_random(seed):
        check(family.build(family.sample(np.random.default_rng(seed)), "random"))

    return test_shipped, test_random
