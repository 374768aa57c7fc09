"""Ensembles as merging methods: gates, fitted last layers, blocks on a diagonal, and students."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from merging_support.architectures import Architecture
from merging_support.problems import WIDE, make_data_holder, make_problem, resized
from scipy.special import softmax
from scipy.stats import multivariate_normal
from torch import nn

from fleet_merging.errors import MergeError
from fleet_merging.methods.ensembles import _gaussian
from fleet_merging.methods.partition import block_diagonal
from fleet_merging.methods.registry import merge
from fleet_merging.moments.measurement import Moments
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.query import in_single_precision
from fleet_merging.queries.traffic import DataHolderError

ENSEMBLES = ("ensemble", "density_gated_ensemble", "gated_refit", "concatenation", "partition")
KINDS = sorted(WIDE)


def inputs_of(architecture: Architecture, robot: int) -> torch.Tensor:
    """Returns inputs of one robot, which lie elsewhere than those of the others."""
    generator = torch.Generator().manual_seed(robot)
    example = architecture.example()
    return torch.randn(example.shape, generator=generator).to(example) + 2.0 * (robot % 3)


@torch.no_grad()
def labels_of(kind: str, robot: int, seed: int) -> torch.Tensor:
    """Returns what the network of a seed makes of a robot's inputs."""
    return WIDE[kind].build(seed).eval()(inputs_of(WIDE[kind], robot))


def problem_of(kind: str, count: int = 3, same: bool = False, **fields) -> MergeProblem:
    """Returns a problem of robots whose labels are those of a network of their own."""
    architecture = WIDE[kind]
    models, holders = [], []
    for robot in range(count):
        inputs = inputs_of(architecture, robot)
        models.append(architecture.build(0 if same else robot).eval().state_dict())
        labels = labels_of(kind, robot, 0 if same else 10 + robot)
        holders.append(make_data_holder(architecture, labels, inputs))
    return make_problem(architecture, models, holders, **fields)


@torch.no_grad()
def computed(result: MergeResult, inputs: torch.Tensor) -> torch.Tensor:
    return result.model(inputs)


