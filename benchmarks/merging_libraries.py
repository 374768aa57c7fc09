"""Other libraries' matching, each in its own environment, since both are called `rebasin`."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import torch

from fleet_tools.baselines.merging.symmetry.table import State

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
one, other = torch.load(sys.argv[1])
"""
"""Start of both programs."""

REBASIN = """
from rebasin import PermutationCoordinateDescent
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


def run_library(python: Path, code: str, one: State, other: State) -> dict[str, float]:
    """Runs another library by the interpreter of its environment, and returns its figures.

    Args:
        python: The interpreter.
        code: `REBASIN` or `SINKHORN_REBASIN`.
        one: Weights of the reference.
        other: Weights of the model that is matched with it.

    Raises:
        OSError: The interpreter cannot be started, or the library failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        states = Path(folder) / "states.pt"
        torch.save((one, other), states)
        variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        command = [str(python), "-c", NETWORK + code, str(states)]
        finished = subprocess.run(command, capture_output=True, text=True, env=variables)
    if finished.returncode:
        raise OSError(f"{python} failed:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])
