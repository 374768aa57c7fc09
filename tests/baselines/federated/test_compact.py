"""Answers as few bytes: near what was sent, still moments of data, and as large as is counted."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from hypothesis import given
from hypothesis import strategies as st
from support.fleet_cases import RecordingTransport, local, plan_of, run_rounds, same

from fleet_merging.moments.measurement import Moments
from fleet_merging.moments.mixture import measure_mixture
from fleet_merging.queries.query import MixtureQuery, in_single_precision
from fleet_merging.queries.validity import checked_mixture
from fleet_tools.baselines.federated.compact import UploadConfig, decode, encode
from fleet_tools.baselines.federated.messages import LocalUpdate, size_of
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.federated.vectors import top_level
from fleet_tools.errors import ConfigError

SEEDS = st.integers(0, 2**32)
BITS = st.sampled_from([4, 8, 16])


def an_update(seed: int) -> LocalUpdate:
    """Returns an update of tensors of many shapes and types."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"w": (3, 5), "conv": (2, 3, 2, 2), "bias": (4,), "none": (0, 3), "scalar": ()}
    weights = {
        name: torch.randn(shape, generator=generator) * 10.0 ** int(seed % 7 - 3)
        for name, shape in shapes.items()
    }
    weights["half"], weights["count"] = weights["w"].bfloat16(), torch.tensor(seed)
    weights["on"] = torch.tensor([True, False])
    return LocalUpdate(2, 17, 0.25, weights)