@pytest.mark.parametrize("method", ENSEMBLES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_ensemble_of_equal_models_is_the_model(kind, method):
    """Their labels are the model's own outputs, so that refitted last layers are the old ones."""
    problem = problem_of(kind, same=True)
    inputs = inputs_of(WIDE[kind], 7)
    with torch.no_grad():
        expected = WIDE[kind].build(0).eval()(inputs)
    torch.testing.assert_close(
        computed(merge(method, problem), inputs), expected, rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("method", ENSEMBLES)
@pytest.mark.parametrize("kind", KINDS)
def test_order_and_permuted_copies_do_not_matter(kind, method):
    problem = problem_of(kind)
    group, generator = problem.group, np.random.default_rng(0)
    copies = [problem.symmetry.apply(group.random(generator), each) for each in problem.models]
    turned = replace(problem, models=copies[::-1], data_holders=problem.data_holders[::-1])
    inputs = inputs_of(WIDE[kind], 7)
    first, second = (computed(merge(method, each), inputs) for each in (problem, turned))
    torch.testing.assert_close(first, second, rtol=2e-3, atol=2e-3 * float(first.abs().max()))


def test_the_gate_is_that_of_gaussians_by_another_route():
    problem = problem_of("mlp")
    result = merge("density_gated_ensemble", problem, sharpness=0.3)
    inputs = inputs_of(WIDE["mlp"], 1)
    with torch.no_grad():
        outputs = [WIDE["mlp"].build(robot).eval()(inputs).numpy() for robot in range(3)]
    logarithms = []
    for robot in range(3):
        own = inputs_of(WIDE["mlp"], robot).double().numpy()
        covariance = np.cov(own.T, bias=True) + 0.1 * np.eye(3)
        density: Any = multivariate_normal
        logarithms.append(density(own.mean(0), covariance).logpdf(inputs))
    weights = softmax(0.3 * np.stack(logarithms), 0)
    expected = (np.stack(outputs) * weights[..., None]).sum(0)
    np.testing.assert_allclose(computed(result, inputs), expected, rtol=1e-3, atol=1e-4)
    assert result.traffic.calls == 3
    assert result.parameters == 3 * sum(each.numel() for each in problem.models[0].values())


def test_a_last_layer_is_least_squares_on_all_units_by_another_route():
    problem, result = problem_of("mlp"), merge("concatenation", problem_of("mlp"))
    networks: list[Any] = [WIDE["mlp"].build(robot).eval() for robot in range(3)]

    @torch.no_grad()
    def units(inputs: torch.Tensor) -> np.ndarray:
        rows = [network[:4](inputs).double().numpy() for network in networks]
        return np.pad(np.hstack(rows), ((0, 0), (0, 1)), constant_values=1.0)

    data = [inputs_of(WIDE["mlp"], robot) for robot in range(3)]
    with torch.no_grad():
        labels = [WIDE["mlp"].build(10 + i).eval()(x).double().numpy() for i, x in enumerate(data)]
    x = np.vstack([units(each) for each in data])
    heads = [network[4].weight.detach().double().numpy() for network in networks]
    bias = np.mean([network[4].bias.detach().double().numpy() for network in networks], 0)
    prior = np.vstack([np.hstack(heads).T / 3, bias])
    damping = np.sqrt(1e-3 * np.square(x).mean() * len(x)) * np.eye(x.shape[1])
    fitted, *_ = np.linalg.lstsq(
        np.vstack([x, damping]), np.vstack([np.vstack(labels), damping @ prior])
    )
    inputs = inputs_of(WIDE["mlp"], 7)
    np.testing.assert_allclose(computed(result, inputs), units(inputs) @ fitted, atol=2e-3)
    assert not problem.models[0].keys() - result.members[0].keys()


@pytest.mark.parametrize("kind", ["mlp", "conv", "elman", "lstm", "gru"])
def test_a_partition_is_one_network_of_the_function_of_the_ensemble(kind):
    problem = problem_of(kind, resized=resized(kind, 3))
    merged, beside = merge("partition", problem), merge("concatenation", problem)
    assert not merged.is_ensemble and beside.is_ensemble
    inputs = inputs_of(WIDE[kind], 7)
    torch.testing.assert_close(
        computed(merged, inputs), computed(beside, inputs), rtol=1e-3, atol=1e-4
    )
    # As a state dict of the wide network, which anyone can load.
    network = resized(kind, 3)
    network.load_state_dict(merged.state)
    with torch.no_grad():
        torch.testing.assert_close(network(inputs), computed(merged, inputs))


def test_blocks_of_different_widths_lie_on_the_diagonal():
    small = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 2))
    large = WIDE["mlp"].build(1)
    small = small.double()
    states = [small.state_dict(), large.state_dict()]
    state = block_diagonal(WIDE["mlp"].symmetry, states, {"4.bias"})
    assert state["2.weight"].shape == (29, 34)
    assert not state["2.weight"][:5, 2:].any() and not state["2.weight"][5:, :2].any()
    inputs = inputs_of(WIDE["mlp"], 0)
    joined = nn.Sequential(
        nn.Linear(3, 34), nn.ReLU(), nn.Linear(34, 29), nn.ReLU(), nn.Linear(29, 2)
    )
    joined.double().load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(joined(inputs), small(inputs) + large(inputs))


def test_a_wide_network_that_mixes_the_units_of_all_is_refused():
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(3, 48), nn.Linear(48, 2)
            self.layer = nn.TransformerEncoderLayer(48, 8, 40, dropout=0.0, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.layer(self.into(x)))

    problem = problem_of("transformer", 2, resized=Attending().double().eval())
    with pytest.raises(MergeError, match="LayerNorm"):
        merge("partition", problem)
    with pytest.raises(MergeError, match=r"has to be \(96, 3\)|has to be"):
        merge("partition", problem_of("mlp", 3, resized=resized("mlp", 2)))


