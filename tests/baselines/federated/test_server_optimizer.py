"""Optimizers of the server: by PyTorch's own, by the published recursions, and in fleets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from hypothesis import given
from hypothesis import strategies as st
from support.fleet_cases import local, plan_of
from support.shares import few

from fleet_merging.errors import UnsoundMergeError
from fleet_tools.baselines.federated.config import ServerConfig
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import FLEET, FleetWriter, load_progress
from fleet_tools.baselines.federated.rounds import after_merge
from fleet_tools.baselines.federated.run import run
from fleet_tools.baselines.federated.server_optimizer import server_step
from fleet_tools.baselines.training.state import TrainingError
from fleet_tools.errors import ConfigError
from fleet_tools.storage.run_folder import STATE
from fleet_tools.storage.tensor_files import read_checked, write_checked

SEEDS = st.integers(0, 1000)
MERGES = 5


def merges(seed: int) -> list[torch.Tensor]:
    """Returns merged weights of several rounds, which do not depend on the server's."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(3, 2, generator=generator, dtype=torch.float64) for _ in range(MERGES)]


def trajectory(config: ServerConfig, seed: int) -> list[torch.Tensor]:
    """Returns the server's weights round by round, beginning with zeros."""
    weights, state, found = {"w": torch.zeros(3, 2, dtype=torch.float64)}, {}, []
    for merged in merges(seed):
        weights, state = server_step(config, weights, {"w": merged}, state)
        found.append(weights["w"])
    return found


def by_torch(make: Any, seed: int) -> list[torch.Tensor]:
    """Returns the same by an optimizer of PyTorch, whose gradient points away from the merge."""
    parameter = torch.nn.Parameter(torch.zeros(3, 2, dtype=torch.float64))
    optimizer, found = make([parameter]), []
    for merged in merges(seed):
        parameter.grad = parameter.detach() - merged
        optimizer.step()
        found.append(parameter.detach().clone())
    return found


@few(10)
@given(seed=SEEDS, momentum=st.floats(0, 0.95), rate=st.floats(0.1, 1.5))
def test_momentum_is_that_of_stochastic_gradient_descent(seed, momentum, rate):
    config = ServerConfig(optimizer="momentum", momentum=momentum, learning_rate=rate)
    expected = by_torch(lambda p: torch.optim.SGD(p, rate, momentum=momentum), seed)
    for one, other in zip(trajectory(config, seed), expected, strict=True):
        torch.testing.assert_close(one, other)


@few(10)
@given(seed=SEEDS)
def test_adaptive_steps_are_those_of_reddi_et_al(seed):
    """Algorithm 2, number by number."""
    eta, beta_1, beta_2, tau = 0.3, 0.8, 0.95, 0.01
    config = ServerConfig(
        optimizer="adam",
        learning_rate=eta,
        momentum=beta_1,
        second_momentum=beta_2,
        smallest_step=tau,
    )
    found = trajectory(config, seed)
    x, m, v = 0.0, 0.0, tau**2
    for merged, weights in zip(merges(seed), found, strict=True):
        delta = float(merged[2, 1]) - x
        m = beta_1 * m + (1 - beta_1) * delta
        v = beta_2 * v + (1 - beta_2) * delta**2
        x += eta * m / (np.sqrt(v) + tau)
        assert float(weights[2, 1]) == pytest.approx(x)


def completed(plan: Any, folder: Path) -> FleetProgress:
    with FleetWriter(folder, plan) as writer:
        return run(writer, local(plan))


@pytest.mark.parametrize("initialization", ["own", "common"])
def test_a_step_without_momentum_takes_the_merge(data: Path, tmp_path: Path, initialization: str):
    plain = plan_of(data, initialization=initialization)
    server = {"optimizer": "momentum", "momentum": 0}
    stepping = plan_of(data, initialization=initialization, server=server)
    one, other = completed(plain, tmp_path / "plain"), completed(stepping, tmp_path / "server")
    for name, tensor in one.weights.items():
        assert torch.equal(tensor, other.weights[name])