def data_of(seed: int, size: int, rows: int = 400) -> torch.Tensor:
    """Returns rows with correlated numbers of many magnitudes, and a last one of 1."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(size, size, generator=generator).double() ** 3
    x = torch.relu(torch.randn(rows, size, generator=generator).double() @ mixing)
    return torch.cat([x, torch.ones(rows, 1).double()], 1)


def moments_of(seed: int, size: int = 12, outputs: int = 3) -> tuple[Moments, torch.Tensor]:
    """Returns moments as they are sent, and the data."""
    x = data_of(seed, size)
    t = torch.tanh(x @ torch.randn(size + 1, outputs).double() / 50)
    moments = Moments((x.T @ x / len(x))[None], (x.T @ t / len(x))[None])
    return in_single_precision(moments), torch.cat([x, t], 1)


@given(seed=SEEDS)
def test_without_fewer_bits_every_bit_arrives(seed):
    update = an_update(seed)
    found = decode(encode(update, UploadConfig()))
    assert same(found.weights, dict(update.weights))
    assert (found.round, found.steps, found.loss) == (update.round, update.steps, update.loss)


@given(seed=SEEDS, bits=BITS)
def test_matrices_are_within_half_a_level_and_all_else_is_as_it_was(seed, bits):
    update, config = an_update(seed), UploadConfig(bits=bits)
    sent = encode(update, config)
    found = decode(sent)
    assert encode(found, config) == sent  # so that a resumed round counts the same bytes
    for name, tensor in update.weights.items():
        if tensor.dtype != torch.float32 or tensor.dim() < 2:
            assert torch.equal(found.weights[name], tensor)
            continue
        rows, other = tensor.flatten(1), found.weights[name].flatten(1)
        step = rows.abs().amax(1, keepdim=True) / top_level(bits) if rows.numel() else 0
        assert bool(((rows - other).abs() <= step * (0.5 + 1e-5)).all())


@given(seed=SEEDS, bits=BITS, rank=st.integers(0, 15))
def test_second_moments_stay_those_of_some_data(seed, bits, rank):
    moments, _ = moments_of(seed)
    found = decode(encode({"a": moments}, UploadConfig(bits=bits, rank=rank)))["a"]
    G, H = moments.inputs[0], found.inputs[0]
    assert torch.equal(H, H.T) and float(H[-1, -1]) == pytest.approx(1, abs=1e-6)
    assert torch.allclose(H.diagonal(), G.diagonal(), rtol=1e-6)
    root = G.diagonal().clamp(min=1e-30).sqrt()
    assert float(torch.linalg.eigvalsh(H / root / root[:, None]).min()) > -1e-5
    if rank == 0 and bits == 16:
        assert torch.allclose(H / root / root[:, None], G / root / root[:, None], atol=1e-3)
        assert torch.allclose(found.targets, moments.targets, atol=1e-3 * float(root.max()))


def test_fewer_bits_and_axes_are_fewer_bytes_and_worse_fits():
    """Targets are fitted to inputs by moments, and the fit is judged on the data."""
    moments, data = moments_of(3, size=60)
    x, t = data[:, :61], data[:, 61:]

    def error(found: Moments) -> float:
        G = found.inputs[0] + 1e-3 * torch.diag(found.inputs[0].diagonal() + 1e-9)
        return float((x @ torch.linalg.solve(G, found.targets[0]) - t).square().mean())

    exact, sizes, errors = error(moments), [], []
    for config in (UploadConfig(), UploadConfig(bits=8), UploadConfig(bits=8, rank=10)):
        sent = encode({"a": moments}, config)
        sizes.append(len(sent))
        errors.append(error(decode(sent)["a"]) / exact)
    assert sizes == sorted(sizes, reverse=True) and sizes[1] < size_of({"a": moments}) / 2
    assert errors[0] == 1 and errors[1] < 1.05 and errors[1] < errors[2] < 10
    assert len(encode({"a": moments}, UploadConfig(bits=4))) == sizes[1]  # moments have 8 at least


@given(seed=SEEDS, bits=BITS, consecutive=st.booleans())
def test_a_mixture_stays_one_of_some_states(seed, bits, consecutive):
    generator = torch.Generator().manual_seed(seed)
    episodes = [torch.randn(6, 5, generator=generator).cumsum(0) for _ in range(12)]
    for rank in (0, 3):
        mixture = measure_mixture(episodes, 2, 0, rank, consecutive=consecutive)
        found = decode(encode(mixture, UploadConfig(bits=bits)))
        checked_mixture(found, MixtureQuery(2, 0, rank, consecutive=consecutive))
        assert found.starts == mixture.starts and torch.equal(found.weights, mixture.weights)
        assert torch.allclose(found.means, mixture.means, atol=0.05)


@given(seed=SEEDS)
def test_numbers_that_are_not_finite_arrive_so_that_they_are_refused(seed):
    update = an_update(seed)
    update.weights["w"][1, 2] = torch.inf if seed % 2 else torch.nan  # type: ignore[index]
    found = decode(encode(update, UploadConfig(bits=8)))
    assert not bool(torch.isfinite(found.weights["w"]).all())


MLP = {"body": {"type": "mlp", "layers": 2, "width": 6}}
ONCE: dict[str, Any] = {"policy": MLP, "merge_every": None, "split": {"by": "nothing"}}


def test_a_fleet_counts_the_bytes_that_arrive_and_merges_what_does(data: Path) -> None:
    plain = plan_of(data, **ONCE)
    few = plan_of(data, **ONCE, uploads={"bits": 8})
    transport = RecordingTransport(local(few))
    (one,), (other,) = run_rounds(plain), run_rounds(few, transport)
    config = UploadConfig(bits=8)
    for robot, _, answer in transport.exchanges:
        sent = encode(answer, config)  # type: ignore[arg-type]
        assert other.robots[robot].uploaded_bytes == len(sent)
        assert same(decode(sent).weights, dict(other.robot_weights[robot]))
        assert len(sent) < one.robots[robot].uploaded_bytes
    for name, tensor in one.weights.items():
        assert torch.allclose(tensor, other.weights[name], atol=0.02)
    assert other.loss == pytest.approx(one.loss, rel=0.05)


@pytest.mark.parametrize("method", ["density_gated_ensemble", "concatenation"])
def test_methods_that_ask_for_moments_and_mixtures_merge_what_arrives(
    data: Path, tmp_path: Path, method: str
) -> None:
    """Limits allow for the rounding, so that no honest robot is left out."""
    found = []
    for name, uploads in (("plain", None), ("few", {"bits": 8})):
        plan = plan_of(data, **ONCE, last_method=method, uploads=uploads)
        with FleetWriter(tmp_path / name, plan) as writer:
            found.append(complete(writer, local(plan))["combined"])
    plain, few = found
    assert not plain["left_out"] and not few["left_out"]
    assert few["loss"] == pytest.approx(plain["loss"], rel=0.1)
    for one, other in zip(plain["robots"], few["robots"], strict=True):
        assert other["uploaded_bytes"] < one["uploaded_bytes"]
    assert few["traffic"]["uploaded_bytes"] == sum(each["uploaded_bytes"] for each in few["robots"])


def test_streaming_fleets_have_bits_of_their_own(data):
    with pytest.raises(ConfigError, match="leave out `uploads`"):
        plan_of(data, initialization="common", streaming={}, uploads={"bits": 8})
