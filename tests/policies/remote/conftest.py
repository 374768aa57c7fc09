"""A server for the tests of this folder."""

from collections.abc import Iterator

import pytest
from support.served_policies import Remembering, serving

from fleet_tools.policies.remote.server import PolicyServer


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[PolicyServer]:
    for library in ("msgpack", "websockets"):
        pytest.importorskip(library)
    with serving(Remembering) as server:
        yield server
