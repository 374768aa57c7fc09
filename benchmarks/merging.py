"""How fast merging is, and how well it matches: `python benchmarks/merging.py`.

Beside plain steps of Git Re-Basin, and beside two libraries where they are installed, each in an
environment of its own since both are called `rebasin`:

    python benchmarks/merging.py --rebasin-python PATH --sinkhorn-rebasin-python PATH

Processor seconds of one thread, the best of several runs: so a busy machine distorts less. Networks
that are to be matched have learned the same teacher from different initial weights, seen as
permuted copies or as they are; the objective is the sum of products of their weights, largest best.
"""

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import nn

from fleet_tools.baselines.merging.average import flat
from fleet_tools.baselines.merging.matching.coordinate_ascent import unfolded
from fleet_tools.baselines.merging.matching.soft_descent import Descent, descend
from fleet_tools.baselines.merging.matching.weights import match_weights
from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.problem import Fleet
from fleet_tools.baselines.merging.symmetry.table import Symmetry, layers
from fleet_tools.utils.machine import machine_name

HIDDEN = ["h1", "h2", "h3", "h4"]

NETWORK = """
import sys, time, json, torch
from torch import nn
torch.set_num_threads(1)
def network(state):
    shapes = [tensor.shape for name, tensor in state.items() if name.endswith("weight")]
    modules = [part for outs, ins in shapes for part in (nn.Linear(ins, outs), nn.ReLU())]
    model = nn.Sequential(*modules[:-1])
    model.load_state_dict(state)
    return model
one, other = torch.load(sys.argv[1])
"""

REBASIN = """
from rebasin import PermutationCoordinateDescent
took = []
for _ in range(3):
    ours, theirs = network(one), network(other)
    begun = time.process_time()
    descent = PermutationCoordinateDescent(ours, theirs, torch.randn(1, one["0.weight"].shape[1]))
    descent.rebasin()
    took.append(time.process_time() - begun)
moved = theirs.state_dict()
objective = sum(float((one[name] * moved[name]).sum()) for name in one)
print(json.dumps({"seconds": min(took), "objective": objective}))
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
took = []
for _ in range(10):
    begun = time.process_time()
    step()
    took.append(time.process_time() - begun)
print(json.dumps({"seconds": min(took)}))
"""