@pytest.mark.parametrize(
    ("initialization", "optimizer"),
    [
        ("common", "momentum"),
        ("own", "adam"),
        pytest.param("own", "momentum", marks=pytest.mark.slow),
        pytest.param("common", "adam", marks=pytest.mark.slow),
    ],
)
def test_a_fleet_is_resumed_with_the_state_of_its_server(
    data: Path, tmp_path: Path, initialization: str, optimizer: str
):
    rounds = {"merge_every": 1, "training": {"epochs": 4, "batch_size": 8, "seed": 5}}
    server = {"optimizer": optimizer, "learning_rate": 0.5}
    plan = plan_of(data, initialization=initialization, server=server, **rounds)
    whole = completed(plan, tmp_path / "whole")
    assert len(whole.rounds) == 4

    class StoppedError(Exception):
        pass

    def stop(progress: FleetProgress) -> None:
        raise StoppedError

    for _ in range(3):
        with pytest.raises(StoppedError), FleetWriter(tmp_path / "parts", plan) as writer:
            run(writer, local(plan), after_round=stop)
    parts = completed(plan, tmp_path / "parts")
    assert all(torch.equal(parts.weights[name], each) for name, each in whole.weights.items())
    for name, tensors in whole.server_state.items():
        assert all(torch.equal(parts.server_state[name][key], t) for key, t in tensors.items())
    without = completed(plan_of(data, initialization=initialization, **rounds), tmp_path / "none")
    assert not without.server_state
    assert any(not torch.equal(without.weights[name], t) for name, t in whole.weights.items())


@pytest.mark.parametrize("damage", ["lost", "shape", "nan", "another"])
def test_a_damaged_state_of_the_server_is_refused(data: Path, tmp_path: Path, damage: str):
    server = {"optimizer": "adam"}
    plan = plan_of(data, initialization="common", server=server)
    completed(plan, tmp_path)
    tensors, text = read_checked(
        tmp_path / STATE, FLEET.state_key, lambda *stored: stored, TrainingError
    )
    changed = dict(tensors)
    first = next(name for name in tensors if name.startswith("server/variance/"))
    if damage == "lost":
        changed = {name: t for name, t in tensors.items() if not name.startswith("server/var")}
    elif damage == "shape":
        changed[first] = torch.zeros(1, dtype=torch.float64)
    elif damage == "nan":
        changed[first] = torch.full_like(tensors[first], float("nan"))
    else:
        changed["server/more/x"] = torch.zeros(1, dtype=torch.float64)
    write_checked(tmp_path / STATE, FLEET.state_key, changed, text)
    assert load_progress(tmp_path).rounds  # readable, but not of this fleet
    with pytest.raises(TrainingError, match="server"), FleetWriter(tmp_path, plan) as writer:
        writer.load()


def test_references_have_no_server_and_bad_ones_are_refused(data: Path):
    with pytest.raises(ConfigError, match="optimizer"):
        plan_of(data, server={"optimizer": "lion"})
    with pytest.raises(ConfigError, match="momentum"):
        plan_of(data, server={"momentum": 1.0})


def test_a_round_names_the_weights_that_no_one_could_use(data: Path) -> None:
    plan = plan_of(data, server={"optimizer": "momentum", "learning_rate": 1.0})
    before = plan.blueprint.create().state_dict()
    name = next(iter(before))
    merged = before | {name: torch.full_like(before[name], torch.inf)}
    with pytest.raises(UnsoundMergeError, match=f"with a step of momentum made no .*{name} holds"):
        after_merge(plan, 1, before, merged, {})


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_a_server_steps_on_what_is_learned_alone(optimizer):
    config = ServerConfig(optimizer=optimizer, learning_rate=5.0)
    before = {"w": torch.ones(2), "norm.running_var": torch.ones(2)}
    merged = {"w": torch.zeros(2), "norm.running_var": torch.full((2,), 0.01)}
    weights, state = server_step(config, before, merged, {})
    assert torch.equal(weights["norm.running_var"], merged["norm.running_var"])
    assert (weights["w"] != merged["w"]).all()
    assert all(tensors.keys() == {"w"} for tensors in state.values())
