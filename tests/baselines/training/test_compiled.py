"""A compiled network learns the same."""

import shutil

import pytest

pytest.importorskip("torch")

import torch
from support.training_cases import cloned, small_data

from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.loop import train


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler here")
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("body", ["mlp", "elman"])
def test_a_compiled_network_learns_the_same(body, tmp_path):
    blueprint, trajectories, state = cloned(small_data(tmp_path / "data"), body)
    config = TrainingConfig(epochs=2, batch_size=8)
    plain = train(blueprint, trajectories, config, state)
    compiled = train(blueprint, trajectories, config.model_copy(update={"compile": True}), state)
    assert list(compiled.weights) == list(plain.weights)
    for name, weights in plain.weights.items():
        torch.testing.assert_close(compiled.weights[name], weights, rtol=1e-4, atol=1e-6)
