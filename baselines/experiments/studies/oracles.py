"""Oracles of merging on scikit-learn's digits, where the answer is known to exist.

Pairs: two networks trained on the same data from different weights and in a different order. The
barrier is that of the test loss between them once aligned (the paper's section 3); beside it stands
the test accuracy of their average.

Fleets: five networks, each on its own share of the data, classes dealt by Dirichlet(alpha), judged
on all test data. `common_init` is the control that needs no alignment: the same shares, but trained
from one initialization.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.baselines.experiments.result_cache import Cells
from fleet_tools.baselines.experiments.studies import digits as pictures
from fleet_tools.baselines.experiments.studies.networks import NETWORKS
from fleet_tools.baselines.experiments.studies.tables import Cell
from fleet_tools.baselines.experiments.studies.training import (
    Training,
    finish,
    initial,
    judge,
    robot,
    train,
)
from fleet_tools.baselines.merge import read_model, read_notes, write_model
from fleet_tools.baselines.merging.barrier import loss_barrier
from fleet_tools.baselines.merging.matching.soft_descent import Descent
from fleet_tools.baselines.merging.methods.registry import merge
from fleet_tools.baselines.merging.problem import Fleet


@dataclass(frozen=True)
class Column:
    """A method with its options.

    Attributes:
        method: Of the registry.
        options: Its own.
        control: Whether the models were trained from one initialization.
    """

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    control: bool = False

    def settings(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


PAIRS = {
    "naive": Column("naive_average"),
    "common init": Column("common_init", control=True),
    "matching": Column("git_rebasin"),
    "gradient": Column("sinkhorn_data"),
    "both": Column("sinkhorn_data", {"start": "matching"}),
}
"""The last two descend, by `descents`: from the identity, and from the matching."""


def descents(name: str) -> Descent:
    """How soft permutations of a network descend.

    Transformers want larger steps than the others; the numbers were chosen on pairs of seed 0.
    """
    return Descent(steps=500, rate=0.5) if name == "transformer" else Descent(steps=200)


FLEETS = {
    "naive": Column("naive_average"),
    "common init": Column("common_init", control=True),
    "matching": Column("git_rebasin"),
    "fleet_merge": Column("fleet_merge", {"epochs": 2, "descent": Descent(steps=60)}),
    "monotone": Column("fleet_merge_monotone", {"epochs": 2, "descent": Descent(steps=60)}),
}

ALPHAS = (0.1, 0.3, 1.0, 10.0)
FLEET_SIZE = 5

TRAINING = Training(epochs=40)


def pairs(folder: Path, names: list[str], seeds: int) -> Iterator[Cell]:
    """Computes, or reads, the barriers between pairs of networks.

    Args:
        folder: Of the study.
        names: Of `NETWORKS`.
        seeds: How many pairs of each.

    Raises:
        MissingLibraryError: scikit-learn is absent.
    """
    training, test = pictures.load()
    for name, seed in ((name, seed) for seed in range(seeds) for name in names):
        network, kind = NETWORKS[name], f"pair-{name}"
        for title, column in PAIRS.items():
            if column.method == "sinkhorn_data":
                column = replace(column, options={**column.options, "descent": descents(name)})

            def compute(column=column, network=network, kind=kind, seed=seed):
                models = _models(folder, kind, network, [training] * 2, seed, column.control)
                return _barrier(network, column, models, training, test, seed)

            settings = {
                "network": network.title,
                "training": asdict(TRAINING),
                **column.settings(),
            }
            value = Cells(folder).get(f"{kind}-{_plain(title)}-{seed}", settings, compute)
            yield Cell(name, title, seed, value)


def fleets(folder: Path, alphas: list[float], seeds: int, name: str = "mlp") -> Iterator[Cell]:
    """Computes, or reads, the accuracy of five merged networks.

    Args:
        folder: Of the study.
        alphas: Concentrations of Dirichlet distributions.
        seeds: How many fleets of each.
        name: Of `NETWORKS`.

    Raises:
        MissingLibraryError: scikit-learn is absent.
    """
    training, test = pictures.load()
    network = NETWORKS[name]
    for alpha, seed in ((alpha, seed) for seed in range(seeds) for alpha in alphas):
        kind = f"fleet-{name}-{alpha:g}"
        generator = np.random.default_rng((seed, round(1000 * alpha)))
        shares = pictures.partition(training, FLEET_SIZE, alpha, generator)
        for title, column in FLEETS.items():

            def compute(column=column, kind=kind, shares=shares, seed=seed):
                models = _models(folder, kind, network, shares, seed, column.control)
                return _accuracy(network, column, models, shares, test, seed)

            settings = {
                "network": network.title,
                "training": asdict(TRAINING),
                "alpha": alpha,
                "models": FLEET_SIZE,
                **column.settings(),
            }
            value = Cells(folder).get(f"{kind}-{_plain(title)}-{seed}", settings, compute)
            yield Cell(f"{alpha:g}", title, seed, value)


def _models(folder: Path, kind: str, network, shares, seed: int, control: bool) -> list[dict]:
    """Networks, each trained on its share, or read if it was; a control's from one start."""
    models = []
    for at, share in enumerate(shares):
        own = len(shares) * seed + at
        common = control and at > 0  # the first is the same
        path = folder / "models" / f"{kind}-{'common' if common else 'own'}-{own}.safetensors"
        settings = {"network": network.title, "training": asdict(TRAINING)}
        if not path.is_file() or read_notes(path) != settings:
            path.parent.mkdir(parents=True, exist_ok=True)
            start = initial(network, len(shares) * seed if control else own)
            write_model(path, train(network, start, share, TRAINING, own), settings)
        models.append(read_model(path))
    return models


def _barrier(network, column: Column, models, training, test, seed: int) -> dict[str, float]:
    shared = robot(network, training)
    fleet = Fleet(network.symmetry, models, shared=shared, seed=seed)
    begun = time.perf_counter()
    merged = merge(column.method, fleet, **column.options)
    seconds = time.perf_counter() - begun
    done = finish(network, training)
    barrier = loss_barrier(
        lambda state: judge(network, done(state), test)[0], *fleet.permuted(merged.permutations)
    )
    return {
        "barrier": barrier.height,
        "accuracy": judge(network, done(merged.state), test)[1],
        "single": float(np.mean([judge(network, model, test)[1] for model in models])),
        "seconds": round(seconds, 2),
    }


def _accuracy(network, column: Column, models, shares, test, seed: int) -> dict[str, float]:
    robots = [robot(network, share) for share in shares]
    fleet = Fleet(network.symmetry, models, robots=robots, seed=seed)
    begun = time.perf_counter()
    merged = merge(column.method, fleet, **column.options)
    seconds = time.perf_counter() - begun
    loss, accuracy = judge(network, merged.state, test)
    single = float(np.mean([judge(network, model, test)[1] for model in models]))
    return {
        "accuracy": accuracy,
        "loss": loss,
        "single": single,
        "seconds": round(seconds, 2),
    }


def _plain(title: str) -> str:
    return title.replace(" ", "_")
