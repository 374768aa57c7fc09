"""Tests that the file of every family shares: checks of members that ship, and of random ones."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_tools.assets.families import Family, find_family
from fleet_tools.assets.model_description import ModelDescription

seeds = st.integers(0, 2**32 - 1)


def shipped_models(family: str) -> list[ModelDescription]:
    """Returns the members of a family that ship with the package."""
    found = find_family(family)
    return [found.member(name) for name in found.catalogue]


def random_model(family: Family, seed: int) -> ModelDescription:
    """Returns a random member of a family."""
    return family.build(family.sample(np.random.default_rng(seed)), f"random_{seed}")


def family_laws(
    family: str, check: Callable[[ModelDescription], None], examples: int = 20
) -> tuple[Callable[[ModelDescription], None], Callable[[], None]]:
    """Returns `test_shipped` and `test_random`, which check members of a family."""

    @pytest.mark.parametrize("model", shipped_models(family), ids=lambda model: model.name)
    def test_shipped(model: ModelDescription) -> None:
        check(model)

    @settings(max_examples=examples, deadline=None)
    @given(seeds)
    def test_random(seed: int) -> None:
        check(random_model(find_family(family), seed))

    return test_shipped, test_random