@pytest.mark.parametrize("teacher", ["density_gated_ensemble", "concatenation", "mean"])
def test_a_student_comes_closer_to_its_teacher(teacher):
    problem = problem_of("mlp")
    inputs = torch.cat([inputs_of(WIDE["mlp"], robot) for robot in range(3)])
    problem = replace(problem, inputs=lambda: [(inputs,)])
    result = merge("distillation", problem, teacher=teacher, steps=300)
    start = merge("naive_average", problem)
    if teacher == "mean":
        with torch.no_grad():
            taught = torch.stack([WIDE["mlp"].build(i).eval()(inputs) for i in range(3)]).mean(0)
    else:
        taught = computed(merge(teacher, problem), inputs)
    before, after = (
        float((computed(each, inputs) - taught).square().mean()) for each in (start, result)
    )
    assert not result.is_ensemble and after < 0.3 * before
    assert result.parameters == start.parameters


def test_a_student_learns_from_states_of_the_gate_whatever_the_order():
    problem = problem_of("mlp")
    again = replace(problem, models=problem.models[::-1], data_holders=problem.data_holders[::-1])
    results = [merge("distillation", each, steps=200) for each in (problem, again)]
    for name, tensor in results[0].state.items():
        torch.testing.assert_close(results[1].state[name], tensor, rtol=1e-4, atol=1e-5)
    inputs = inputs_of(WIDE["mlp"], 0)
    taught = computed(merge("density_gated_ensemble", problem), inputs)
    start = computed(merge("naive_average", problem), inputs)
    after = computed(results[0], inputs)
    assert (after - taught).square().mean() < 0.5 * (start - taught).square().mean()


def seen_by(kind: str, robot: int) -> list[torch.Tensor]:
    """Returns a robot's inputs as the states of episodes."""
    inputs = inputs_of(WIDE[kind], robot)
    return list(inputs.reshape(-1, 5, inputs.shape[-1]) if inputs.dim() == 2 else inputs)


@pytest.mark.parametrize(("kind", "start"), [("mlp", "average"), ("gru", "structured_compression")])
def test_a_student_learns_from_mixtures_what_its_teacher_does_whatever_the_order(kind, start):
    """It reads no state of the data: each robot sends Gaussians alone, in one message."""
    problem = problem_of(kind, with_memory=kind == "gru")
    given: Any = problem.data_holders
    holders = [
        replace(holder, episodes=lambda model, robot=robot: seen_by(kind, robot))
        for robot, holder in enumerate(given)
    ]
    problem = replace(problem, data_holders=holders)
    again = replace(problem, models=problem.models[::-1], data_holders=holders[::-1])
    options: Any = {"teacher": "concatenation", "start": start, "mixtures": 3, "steps": 400}
    result, other = (merge("distillation", each, **options) for each in (problem, again))
    for name, tensor in result.state.items():
        torch.testing.assert_close(other.state[name], tensor, rtol=1e-2, atol=1e-3)
    inputs = torch.cat([inputs_of(WIDE[kind], robot) for robot in range(3)])
    taught = computed(merge("concatenation", problem), inputs)
    before, after = (
        float((computed(each, inputs) - taught).square().mean())
        for each in (merge("naive_average" if start == "average" else start, problem), result)
    )
    assert after < 0.7 * before
    once = merge("distillation", problem, **{**options, "steps": 0})
    assert once.traffic == result.traffic


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_a_student_whose_last_layer_is_refitted_has_the_least_loss_that_this_layer_allows(kind):
    problem = problem_of(
        kind,
        with_memory=kind == "gru",
        inputs=lambda: [(inputs_of(WIDE[kind], robot),) for robot in range(3)],
    )
    options: Any = {"teacher": "concatenation", "steps": 100}
    before = merge("distillation", problem, **options)
    after = merge("distillation", problem, **options, refit=1e-9)
    last = problem.affine_maps[-1].name
    changed = {name for name, each in after.state.items() if not each.equal(before.state[name])}
    assert changed == {f"{last}.weight", f"{last}.bias"}
    assert after.traffic.calls > before.traffic.calls
    module = WIDE[kind].build(0).eval()
    module.load_state_dict(after.state)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    head = module.get_submodule(last).requires_grad_(True)
    errors = [
        module(inputs_of(WIDE[kind], robot)) - labels_of(kind, robot, 10 + robot)
        for robot in range(3)
    ]
    loss = torch.stack(errors).square().mean()
    gradients = torch.autograd.grad(loss, list(head.parameters()))
    assert max(float(each.abs().max()) for each in gradients) < 1e-4
    with pytest.raises(MergeError, match="at least 0"):
        merge("distillation", problem, refit=-1.0)


