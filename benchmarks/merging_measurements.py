"""Measurements of matching and of Sinkhorn steps, for `python benchmarks/merging.py`."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch
from merging_libraries import MERGEKIT, REBASIN, SINKHORN_REBASIN, run_library
from scipy.optimize import linear_sum_assignment
from timing import cpu_seconds
from torch import nn

from fleet_merging.average import flatten
from fleet_merging.matching.assignment import Indices, UnfoldedPair, unfold_models
from fleet_merging.matching.soft_descent import Descent, descend
from fleet_merging.matching.weights import match_weights
from fleet_merging.methods import rebasin as git_rebasin
from fleet_merging.methods.registry import merge
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry import layers
from fleet_merging.symmetry.table import State, Symmetry

if TYPE_CHECKING:
    from merging import MergingOptions

HIDDEN = ["h1", "h2", "h3", "h4"]

Figures = dict[str, float]
"""Measured figures by name; "seconds" is one of them."""

Matcher = Callable[[Symmetry, State, State, np.random.Generator], dict[str, np.ndarray]]


class Elman(nn.Module):
    """Two recurrent layers and a linear head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.core = nn.RNN(8, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns the scores of classes."""
        return self.head(self.core(inputs.view(-1, 8, 8))[0][:, -1])


def mlp(width: int) -> nn.Module:
    """Returns a network with four hidden layers."""
    sizes = [64, *[width] * len(HIDDEN), 10]
    modules = [module for i, o in pairwise(sizes) for module in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*modules[:-1])


MLP = Symmetry.of(layers.mlp([str(2 * index) for index in range(5)], ["_", *HIDDEN, "_"]))
ELMAN = Symmetry.of(layers.elman("core", "_", ["h0", "h1"]), layers.linear("head", "h1", "_"))


def measurements(options: "MergingOptions") -> Iterator[tuple[str, str, Figures]]:
    """Yields the case, the method and the figures of each measurement."""
    pairs = {
        "MLP 4 x 512": (MLP, *(learned(lambda: mlp(512), seed) for seed in (0, 1))),
        "Elman 2 x 256": (ELMAN, *(learned(lambda: Elman(256), seed) for seed in (0, 1))),
    }
    for name, (symmetry, one, other) in pairs.items():
        copy = symmetry.apply(symmetry.group(one).random(np.random.default_rng(0)), one)
        for case, model in ((name, other), (f"{name}, a copy", copy)):
            yield case, "matching", matched(symmetry, one, model)
            yield case, "plain git-re-basin", matched(symmetry, one, model, plain_git_rebasin)
            if symmetry is MLP and options.rebasin_python:
                yield case, "rebasin", run_library(options.rebasin_python, REBASIN, one, model)
    _, one, other = pairs["MLP 4 x 512"]
    case = "Sinkhorn step, MLP 4 x 512"
    step, products = sinkhorn_step(one, other), matrix_products(512)
    yield case, "matrix products of the step", products
    yield case, "Fleet-Tools", {**step, "ratio": step["seconds"] / products["seconds"]}
    if python := options.sinkhorn_rebasin_python:
        yield case, "sinkhorn-rebasin", run_library(python, SINKHORN_REBASIN, one, other)
    if torch.cuda.is_available():
        yield case, "Fleet-Tools, on a GPU", sinkhorn_step(one, other, "cuda")
    yield from averages(options.mergekit_python)
    for width in options.widths:
        yield f"MLP 4 x {width}", "matching", in_process(match_untrained, width)
        yield f"MLP 4 x {width}", "sinkhorn step", in_process(step_untrained, width)
    for count in options.models:
        yield f"{count} MLPs 4 x 64", "MergeMany", in_process(merge_many, count)


def learned(make: Callable[[], nn.Module], seed: int) -> dict[str, torch.Tensor]:
    """Returns a network that has learned a teacher's classes, from random initial weights."""
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


def matched(
    symmetry: Symmetry, one: State, other: State, method: Matcher = match_weights
) -> Figures:
    """Measures the best time of matching, and its mean objective over orders of names."""
    objectives, seconds = [], []
    for seed in range(3):
        started = time.process_time()
        found = method(symmetry, one, other, np.random.default_rng(seed))
        seconds.append(time.process_time() - started)
        objectives.append(float(flatten(one) @ flatten(symmetry.apply(found, other))))
    return {"seconds": min(seconds), "objective": float(np.mean(objectives))}


def plain_git_rebasin(
    symmetry: Symmetry, reference: State, model: State, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Matches by Git Re-Basin as published: linear steps from the identity while they progress."""
    current = symmetry.group(model).tensors(symmetry.group(model).identity())
    pairs = unfold_models(symmetry, reference, model)
    for _ in range(100):
        progress = False
        for name in generator.permutation(sorted(current)).tolist():
            terms = (_scores(pair, dim, current) for pair in pairs for dim in pair.dims(name))
            scores = sum(terms, start=torch.zeros(())).double()
            new = torch.from_numpy(linear_sum_assignment(scores.numpy(), maximize=True)[1])
            after, before = (
                float(scores.gather(1, index[:, None]).sum()) for index in (new, current[name])
            )
            progress |= after > before + 1e-12
            current = current | {name: new}
        if not progress:
            break
    return {name: index.numpy() for name, index in current.items()}


def _scores(pair: UnfoldedPair, dim: int, permutation: Indices) -> torch.Tensor:
    permuted = pair.tensor
    for other, factor in enumerate(pair.factors):
        if other != dim and not factor.fixed:
            permuted = permuted.index_select(other, permutation[factor.name])
    R, W = (
        tensor.movedim(dim, 0).reshape(permuted.shape[dim], -1)
        for tensor in (pair.reference, permuted)
    )
    return R @ W.T


def sinkhorn_step(reference: State, model: State, device: str = "cpu", steps: int = 20) -> Figures:
    """Measures a step of gradient descent on soft permutations, towards another model's weights."""
    one, other = ({k: v.to(device) for k, v in state.items()} for state in (reference, model))

    def gradient(permuted: State) -> State:
        return {name: 2 * (tensor - one[name]) for name, tensor in permuted.items()}

    def seconds(count: int) -> float:
        clock = time.process_time if device == "cpu" else time.perf_counter
        started = clock()
        descent, generator = Descent(steps=count), np.random.default_rng(0)
        found = descend(MLP, other, MLP.group(other).identity(), gradient, descent, generator)
        float(next(iter(found.values())).sum())  # waits for a GPU
        return clock() - started

    seconds(1)
    short, long = (min(seconds(count) for _ in range(3)) for count in (1, 1 + steps))
    return {"seconds": (long - short) / steps}


def matrix_products(width: int) -> Figures:
    """Measures the 15 products of hidden weights with permutations in such a step."""
    a, b = torch.randn(2, width, width)

    def multiply() -> None:
        for _ in range(15):
            torch.matmul(a, b)

    return {"seconds": min(cpu_seconds(multiply) for _ in range(10))}


def averages(mergekit: Path | None) -> Iterator[tuple[str, str, Figures]]:
    """Yields the figures of methods that neither match nor ask, and of `mergekit`'s of that name.

    The objective is the product with the base; TIES trims each tensor there, all together here.
    """
    base = _untrained(1024, 0)
    models = [
        {name: tensor + 0.01 * torch.randn(tensor.shape) for name, tensor in base.items()}
        for _ in range(4)
    ]
    problem, case = MergeProblem(MLP, models, base=base), "4 MLPs 4 x 1024"
    theirs = run_library(mergekit, MERGEKIT, base, *models) if mergekit else {}
    for method, name in (
        ("naive_average", "linear"),
        ("task_arithmetic", "task_arithmetic"),
        ("ties", "ties"),
        ("dare", "dare_linear"),
    ):
        seconds = min(cpu_seconds(lambda m=method: merge(m, problem)) for _ in range(3))
        product = float(flatten(base) @ flatten(merge(method, problem).state))
        figures = {"seconds": seconds, "objective": product}
        if name in theirs:
            yield case, f"mergekit, {name}", theirs[name]
            figures["ratio"] = seconds / theirs[name]["seconds"]
        yield case, method, figures


def match_untrained(width: int) -> Figures:
    """Measures the matching of two untrained networks."""
    one, other = (_untrained(width, seed) for seed in (0, 1))
    generator = np.random.default_rng(0)
    return {"seconds": cpu_seconds(lambda: match_weights(MLP, one, other, generator))}


def step_untrained(width: int) -> Figures:
    """Measures a Sinkhorn step of two untrained networks."""
    return sinkhorn_step(_untrained(width, 0), _untrained(width, 1), steps=3)


def merge_many(count: int) -> Figures:
    """Measures MergeMany of untrained networks: in all, and of one alignment among them."""
    problem = MergeProblem(MLP, [_untrained(64, seed) for seed in range(count)])
    aligned = 0

    def match(*arguments: Any, **options: Any) -> dict[str, np.ndarray]:
        nonlocal aligned
        aligned += 1
        return match_weights(*arguments, **options)

    with mock.patch.object(git_rebasin, "match_weights", match):
        seconds = cpu_seconds(lambda: merge("git_rebasin", problem))
    return {
        "seconds": seconds,
        "rounds": aligned / count,
        "ms_per_alignment": 1e3 * seconds / aligned,
    }


def in_process(work: Callable[[int], Figures], argument: int) -> Figures:
    """Does work in a separate process, and adds its peak memory, of which PyTorch uses a part."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_with_peak_memory, (work, argument))


def _with_peak_memory(work: Callable[[int], Figures], argument: int) -> Figures:
    torch.set_num_threads(1)
    figures = work(argument)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**figures, "peak_memory_MiB": peak}


def _untrained(width: int, seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {name: tensor.detach() for name, tensor in mlp(width).state_dict().items()}
