"""A server for the tests of this folder."""

from collections.abc import Iterator

import pytest
from support.served_policies import Remembering, serving

from fleet_tools.policies.policy_server import PolicyServer


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[PolicyServer]:
    pytest.importorskip("websockets")
    with serving(Remembering) as server:
        yield server
