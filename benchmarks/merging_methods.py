"""The table of merging methods: their assumptions, and the results of one merge on digits.

`python benchmarks/merging_methods.py > docs/results/tables/merging_methods.md`
"""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scaffold import main_of, report_rows
from sklearn.datasets import load_digits
from torch import nn

from fleet_merging.methods.registry import METHODS, merge
from fleet_merging.modules import load_tensors
from fleet_merging.moments.measurement import LabelledBatch
from fleet_merging.moments.rows import applied_maps
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.robust import RULES
from fleet_merging.symmetry.layers import mlp
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.config.values import Count
from fleet_tools.utils import cli

LEFT_OUT = ("fleet_merge", "sinkhorn", "partition", "distillation", "lora")
"""Prefixes of names that are not in the table: methods with hundreds of gradients, variants of
others, distillation (with an ensemble in the table), and adapters."""

COLUMNS = (
    "method", "source", "start", "a robot is asked for", "returns", "kB sent by a robot",
    "common start", "own starts",
)  # fmt: skip

ROBOTS, CLASSES, WIDTH = 5, 10, 128
OWN_SHARE = 0.9
"""Fraction of a class's images that the robot of this class has; the others share the rest."""


class MergingMethodsOptions(cli.Options):
    """Merges five networks that hardly share a class of scikit-learn's digits, by each method.

    Networks have two hidden layers of 128 units and a squared error, like policies. Robot r has 90%
    of the training images of the classes 2 r and 2 r + 1, and a share of the others' rest. Figures
    are accuracies on test images of all classes, means over the seeds (smallest to largest).
    Methods have their default options, and with own starts `alignment: activations` if they have
    it. A cell is empty if a method needs a common start. `docs/results/metaworld.md` has methods
    with hundreds of gradients.
    """

    seeds: Count = 3
    """Number of seeds of weights, assignments and order of images."""
    epochs: Count = 60
    """Epochs of each robot."""


@dataclass(frozen=True)
class Digits:
    """Images (n, 64) and labels (n,) for training and test."""

    images: torch.Tensor
    labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


def _measure(options: MergingMethodsOptions) -> int:
    torch.set_num_threads(1)
    names = [name for name in METHODS if not name.startswith(LEFT_OUT) and name not in RULES]
    data = _digits()
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for seed in range(options.seeds):
        for start in ("common", "own"):
            problem = _problem(data, seed, start == "common", options.epochs)
            for name in names:
                if start == "common" or "base" not in METHODS[name].needs:
                    merged = _merged(name, problem, start, data)
                    found.setdefault((name, start), []).append(merged)
            found.setdefault(("", start), []).append(_references(data, problem, seed, options))
    rows: list[dict[str, Any]] = []
    for name in names:
        facts = METHODS[name]
        cells = {start: found.get((name, start), []) for start in ("common", "own")}
        row = [f"`{name}`", facts.source, facts.start, facts.asks, facts.returns]
        row.append(f"{np.mean([each['kilobytes'] for each in cells['common']]):.0f}")
        row += [_range([each["accuracy"] for each in of]) for of in cells.values()]
        rows.append(dict(zip(COLUMNS, row, strict=True)))
    for key, title in (("joint", "joint training"), ("single", "the best single robot")):
        given = [_range([each[key] for each in found["", start]]) for start in ("common", "own")]
        rows.append(dict(zip(COLUMNS, [title, *[""] * 5, *given], strict=True)))
    report_rows(options, COLUMNS, rows)
    return cli.OK


def _digits() -> Digits:
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.tensor(images[order] / 16.0, dtype=torch.float32)
    y = torch.tensor(labels[order], dtype=torch.int64)
    return Digits(x[:1400], y[:1400], x[1400:], y[1400:])


def _network(seed: int) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(64, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, CLASSES),
    )


def _targets(labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(labels, CLASSES).float()


def _trained(network: Any, images: Any, labels: Any, epochs: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    targets = _targets(labels)
    for _ in range(epochs):
        for rows in torch.randperm(len(images), generator=generator).split(32):
            optimizer.zero_grad()
            (network(images[rows]) - targets[rows]).square().mean().backward()
            optimizer.step()
    return network


def _assigned(data: Digits, seed: int) -> list[torch.Tensor]:
    """Returns the indices of each robot's images."""
    generator = np.random.default_rng(seed)
    parts: list[list[int]] = [[] for _ in range(ROBOTS)]
    for label in range(CLASSES):
        own = label * ROBOTS // CLASSES
        indices = generator.permutation(np.flatnonzero(data.labels.numpy() == label))
        cut = int(OWN_SHARE * len(indices))
        parts[own] += indices[:cut].tolist()
        others = [robot for robot in range(ROBOTS) if robot != own]
        for number, index in enumerate(indices[cut:].tolist()):
            parts[others[number % len(others)]].append(index)
    return [torch.tensor(part) for part in parts]


def _problem(data: Digits, seed: int, common: bool, epochs: int) -> MergeProblem:
    def holder(x: torch.Tensor, y: torch.Tensor) -> LocalDataHolder:
        def loss(policy: Any, draw: int | None) -> torch.Tensor:
            rows = torch.arange(len(x))
            if draw is not None:
                rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(draw))[:64]
            return (policy(x[rows]) - y[rows]).square().mean()

        return LocalDataHolder(_network(0), loss, lambda: [LabelledBatch((x,), y)])

    models, holders, sizes = [], [], []
    for robot, rows in enumerate(_assigned(data, seed)):
        x, y = data.images[rows], data.labels[rows]
        begin = _network(1000 * seed + (0 if common else robot + 1))
        models.append(_trained(begin, x, y, epochs, robot).state_dict())
        holders.append(holder(x, _targets(y)))
        sizes.append(len(rows))
    return MergeProblem(
        Symmetry.of(mlp(["0", "2", "4"], ["_", "h1", "h2", "_"])),
        models,
        averaging_weights=sizes,
        data_holders=holders,
        shared_data_holder=holder(data.images, _targets(data.labels)),
        affine_maps=applied_maps(_network(0), data.images[:2]),
        seed=seed,
        base=_network(1000 * seed).state_dict() if common else None,
        module=_network(0),
        example=data.images[:2],
    )


def _merged(name: str, problem: MergeProblem, start: str, data: Digits) -> dict[str, float]:
    aligned = start == "own" and "alignment" in METHODS[name].options
    result = merge(name, problem, **({"alignment": "activations"} if aligned else {}))
    return {
        "accuracy": _accuracy(result.model, data),
        "kilobytes": result.traffic.uploaded_bytes / ROBOTS / 1e3,
    }


def _accuracy(network: Any, data: Digits) -> float:
    with torch.no_grad():
        found = network(data.test_images).argmax(-1)
    return float((found == data.test_labels).double().mean())


def _references(
    data: Digits, problem: MergeProblem, seed: int, options: MergingMethodsOptions
) -> dict[str, float]:
    singles = []
    for state in problem.models:
        network = _network(0)
        load_tensors(network, state)
        singles.append(_accuracy(network, data))
    joint = _trained(_network(1000 * seed), data.images, data.labels, options.epochs, 0)
    return {"joint": _accuracy(joint, data), "single": max(singles)}


def _range(values: list[float]) -> str:
    if not values:
        return ""
    return f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


main = main_of(__file__, MergingMethodsOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
