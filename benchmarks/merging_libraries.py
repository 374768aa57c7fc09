"""Other libraries, each in its own environment: two have one name, one has many requirements."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from fleet_merging.symmetry.table import State

NETWORK = """
import sys, time, json, torch
from torch import nn
torch.set_num_threads(1)
def network(state):
    shapes = [tensor.shape for name, tensor in state.items() if name.endswith("weight")]
    modules = [module for outs, ins in shapes for module in (nn.Linear(ins, outs), nn.ReLU())]
    model = nn.Sequential(*modules[:-1])
    model.load_state_dict(state)
    return model
states = torch.load(sys.argv[1])
"""
"""Start of all programs."""

REBASIN = """
from rebasin import PermutationCoordinateDescent
one, other = states
seconds = []
for _ in range(3):
    reference, model = network(one), network(other)
    started = time.process_time()
    inputs = torch.randn(1, one["0.weight"].shape[1])
    PermutationCoordinateDescent(reference, model, inputs).rebasin()
    seconds.append(time.process_time() - started)
permuted = model.state_dict()
objective = sum(float((one[name] * permuted[name]).sum()) for name in one)
print(json.dumps({"seconds": min(seconds), "objective": objective}))
"""

SINKHORN_REBASIN = """
from rebasin import RebasinNet
from rebasin.loss import DistL2Loss
one, other = states
net = RebasinNet(network(other), input_shape=(1, one["0.weight"].shape[1])).train()
loss, optimizer = DistL2Loss(network(one)), torch.optim.AdamW(net.p.parameters(), lr=0.1)
def step():
    distance = loss(net())
    optimizer.zero_grad()
    distance.backward()
    optimizer.step()
step()
seconds = []
for _ in range(10):
    started = time.process_time()
    step()
    seconds.append(time.process_time() - started)
print(json.dumps({"seconds": min(seconds)}))
"""

MERGEKIT = """
from mergekit.merge_methods import merge_state_dicts
base, *models = states
share = 1 / len(models)
calls = {
    "linear": (models, None, {"weight": share}),
    "task_arithmetic": (states, 0, {"weight": share}),
    "ties": (states, 0, {"weight": share, "density": 0.2}),
    "dare_linear": (states, 0, {"weight": share, "density": 0.1}),
}
found = {}
for name, (given, first, parameters) in calls.items():
    seconds = []
    for _ in range(3):
        started = time.process_time()
        merged = merge_state_dicts(list(given), name, parameters=parameters, base=first)
        seconds.append(time.process_time() - started)
    product = sum(float((base[key] * merged[key]).sum()) for key in base)
    found[name] = {"seconds": min(seconds), "objective": product}
print(json.dumps(found))
"""


def run_library(python: Path, code: str, *states: State) -> dict[str, Any]:
    """Runs another library by the interpreter of its environment, and returns its figures.

    Args:
        python: The interpreter.
        code: `REBASIN` or `SINKHORN_REBASIN`, which match the second network with the first; or
            `MERGEKIT`, which merges all but the first, the base.
        states: Weights of the networks.

    Raises:
        OSError: The interpreter cannot be started, or the library failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "states.pt"
        torch.save(states, path)
        variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        command = [str(python), "-c", NETWORK + code, str(path)]
        finished = subprocess.run(command, capture_output=True, text=True, env=variables)
    if finished.returncode:
        raise OSError(f"{python} failed:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])
