"""Fixtures of the families of objects with joints."""

import pytest
from support.bench import Bench

from fleet_tools.assets.model_description import ModelDescription


@pytest.fixture(scope="module", name="bench")
def _bench(model: ModelDescription) -> Bench:
    """A shipped model, as Drake reads it; `model` is a fixture of the family's own module."""
    return Bench(model)
