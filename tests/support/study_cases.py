"""Small labelled examples, and experiments on them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from fleet_tools.baselines.experiments.form import Experiment, planned_runs
from fleet_tools.baselines.experiments.supervised import arena as arena_module
from fleet_tools.baselines.experiments.supervised.labelled import ImageShape, Labelled, Shape
from fleet_tools.config.values import parse

EIGHT = ImageShape(1, 8, 8, 10)


def some_digits(count: int = 200, shape: Shape = EIGHT) -> Labelled:
    """Returns noise instead of images or texts; only the labels are those of digits."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count, dtype=torch.int64) % shape.classes
    if isinstance(shape, ImageShape):
        return Labelled(torch.rand(count, shape.pixels, generator=generator), labels, shape)
    texts = torch.randint(shape.classes, (count, shape.length), generator=generator)
    return Labelled(texts, labels, shape, torch.arange(count) // 10)


def content_of(**changes: Any) -> dict[str, Any]:
    """Returns the content of a small experiment's YAML on labelled examples."""
    content: dict[str, Any] = {
        "arena": "supervised",
        "data": "digits",
        "seeds": 1,
        "base": {"network": "mlp-1x8", "training": {"epochs": 1}},
        "arms": {name: {"method": name} for name in ("naive_average", "git_rebasin")},
    }
    return content | changes


@contextmanager
def examples(training: Labelled, test: Labelled) -> Iterator[None]:
    """Has the arena read given examples, whatever their name."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arena_module, "_loaded", lambda name, root: (training, test))
        yield


def measured(
    folder: Path, training: Labelled, test: Labelled, **changes: Any
) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Returns what an experiment measures on given examples, by arm, value and seed."""
    experiment = parse(Experiment, content_of(**changes), "The test")
    with examples(training, test):
        arena = arena_module.Supervised(experiment)
        return {
            (run.arm, run.value, run.seed): arena.measure(arena.plan(run), folder)
            for run in planned_runs(experiment)
        }
