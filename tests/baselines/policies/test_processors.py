"""Networks compute and learn the same, up to rounding, whichever kernels libraries choose."""

import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from processors import LEARNING
from support.processes import ROOT, run_python

PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
KINDS = pytest.mark.parametrize("kind", LEARNING)
FURTHEST = "neither AVX2 nor FMA"

LEARN = """
import copy, json
import torch
from support.policy_cases import BLUEPRINTS, BODIES
from fleet_tools.baselines.policies.part_configs import ResNet18Config

def gradient(network, images):
    network.zero_grad()
    network(images).square().sum().backward()
    return torch.cat([each.grad.flatten().double() for each in network.parameters()])

def of_narrow(width, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(width)
    encoder = ResNet18Config(width=width, stages=2).create()
    images = torch.randint(0, 256, (8, 32, 32, 3)).byte()
    exact = gradient(copy.deepcopy(encoder).double(), images)
    return max(float((gradient(encoder, images) - exact).norm() / exact.norm()) for _ in range(2))

def of_bfloat16(body):
    blueprint = BLUEPRINTS[f"{body} on state"]
    network, example = blueprint.create(), blueprint.example()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = network(example)[0].float()
    rounded.square().sum().backward()
    finite = all(bool(each.grad.isfinite().all()) for each in network.parameters())
    return [finite, float((rounded - network(example)[0]).abs().max())]

print(json.dumps({
    "kernels": torch.backends.cpu.get_cpu_capability(),
    "narrow": {f"{n} channels, {t} threads": of_narrow(n, t) for t in (1, 2) for n in (2, 4, 6)},
    "bfloat16": {body: of_bfloat16(body) for body in BODIES},
}))
"""
"""Prints errors of narrow encoders' gradients in comparison with float64's, relative to their norm;
and for each body, whether its gradient by
bfloat16 is finite, and the largest error of actions."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind == FURTHEST else pytest.mark.slow) for kind in LEARNING],
)
def test_gradients_are_exact_and_bfloat16_computes_with_other_kernels(kind: str):
    found: dict[str, Any] = run_python(LEARN, **PATHS, **LEARNING[kind].variables)
    print(f"{kind}: {found}")  # shown by pytest -rP
    for case, error in found["narrow"].items():
        assert error < 1e-3, case
    for body, (finite, error) in found["bfloat16"].items():
        assert finite and error < 0.1, body


@pytest.mark.slow
@KINDS
def test_the_tests_of_networks_pass_with_other_kernels(kind: str):
    folders = ["tests/baselines/policies", "tests/baselines/training"]
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *folders, f"--ignore={__file__}"],
        cwd=ROOT,
        env=os.environ | LEARNING[kind].variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(f"{kind}: {finished.stdout.splitlines()[-1]}")
    assert finished.returncode == 0, finished.stdout[-5000:]
