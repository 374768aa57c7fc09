"""REPAIR: units of the merged network have the means and deviations of the models' units."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("safetensors")

from merging_support.problems import WIDE, make_data_holder, maps_of

from fleet_merging.errors import MergeError
from fleet_merging.matching.activations import record
from fleet_merging.methods.registry import merge
from fleet_merging.modules import recompute
from fleet_merging.problem import MergeProblem

UNITS = {"mlp": ("0", "2"), "elman": (), "conv": ("0",)}


def problem_of(kind, states, **fields):
    """Returns the problem of merging models, each with other inputs."""
    architecture = WIDE[kind]
    model = architecture.build()
    inputs = [architecture.example() + index for index in range(len(states))]
    targets = torch.zeros(model(inputs[0]).detach().reshape(-1, 2).shape)
    holders = [make_data_holder(architecture, targets, each) for each in inputs]
    problem = MergeProblem(
        architecture.symmetry,
        states,
        data_holders=holders,
        affine_maps=maps_of(architecture),
        module=model,
        example=inputs[0],
        **fields,
    )
    return problem, torch.cat(inputs)


def statistics(kind, state, inputs):
    """Returns means and deviations of what hidden maps return, by running the network."""
    modules = {name: name for name in UNITS[kind]}
    dims = {name: 1 for name in UNITS[kind]} if kind == "conv" else None
    read = record(WIDE[kind].build(), state, inputs, modules, dims)
    return {name: (rows.mean(0), rows.std(0, correction=0)) for name, rows in read.items()}


def test_hidden_units_have_the_mean_statistics_of_the_models():
    problem, inputs = problem_of("mlp", [WIDE["mlp"].build(s).state_dict() for s in range(3)])
    merged = merge("repair", problem, alignment="weights")
    permuted = problem.permuted(merged.permutations)
    of_models = [statistics("mlp", each, inputs) for each in permuted]
    for name, (mean, deviation) in statistics("mlp", merged.state, inputs).items():
        for found, index in ((mean, 0), (deviation, 1)):
            expected = torch.stack([each[name][index] for each in of_models]).mean(0)
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    # An average without it has collapsed.
    plain = statistics("mlp", merge("git_rebasin", problem).state, inputs)
    spread = torch.stack([each["2"][1] for each in of_models]).mean()
    assert plain["2"][1].mean() < 0.9 * spread
    assert merged.traffic.calls == 3 * 3 + 3 * 2


@pytest.mark.parametrize("kind", ["mlp", "elman", "transformer"])
def test_permuted_copies_are_merged_to_their_function(kind):
    architecture = WIDE[kind]
    state = architecture.build().state_dict()
    group = architecture.symmetry.group(state)
    generator = np.random.default_rng(0)
    states = [architecture.symmetry.apply(group.random(generator), state) for _ in range(3)]
    problem, _ = problem_of(kind, states)
    merged = merge("repair", problem)
    torch.testing.assert_close(
        architecture.outputs(architecture.build(), merged.state),
        architecture.outputs(architecture.build(), state),
        rtol=1e-3,
        atol=1e-3,
    )


def test_statistics_of_a_batch_norm_are_measured_on_the_data_of_all():
    problem, inputs = problem_of("conv", [WIDE["conv"].build(s).state_dict() for s in range(3)])
    merged = merge("repair", problem).state
    plain = merge("git_rebasin", problem).state
    again = recompute(WIDE["conv"].build(), plain, [inputs])
    for name, tensor in merged.items():
        expected = again[name] if "running" in name else plain[name]
        # PyTorch's variance is that of a sample; messages are in single precision.
        torch.testing.assert_close(tensor, expected, rtol=5e-3, atol=1e-4)


def test_the_order_of_models_does_not_matter_and_what_is_missing_is_said():
    states = [WIDE["conv"].build(s).state_dict() for s in range(3)]
    problem, _ = problem_of("conv", states, averaging_weights=[1, 2, 4])
    one = merge("repair", problem, alignment="none").state
    order = [2, 0, 1]
    other = replace(
        problem,
        models=[states[i] for i in order],
        averaging_weights=[4, 1, 2],
        data_holders=[problem.data_holders[i] for i in order],
    )
    for name, tensor in merge("repair", other, alignment="none").state.items():
        torch.testing.assert_close(tensor, one[name])
    for missing in ({"module": None}, {"example": None}, {"data_holders": ()}, {"affine_maps": ()}):
        (name,) = missing
        with pytest.raises(MergeError, match=rf"\({name}\)"):
            merge("repair", replace(problem, **missing))
