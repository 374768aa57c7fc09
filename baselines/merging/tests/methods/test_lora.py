"""Adapters of low rank in PEFT's layout: merged as products, whatever their factors."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from merging_support.foreign_networks import A, B, adapter
from torch import nn

from fleet_merging.adapters import alike, factors_of
from fleet_merging.errors import MergeError, ModelMismatchError
from fleet_merging.methods.lora import FACTORED, merged_products, with_changes
from fleet_merging.methods.registry import merge
from fleet_merging.methods.spectra import COMBINATIONS
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.table import Symmetry

SEEDS = st.integers(0, 999)
WEIGHT, CONFIG = "0.weight", {"peft_type": "LORA", "r": 2, "lora_alpha": 2}


def problem_of(*adapters):
    table = {name: " ".join("_" * tensor.dim()) for name, tensor in adapters[0].items()}
    return MergeProblem(Symmetry.of(table), adapters)


def product(state):
    return (state[B] @ state[A]).numpy()


@given(SEEDS, st.sampled_from(COMBINATIONS))
def test_the_merge_does_not_depend_on_the_factors(seed, by):
    """B M and M^-1 A make the same change; a mean of the factors would not."""
    adapters = [adapter(seed), adapter(seed + 1)]
    generator = torch.Generator().manual_seed(seed)
    M = torch.randn(2, 2, generator=generator, dtype=torch.float64) + 3 * torch.eye(2)
    other = {A: torch.linalg.solve(M, adapters[1][A]), B: adapters[1][B] @ M}
    one, two = (
        merged_products([adapters[0], each], by=by, configs=CONFIG).added[WEIGHT].numpy()
        for each in (adapters[1], other)
    )
    np.testing.assert_allclose(one, two, atol=1e-6)
    if by in FACTORED:
        one, two = (
            product(merge("lora", problem_of(adapters[0], each), by=by).state)
            for each in (adapters[1], other)
        )
        np.testing.assert_allclose(one, two, atol=1e-6)
    means = [product({k: (a[k] + b[k]) / 2 for k in (A, B)}) for a, b in
             ([adapters[0], adapters[1]], [adapters[0], other])]  # fmt: skip
    assert np.abs(means[0] - means[1]).max() > 1e-3


@given(SEEDS, st.integers(1, 4))
def test_the_merged_adapter_is_the_closest_of_its_rank_to_the_mean_product(seed, count):
    adapters = [adapter(seed + index) for index in range(count)]
    merged = merge("lora", problem_of(*adapters)).state
    mean = np.mean([product(each) for each in adapters], 0)
    U, S, V = np.linalg.svd(mean)
    np.testing.assert_allclose(product(merged), U[:, :2] * S[:2] @ V[:2], atol=1e-9)
    np.testing.assert_allclose(merged[A].norm(), merged[B].norm())


@given(SEEDS)
def test_copies_of_an_adapter_with_other_factors_are_that_adapter(seed):
    one = adapter(seed)
    two = {A: 2 * one[A].flip(0), B: one[B].flip(1) / 2}
    merged = merge("lora", problem_of(one, two)).state
    np.testing.assert_allclose(product(merged), product(one), atol=1e-9)


SHAPES = {
    "embed.lora_embedding_A": lambda r: (r, 9),
    "embed.lora_embedding_B": lambda r: (4, r),
    "block.q.lora_A.weight": lambda r: (r, 4),
    "block.q.lora_B.weight": lambda r: (5, r),
    "block.q.lora_B.bias": lambda r: (5,),
    "q.lora_A.weight": lambda r: (r, 5),
    "q.lora_B.weight": lambda r: (6, r),
    "conv.lora_A.weight": lambda r: (r, 2, 3, 2),
    "conv.lora_B.weight": lambda r: (4, r, 1, 1),
    "head.weight": lambda r: (3, 6),
    "block.q.base_layer.bias": lambda r: (5,),
}
"""Entries of an adapter by the rank: an embedding, layers, a kernel, and what is no factor."""
BASE = {
    "embed.weight": (9, 4), "block.q.weight": (5, 4), "block.q.bias": (5,), "q.weight": (6, 5),
    "conv.weight": (4, 2, 3, 2), "head.weight": (3, 6),
}  # fmt: skip
MODULES = ("embed", "block.q", "q", "conv")


def randn(shapes, seed):
    generator = torch.Generator().manual_seed(seed)
    kind = torch.float64
    return {n: torch.randn(s, generator=generator, dtype=kind) for n, s in shapes.items()}


@st.composite
def adapters_of_peft(draw):
    """Adapters, their configurations, and by hand the rank and the scale of each module."""
    config: dict[str, Any] = {"peft_type": "LORA", "r": draw(st.integers(1, 4)), "lora_alpha": 6}
    config["use_rslora"] = draw(st.booleans())
    ranks: Any = dict.fromkeys(MODULES, config["r"])
    alphas: Any = dict.fromkeys(MODULES, 6)
    if draw(st.booleans()):  # a suffix, a regular expression, and the first of two that match
        config["rank_pattern"] = {"conv": 2, r"block\..*": 3, "q": 1}
        config["alpha_pattern"] = {"^q$": 5, "q": 9}
        ranks |= {"conv": 2, "block.q": 3, "q": 1}
        alphas |= {"block.q": 9, "q": 5}
    shapes = {name: size(ranks.get(name.split(".lora_")[0])) for name, size in SHAPES.items()}
    root = math.sqrt if config["use_rslora"] else float
    scales = {module: alphas[module] / root(ranks[module]) for module in MODULES}
    state = randn(shapes, draw(SEEDS))
    state = {f"base_model.model.{name}": tensor for name, tensor in state.items()}
    return state, config, scales


def by_hand(base, state, scales):
    """Returns the weights of the adapted model, entry by entry."""
    of = {name.removeprefix("base_model.model."): tensor for name, tensor in state.items()}
    made = dict(base)
    made["head.weight"], made["block.q.bias"] = of["head.weight"], of["block.q.base_layer.bias"]
    made["block.q.bias"] = made["block.q.bias"] + scales["block.q"] * of["block.q.lora_B.bias"]
    rows = torch.einsum("ri,or->io", of["embed.lora_embedding_A"], of["embed.lora_embedding_B"])
    made["embed.weight"] = made["embed.weight"] + scales["embed"] * rows
    for module in ("block.q", "q"):
        a, b = (of[f"{module}.lora_{each}.weight"] for each in "AB")
        made[f"{module}.weight"] = made[f"{module}.weight"] + scales[module] * b @ a
    a, b = of["conv.lora_A.weight"], of["conv.lora_B.weight"][..., 0, 0]
    change = torch.einsum("or,rihw->oihw", b, a)
    made["conv.weight"] = made["conv.weight"] + scales["conv"] * change
    return made


@given(st.lists(adapters_of_peft(), min_size=1, max_size=3), SEEDS)
def test_adapters_of_any_ranks_and_scales_are_merged_to_the_mean_of_their_models(given_, seed):
    base, weights = randn(BASE, seed), [1.0, 3.0, 2.0][: len(given_)]
    states, configs, scales = zip(*given_, strict=True)
    merged = with_changes(base, merged_products(states, weights, configs=configs))
    models = [by_hand(base, state, s) for state, s in zip(states, scales, strict=True)]
    for name, tensor in merged.items():
        mean = sum(w * each[name] for w, each in zip(weights, models, strict=True)) / sum(weights)
        torch.testing.assert_close(tensor, mean)


@given(st.lists(adapters_of_peft(), min_size=1, max_size=3))
def test_adapters_made_alike_change_what_they_did_and_lose_only_small_singular_values(given_):
    """`lora` reads them; what it loses is what Eckart and Young say, and nothing else."""
    states, configs, _ = zip(*given_, strict=True)
    made, config = alike(states, configs)
    exact = merged_products(states, configs=configs)
    same = merged_products(made, configs=config)
    for name, tensor in exact.added.items():
        torch.testing.assert_close(same.added[name], tensor)
    merged = merge("lora", problem_of(*made)).state
    kept = merged_products([merged], configs=config)
    for each in factors_of(merged):
        full, got = (one.added[each.weight] for one in (exact, kept))
        axes = (1, 0) if each.is_embedding else (0, 1)
        left_out = torch.linalg.svdvals(full.movedim(axes, (0, 1)).flatten(1))[
            len(merged[each.A]) :
        ]
        torch.testing.assert_close((full - got).norm(), left_out.norm(), atol=1e-9, rtol=1e-7)
    for name, tensor in exact.replaced.items():
        torch.testing.assert_close(kept.replaced[name], tensor)
    torch.testing.assert_close(kept.added["block.q.bias"], exact.added["block.q.bias"])


@pytest.mark.parametrize("stored", [False, True])
@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_dora_gives_outputs_weights_of_the_learned_norms(stored, seed):
    """In PEFT's words: m (W + s B A) / norms of rows; as (inputs, outputs) in GPT-2's layers."""
    base = {"0.weight": randn({"w": (6, 5) if stored else (5, 6)}, seed)["w"]}
    magnitudes = [torch.rand(5, dtype=torch.float64) + 0.5 for _ in range(2)]
    models, states = [], []
    for index, m in enumerate(magnitudes):
        state = adapter(seed + index)
        W = base["0.weight"].T if stored else base["0.weight"]
        directed = W + 3 * state[B] @ state[A]
        models.append(torch.stack([m[i] * directed[i] / directed[i].norm() for i in range(5)]))
        states.append(state | {"base_model.model.0.lora_magnitude_vector": m})
    config = CONFIG | {"lora_alpha": 6, "use_dora": True, "fan_in_fan_out": stored}
    changes = merged_products(states, [1, 3], configs=config, base=base)
    expected = 0.25 * models[0] + 0.75 * models[1]
    got = with_changes(base, changes)["0.weight"]
    torch.testing.assert_close(got, expected.T if stored else expected)
    with pytest.raises(MergeError, match=r"DoRA.*`base`"):
        merged_products(states, configs=config)
    with pytest.raises(MergeError, match=r"lora_magnitude_vector belongs to DoRA.*merged_products"):
        merge("lora", problem_of(*states))


def test_a_layer_may_be_stored_otherwise_than_the_configuration_says_if_its_shape_shows_it():
    """PEFT stores one `fan_in_fan_out` for layers that differ."""
    base, config = {"0.weight": torch.zeros(6, 5).double()}, CONFIG | {"fan_in_fan_out": False}
    changes = merged_products([adapter(0)], configs=config)
    changed = with_changes(base, changes)["0.weight"].numpy()
    np.testing.assert_allclose(changed, product(adapter(0)).T)
    square = {k.replace(".0.", ".1."): v for k, v in adapter(1, inputs=5).items()}
    both = merged_products([adapter(0) | square], configs=config)
    with pytest.raises(MergeError, match=r"0\.weight show that `fan_in_fan_out`.*1\.weight"):
        with_changes(base | {"1.weight": torch.zeros(5, 5).double()}, both)


def test_convolutions_are_merged_as_kernels():
    generator = torch.Generator().manual_seed(0)
    names = {"c.lora_A.weight": (2, 3, 3, 3), "c.lora_B.weight": (4, 2, 1, 1)}
    state = {k: torch.randn(shape, generator=generator) for k, shape in names.items()}
    (change,) = merged_products([state], configs=CONFIG).added.values()
    image = torch.randn(1, 3, 5, 5, generator=generator).double()
    a, b = (state[name].double() for name in names)
    expected = nn.functional.conv2d(nn.functional.conv2d(image, a), b)
    torch.testing.assert_close(nn.functional.conv2d(image, change), expected)


C = "base_model.model.0.lora_"
BAD_STATES = {
    "no factors": ({"weight": torch.ones(2, 2)}, "it has none"),
    "a factor alone": ({A: torch.ones(2, 3)}, "have no partner"),
    "a second factor alone": (
        adapter(0) | {"1.lora_B.weight": torch.ones(2, 2)},
        "have no partner",
    ),
    "an embedding's factor alone": ({f"{C}embedding_A": torch.ones(2, 3)}, "have no partner"),
    "another rank": ({A: torch.ones(2, 3), B: torch.ones(2, 3)}, "has the rank 2"),
    "groups": ({A: torch.ones(2, 3, 3), B: torch.ones(4, 1, 1)}, "grouped"),
    "shards": ({A: torch.ones(0), B: torch.ones(0)}, "not matrices"),
    "AdaLoRA": (adapter(0) | {f"{C}E": torch.ones(2, 1)}, "lora_E.*merge_and_unload"),
    "tokens": (
        adapter(0) | {"e.token_adapter.trainable_tokens_delta": torch.ones(2, 1)},
        "token_adapter",
    ),
    "a model's own names": (
        adapter(0) | {"h.modules_to_save.default.weight": torch.ones(2, 1)},
        "modules_to_save",
    ),
    "several adapters": (
        {k.replace(".weight", f".{n}.weight"): v for k, v in adapter(0).items() for n in "ab"},
        "the adapters a, b",
    ),
    "a parameter": (
        adapter(0) | {k.replace("lora", "base_layer.lora"): v for k, v in adapter(0).items()},
        "target_parameters",
    ),
    "attention": (
        {k.replace("0.lora", "a.base_layer.out_proj.lora"): v for k, v in adapter(0).items()},
        "MultiheadAttention",
    ),
}
BAD_CONFIGS = {
    "another kind": ({"peft_type": "VERA"}, "peft_type 'VERA'.*merge_and_unload"),
    "the rank of another": ({"r": 3}, "says 3"),
    "no rank": ({"r": None}, "says None"),
    "no alpha": ({"lora_alpha": None}, "alpha of 0 is None"),
    "a pattern that is none": ({"rank_pattern": {"(": 2}}, "not a regular expression"),
    "the model's weights changed": (
        {"init_lora_weights": "PiSSA_niter_4"},
        "PiSSA_niter_4.*path_initial_model_for_weight_conversion",
    ),
    "a field of the future": ({"use_tomorrow": True}, "use_tomorrow"),
    "DoRA without norms": ({"use_dora": True}, "has no lora_magnitude_vector"),
}


@pytest.mark.parametrize("case", [*BAD_STATES, *BAD_CONFIGS])
def test_what_is_no_known_adapter_is_refused(case):
    state, words = BAD_STATES.get(case, (adapter(0), ""))
    config, words = BAD_CONFIGS.get(case, ({}, words))
    with pytest.raises(MergeError, match=words):
        merged_products([state], configs=CONFIG | config)


def test_names_of_adapters_do_not_matter():
    """As `model.state_dict()` has them."""
    named = {k.replace(".weight", ".default.weight"): v for k, v in adapter(0).items()}
    made, _ = alike([named, adapter(1)], [CONFIG] * 2)
    assert made[0].keys() == made[1].keys() == adapter(0).keys()


def test_adapters_and_weights_that_do_not_fit_are_refused():
    other = {k.replace(".0.", ".1."): v for k, v in adapter(0).items()}
    with pytest.raises(MergeError, match="different weights"):
        merged_products([adapter(0), other], configs=CONFIG)
    with pytest.raises(MergeError, match="different weights"):
        merged_products([adapter(0), adapter(0) | {"bias": torch.ones(2)}], configs=CONFIG)
    with pytest.raises(MergeError, match="2 adapters and 1 configurations"):
        merged_products([adapter(0), adapter(0)], configs=[CONFIG])
    for field in ("base_model_name_or_path", "revision"):
        names = [CONFIG | {field: each} for each in ("one", "other")]
        with pytest.raises(MergeError, match=rf"{field} is 'one' and 'other'.*use one name"):
            alike([adapter(0), adapter(1)], names)
    with pytest.raises(ModelMismatchError, match=r"adapters\.alike.*merged_products"):
        problem_of(adapter(0), adapter(0, rank=3))
    changes = merged_products([adapter(0)], configs=CONFIG)
    with pytest.raises(MergeError, match=r"0\.weight, which is missing"):
        with_changes({"1.weight": torch.ones(5, 6)}, changes)
    with pytest.raises(MergeError, match=r"has \(5, 7\)"):
        with_changes({"0.weight": torch.ones(5, 7)}, changes)
    for by in ("magic", "iso_c"):
        with pytest.raises(MergeError, match=f"combined by '{by}'"):
            merge("lora", problem_of(adapter(0)), by=by)