class Elman(nn.Module):
    """Two recurrent layers and a linear head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.core = nn.RNN(8, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, inputs):
        return self.head(self.core(inputs.view(-1, 8, 8))[0][:, -1])


def mlp(width: int) -> nn.Module:
    """Four hidden layers."""
    sizes = [64, *[width] * len(HIDDEN), 10]
    parts = [part for i, o in pairwise(sizes) for part in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


MLP = Symmetry.of(layers.mlp([str(2 * at) for at in range(5)], ["_", *HIDDEN, "_"]))
ELMAN = Symmetry.of(layers.elman("core", "_", ["h0", "h1"]), layers.linear("head", "h1", "_"))


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rebasin-python", help="of an environment with `rebasin`")
    parser.add_argument("--sinkhorn-rebasin-python", help="of one with `sinkhorn-rebasin`")
    parser.add_argument("--widths", type=int, nargs="*", default=[256, 512, 1024, 2048])
    parser.add_argument("--models", type=int, nargs="*", default=[2, 10, 50])
    parser.add_argument("--json", action="store_true", help="a line for each figure")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    def report(what: str, who: str, seconds: float, **rest: float) -> None:
        if arguments.json:
            figures = {"what": what, "who": who, "seconds": seconds, **rest}
            return print(json.dumps(figures), flush=True)
        told = "".join(f"  {name.replace('_', ' ')} {value:.1f}" for name, value in rest.items())
        return print(f"{what:>28}  {who:<24} {1e3 * seconds:9.1f} ms{told}", flush=True)

    if not arguments.json:
        print(f"On {machine_name()}.")
    pairs = {
        "MLP 4 x 512": (MLP, *(learned(lambda: mlp(512), seed) for seed in (0, 1))),
        "Elman 2 x 256": (ELMAN, *(learned(lambda: Elman(256), seed) for seed in (0, 1))),
    }
    for name, (symmetry, one, other) in pairs.items():
        copy = symmetry.apply(symmetry.group(one).random(np.random.default_rng(0)), one)
        for what, model in ((name, other), (f"{name}, a copy", copy)):
            report(what, "matching", **matched(symmetry, one, model))
            report(what, "plain git-re-basin", **matched(symmetry, one, model, plain))
            if symmetry is MLP and arguments.rebasin_python:
                found = elsewhere(arguments.rebasin_python, REBASIN, one, model)
                report(what, "rebasin", **found)
    _, one, other = pairs["MLP 4 x 512"]
    what = "Sinkhorn step, MLP 4 x 512"
    report(what, "ours", **sinkhorn_step(one, other))
    report(what, "of that, matrix products", **matrix_products(512))
    if arguments.sinkhorn_rebasin_python:
        found = elsewhere(arguments.sinkhorn_rebasin_python, SINKHORN_REBASIN, one, other)
        report(what, "sinkhorn-rebasin", **found)
    if torch.cuda.is_available():
        report(what, "ours, on a GPU", **sinkhorn_step(one, other, "cuda"))
    for width in arguments.widths:
        for work in ("matching", "sinkhorn step"):
            report(f"MLP 4 x {width}", work, **alone(widened, work, width))
    for count in arguments.models:
        report(f"{count} MLPs 4 x 64", "MergeMany", **alone(many, count))


def learned(make, seed: int) -> dict[str, torch.Tensor]:
    """A network that has learned a teacher's classes, from initial weights of its own."""
    torch.manual_seed(1000)
    teacher = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    inputs = torch.randn(2000, 64)
    targets = (8 * teacher(inputs)).argmax(dim=1)
    torch.manual_seed(seed)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(300):
        batch = torch.randint(len(inputs), (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
        optimizer.step()
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def matched(symmetry, one, other, method=match_weights) -> dict[str, float]:
    """What matching takes at best, and its objective on average, over orders of names."""
    objectives, took = [], []
    for seed in range(3):
        begun = time.process_time()
        found = method(symmetry, one, other, np.random.default_rng(seed))
        took.append(time.process_time() - begun)
        objectives.append(float(flat(one) @ flat(symmetry.apply(found, other))))
    return {"seconds": min(took), "objective": float(np.mean(objectives))}


def plain(symmetry, reference, model, generator, sweeps: int = 100) -> dict[str, np.ndarray]:
    """Git Re-Basin as published: linear steps from the identity until none makes progress."""
    current = symmetry.group(model).tensors(symmetry.group(model).identity())
    parts = unfolded(symmetry, reference, model)
    for _ in range(sweeps):
        progress = False
        for name in generator.permutation(sorted(current)).tolist():
            scores = sum(
                _scores(part, at, current) for part in parts for at in part.places(name)
            ).double()
            new = torch.from_numpy(linear_sum_assignment(scores.numpy(), maximize=True)[1])
            worth = [
                float(scores.gather(1, index[:, None]).sum()) for index in (new, current[name])
            ]
            progress |= worth[0] > worth[1] + 1e-12
            current = current | {name: new}
        if not progress:
            break
    return {name: index.numpy() for name, index in current.items()}


def _scores(part, at: int, held) -> torch.Tensor:
    moved = part.tensor
    for place, factor in enumerate(part.factors):
        if place != at and not factor.fixed:
            moved = moved.index_select(place, held[factor.name])
    R, W = (
        tensor.movedim(at, 0).reshape(moved.shape[at], -1) for tensor in (part.reference, moved)
    )
    return R @ W.T


def sinkhorn_step(one, other, device: str = "cpu", steps: int = 20) -> dict[str, float]:
    """A step of gradient descent on soft permutations, towards another model's weights."""
    one, other = ({k: v.to(device) for k, v in state.items()} for state in (one, other))

    def gradient(permuted):
        return {name: 2 * (tensor - one[name]) for name, tensor in permuted.items()}

    def walk(count):
        begun = time.process_time() if device == "cpu" else time.perf_counter()
        descent, generator = Descent(steps=count), np.random.default_rng(0)
        found = descend(MLP, other, MLP.group(other).identity(), gradient, descent, generator)
        float(next(iter(found.values())).sum())  # a GPU is waited for
        return (time.process_time() if device == "cpu" else time.perf_counter()) - begun

    walk(1)
    fewest = [min(walk(count) for _ in range(3)) for count in (1, 1 + steps)]
    return {"seconds": (fewest[1] - fewest[0]) / steps}


def matrix_products(width: int) -> dict[str, float]:
    """The 15 products of hidden weights with permutations in such a step, there and back."""
    a, b = torch.randn(2, width, width)

    def multiply():
        begun = time.process_time()
        for _ in range(15):
            a @ b
        return time.process_time() - begun

    return {"seconds": min(multiply() for _ in range(10))}


def widened(work: str, width: int) -> dict[str, float]:
    """Matching, or a Sinkhorn step, of two untrained networks of some width."""
    one, other = (_untrained(width, seed) for seed in (0, 1))
    if work == "sinkhorn step":
        return sinkhorn_step(one, other, steps=3)
    begun = time.process_time()
    match_weights(MLP, one, other, np.random.default_rng(0))
    return {"seconds": time.process_time() - begun}


def many(count: int) -> dict[str, float]:
    """MergeMany of untrained networks."""
    fleet = Fleet(MLP, [_untrained(64, seed) for seed in range(count)])
    begun = time.process_time()
    merge("git_rebasin", fleet)
    return {"seconds": time.process_time() - begun}


def alone(work, *arguments) -> dict[str, float]:
    """Some work in a process of its own, and its peak memory, of which PyTorch takes a part."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (work, arguments))


def elsewhere(python: str, code: str, one, other) -> dict[str, float]:
    """What another library takes, run by the interpreter of its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        states = Path(folder) / "states.pt"
        torch.save((one, other), states)
        command = [python, "-c", NETWORK + code, str(states)]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        finished = subprocess.run(command, capture_output=True, text=True, env=environment)
    if finished.returncode:
        raise SystemExit(f"{python} failed:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])


def _measured(work, arguments) -> dict[str, float]:
    torch.set_num_threads(1)
    found = work(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**found, "peak_memory_MiB": peak}


def _untrained(width: int, seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {name: tensor.detach() for name, tensor in mlp(width).state_dict().items()}


if __name__ == "__main__":
    main()