def test_mixtures_of_other_states_are_refused_by_their_holder():
    problem = problem_of("mlp")
    given: Any = problem.data_holders
    holders = [
        replace(holder, episodes=lambda model, size=size: [torch.rand(5, size)] * 5)
        for size, holder in zip((3, 3, 4), given, strict=True)
    ]
    with pytest.raises(DataHolderError, match="states of 4 numbers"):
        merge("distillation", replace(problem, data_holders=holders), mixtures=2)


def test_states_of_a_gate_are_no_trajectories():
    with pytest.raises(MergeError, match="unlabelled"):
        merge("distillation", problem_of("gru"), steps=1)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("density_gated_ensemble", {"sharpness": 0.0}, "above 0"),
        ("concatenation", {"ridge": -1.0}, "above 0"),
        ("distillation", {"teacher": "nobody"}, "known are"),
        ("distillation", {"rate": 0.0}, "above 0"),
        ("distillation", {"mixtures": -1}, "at most 256 Gaussians"),
    ],
)
def test_options_out_of_range_are_named(method, options, message):
    with pytest.raises(MergeError, match=message):
        merge(method, problem_of("mlp"), **options)


def test_outputs_that_are_not_those_of_the_last_layer_are_not_fitted():
    """A softmax after the last layer: least squares of labels would fit something else."""
    problem = problem_of("mlp", output=lambda outputs: outputs.softmax(-1))
    for method in ("concatenation", "gated_refit"):
        with pytest.raises(MergeError, match="fits the last affine map"):
            merge(method, problem)
    assert merge("density_gated_ensemble", problem).is_ensemble


def test_an_ensemble_has_no_state_dict_of_one_network():
    result = merge("density_gated_ensemble", problem_of("mlp"))
    with pytest.raises(MergeError, match="ensemble of 3"):
        _ = result.state
    with pytest.raises(MergeError, match="module"):
        _ = replace(result, module=None).model


def test_moments_of_no_data_are_refused_by_their_holder():
    """A liar's moments would end the gate with an error of linear algebra."""

    class Liar:
        def __init__(self, honest):
            self.honest = honest

        def answer(self, query):
            return {
                name: replace(each, inputs=each.inputs - 10.0 * torch.eye(each.inputs.shape[-1]))
                for name, each in self.honest.answer(query).items()
            }

    problem = problem_of("mlp")
    liar = Liar(problem.data_holders[1])
    lying = replace(problem, data_holders=[problem.data_holders[0], liar, problem.data_holders[2]])
    for method in ("density_gated_ensemble", "gated_refit"):
        with pytest.raises(DataHolderError, match="No data have") as raised:
            merge(method, lying)
        assert raised.value.holder is liar


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e7, 1e9])
def test_a_gaussian_of_inputs_of_any_scale_whitens_them(scale):
    """Of float32, products of large numbers leave no small variance; its square root stays one."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 6, generator=generator).double()
    rows[:, :2] = rows[:, :2] * scale + 3 * scale
    inputs = torch.nn.functional.pad(rows, (0, 1), value=1.0)
    G = inputs.T @ inputs / 50
    moments = in_single_precision(Moments(G[None], G[None, :, :0]))
    mean, factor = _gaussian(moments, 6, torch.ones(6))
    assert torch.isfinite(factor).all() and (factor.diagonal() > 0).all()
    assert torch.equal(factor, factor.tril()) and torch.isfinite(mean).all()
    precision = factor.double() @ factor.double().T
    covariance = torch.cov(rows[:, 2:].T, correction=0) + 0.1 * torch.eye(4)
    if scale <= 1e3:
        torch.testing.assert_close(
            torch.linalg.inv(precision)[2:, 2:], covariance, rtol=0.05, atol=0.05
        )
