"""Servers that are attacked, in processes of their own: afterwards they are what they were."""

import os

import pytest
from support.processes import ROOT, run_python

pytest.importorskip("websockets")

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc"
)

ATTACK = """
import json, sys
import hostile_clients

kind, attack, clients, seconds = sys.argv[1:]
found = hostile_clients.attacked(kind, attack, int(clients), float(seconds))
print(json.dumps({"found": str(found), "well": found.is_well, "dropped": found.dropped}))
"""
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])}

QUICK = [
    ("policy", "reset before accept"),
    pytest.param("policy", "silent, few descriptors", marks=pytest.mark.slow),
    pytest.param("Blender", "silent, few descriptors", marks=pytest.mark.slow),
]
ATTACKS = (
    *("reset before accept", "reset in the handshake", "silent", "a byte a second"),
    *("half messages", "silent, few descriptors", "silent, few threads"),
)


@pytest.mark.parametrize(("kind", "attack"), QUICK)
def test_a_server_outlives_an_attack(kind, attack):
    found = run_python(ATTACK, kind, attack, "60", "0.5", **PATHS)
    assert found["well"] and found["dropped"] >= 20, found


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("kind", ["policy", "Blender"])
def test_a_server_outlives_a_thousand_clients(kind, attack):
    found = run_python(ATTACK, kind, attack, "1000", "15", **PATHS)
    assert found["well"] and found["dropped"] >= 500, found
