"""What all tests of merging share: examples, threads, seeds."""

import hypothesis
import pytest
import torch

# The same examples everywhere, so that a passing suite keeps passing; `.ci/nightly` tries more.
for _profile, _count in (("fleet_tools", 20), ("thorough", 100)):
    hypothesis.settings.register_profile(
        _profile, deadline=None, derandomize=True, max_examples=_count
    )
hypothesis.settings.load_profile("fleet_tools")


@pytest.fixture(autouse=True)
def _torch_seed() -> None:
    """Seeds PyTorch's global generator, so that no test depends on the tests before it."""
    torch.default_generator.manual_seed(0)  # `manual_seed` seeds all devices, slowly
