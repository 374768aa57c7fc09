"""Low-rank adapters in PEFT's format: their factors, the weights that these change, and scales.

Facts are PEFT's, version 0.21 (https://github.com/huggingface/peft, `tuners/lora`). Unknown entries
and fields of a configuration are refused by name, as they may change the meaning of the factors.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fleet_merging.errors import MergeError
from fleet_merging.symmetry.table import State

CONFIG_FILE = "adapter_config.json"

Config = Mapping[str, Any]
"""Content of an `adapter_config.json`."""

_PARTS = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector")
_UNMERGEABLE = ("original_module", "modules_to_save", "token_adapter", "ranknum")
_READ = ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "fan_in_fan_out")
_WITHOUT_EFFECT = (
    "peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision",
    "inference_mode", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
    "lora_dropout", "bias", "modules_to_save", "init_lora_weights", "megatron_config",
    "megatron_core", "loftq_config", "eva_config", "corda_config", "lora_ga_config",
    "velora_config", "qalora_group_size", "ensure_weight_tying", "lora_bias", "use_dora",
)  # fmt: skip
"""Fields that do not change the meaning of factors, or only repeat the file's entries."""

_INITIALIZATIONS = (True, False, "gaussian", "eva", "orthogonal", "mica")
"""Initializations that leave the weights of the model unchanged."""

_DENSE = (
    "Merge each adapter into its model by PEFT's `merge_and_unload`, and merge the models, for "
    "instance by task_arithmetic with the model before as base."
)


@dataclass(frozen=True)
class Factors:
    """Entries of an adapter that change one weight.

    Attributes:
        weight: Name of the weight, "module.weight".
        A, B: Names of the factors (r, inputs, ...) and (outputs, r, ...); a linear layer's weight
            changes by s B A, an embedding's by its transpose.
        is_embedding: Whether the weight is an embedding's.
        bias: Name of a bias of B, which is added s times; None without one.
        magnitude: Name of DoRA's norms of the outputs' weights; None without one.
    """

    weight: str
    A: str
    B: str
    is_embedding: bool
    bias: str | None = None
    magnitude: str | None = None

    def product(self, adapter: State) -> torch.Tensor:
        """Returns B A, float64, (outputs, inputs, kernel ...)."""
        A, B = adapter[self.A].detach().double(), adapter[self.B].detach().double()
        return (B.flatten(1) @ A.flatten(1)).reshape(len(B), *A.shape[1:])


def factors_of(adapter: State) -> list[Factors]:
    """Returns the factors of an adapter, by the names of its entries.

    Raises a `MergeError` if a factor has no partner of its rank, for no factors or several
    adapters, and for an unknown entry, see `unfactored`.
    """
    unfactored(adapter)
    found: dict[str, dict[str, str]] = {}
    adapters: set[str] = set()
    for name in adapter:
        module, part, rest = _parsed(name)
        if part is None:
            continue
        kind = "bias" if part == "lora_B" and rest[-1:] == ["bias"] else part
        names = rest[:-1] if rest[-1:] in (["weight"], ["bias"]) else rest
        adapters.update(names)
        entries = found.setdefault(f"{_plain(module)}.weight", {})
        if kind in entries and entries[kind].split(f".{part}")[0] != name.split(f".{part}")[0]:
            raise MergeError(
                f"{entries[kind]} and {name} change the same weight, as `target_parameters` do. "
                f"Their factors are not supported. {_DENSE}"
            )
        entries[kind] = name
    if len(adapters) > 1:
        raise MergeError(
            f"The state dict has the adapters {', '.join(sorted(adapters))}. Give one adapter at a "
            "time, as `peft.get_peft_model_state_dict(model, adapter_name=...)` returns it."
        )
    pairs = [_pair(weight, entries, adapter) for weight, entries in found.items()]
    if not pairs:
        raise MergeError(
            "Expected pairs of entries lora_A and lora_B, or lora_embedding_A and "
            "lora_embedding_B; it has none. Give the adapter's own state dict, as PEFT stores it."
        )
    return pairs


def _pair(weight: str, entries: Mapping[str, str], adapter: State) -> Factors:
    is_embedding = "lora_embedding_A" in entries or "lora_embedding_B" in entries
    A, B = (entries.get(f"lora_embedding_{i}" if is_embedding else f"lora_{i}") for i in "AB")
    if A is None or B is None or (is_embedding and "lora_A" in entries):
        raise MergeError(
            f"Expected factors in pairs; {', '.join(entries.values())} have no partner. Give the "
            "adapter's own state dict, as PEFT stores it."
        )
    shapes = {name: tuple(adapter[name].shape) for name in (A, B)}
    if any(len(shape) < 2 or 0 in shape for shape in shapes.values()):
        raise MergeError(
            f"The factors {shapes} are not matrices. Gather the shards of a model (DeepSpeed, "
            "FSDP) before its adapter is stored."
        )
    rank, read = shapes[A][0], math.prod(shapes[B][1:])
    if rank != read:
        raise MergeError(
            f"{A} has the rank {rank}, and {B} {read}. Give the factors of one adapter. Adapters "
            "of grouped convolutions cannot be merged, neither here nor by PEFT."
        )
    return Factors(
        weight, A, B, is_embedding, entries.get("bias"), entries.get("lora_magnitude_vector")
    )


def unfactored(adapter: State) -> dict[str, str]:
    """Returns the names of entries that replace the model's, such as biases, by the model's names.

    Raises a `MergeError` if an entry changes a weight in an unknown way.
    """
    for name in adapter:
        parts = name.split(".")
        unknown = [
            part
            for part in parts[-3:]
            if part in _UNMERGEABLE or (part.startswith("lora_") and part not in _PARTS)
        ]
        if unknown:
            raise MergeError(
                f"{name} is not an entry of a supported adapter ({unknown[0]}). Give the adapter's "
                f"own state dict, as PEFT stores it. For an adapter of another kind: {_DENSE}"
            )
    return {_plain(name): name for name in adapter if _parsed(name)[1] is None}


def scale_of(config: Config, factors: Factors, adapter: State) -> float:
    """Returns s, alpha / r or alpha / sqrt(r), PEFT's factor of a product.

    Raises a `MergeError` if the configuration has another rank than the factors.
    """
    # PEFT wraps an attention's output projection together with it, by the attention's patterns.
    module = _plain(factors.A.split(".lora_")[0].split(".base_layer.")[0])
    rank = _of_pattern(config, "rank_pattern", module, config.get("r"))
    alpha = _of_pattern(config, "alpha_pattern", module, config.get("lora_alpha"))
    if rank != len(adapter[factors.A]):
        raise MergeError(
            f"{factors.A} has the rank {len(adapter[factors.A])}, but its {CONFIG_FILE} says "
            f"{rank!r}. Give the configuration of this adapter."
        )
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise MergeError(f"The configuration's alpha of {module} is {alpha!r}. Give a number.")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def require_known(config: Config) -> None:
    """Raises a `MergeError` unless the meaning of all fields of a configuration is known.

    It refuses other kinds of adapters, and adapters that change the model's initial weights.
    """
    kind = str(config.get("peft_type", "LORA")).rpartition(".")[2].upper()
    if kind != "LORA":
        raise MergeError(
            f"An adapter of the peft_type {kind!r} has more than the factors B and A. {_DENSE}"
        )
    begin = config.get("init_lora_weights", True)
    if (begin.lower() if isinstance(begin, str) else begin) not in _INITIALIZATIONS:
        raise MergeError(
            f"The configuration's init_lora_weights is {begin!r}, which changes the model's "
            "initial weights, so the factors are not relative to the original model. Convert the "
            "adapter by PEFT's `save_pretrained(..., "
            "path_initial_model_for_weight_conversion=...)`."
        )
    unknown = [name for name in config if config[name] and name not in _READ + _WITHOUT_EFFECT]
    if unknown:
        raise MergeError(
            f"The configuration sets {', '.join(unknown)}, which are not supported for factors. "
            f"{_DENSE}"
        )


def alike(
    adapters: Sequence[State], configs: Sequence[Config]
) -> tuple[list[dict[str, torch.Tensor]], dict[str, Any]]:
    """Returns the same adapters with one configuration, as inputs of the method `lora`.

    If ranks differ, factors get rows and columns of zeros up to the largest rank. If ranks or
    scales differ, B is multiplied by s. No product changes. Names of entries are without PEFT's
    names of adapters.

    Raises:
        MergeError: Adapters are not of the same weights; see `pairs_of` and `scale_of`.
    """
    pairs = pairs_of(adapters, configs)
    scales = [
        {weight: scale_of(config, each, adapter) for weight, each in of_one.items()}
        for of_one, adapter, config in zip(pairs, adapters, configs, strict=True)
    ]
    ranks = [
        {weight: len(adapter[each.A]) for weight, each in of_one.items()}
        for of_one, adapter in zip(pairs, adapters, strict=True)
    ]
    same = all(each == scales[0] for each in scales) and all(each == ranks[0] for each in ranks)
    largest = {weight: max(each[weight] for each in ranks) for weight in ranks[0]}
    made = []
    for of_one, adapter, s in zip(pairs, adapters, scales, strict=True):
        state = dict(adapter)
        for weight, each in of_one.items() if not same else ():
            grown = largest[weight] - len(adapter[each.A])
            # Half precision would round the scaled factors.
            kind = torch.promote_types(adapter[each.B].dtype, torch.float32)
            A, B = adapter[each.A].to(kind), s[weight] * adapter[each.B].to(kind)
            state[each.A] = torch.cat([A, A.new_zeros(grown, *A.shape[1:])])
            state[each.B] = torch.cat([B, B.new_zeros(len(B), grown, *B.shape[2:])], 1)
            if each.bias is not None:
                state[each.bias] = s[weight] * adapter[each.bias].to(kind)
        made.append({_without_adapter(name): tensor for name, tensor in state.items()})
    config = dict(configs[0])
    if not same:
        rank = max(largest.values())
        # PEFT takes the first pattern that ends a name, so long ones come first.
        names = sorted(largest, key=len, reverse=True) if min(largest.values()) < rank else ()
        pattern = {re.escape(each.removesuffix(".weight")): largest[each] for each in names}
        config |= {"r": rank, "lora_alpha": rank, "use_rslora": False}
        config |= {"rank_pattern": pattern, "alpha_pattern": pattern}
    return made, config


def pairs_of(adapters: Sequence[State], configs: Sequence[Config]) -> list[dict[str, Factors]]:
    """Returns the factors of each adapter by the weights that they change.

    Raises a `MergeError` as `factors_of` and `require_known` do, or if adapters have different
    models or change different weights.
    """
    if len(configs) != len(adapters):
        raise MergeError(
            f"There are {len(adapters)} adapters and {len(configs)} configurations. Give each its "
            "own, the content of its adapter_config.json, or one for all."
        )
    for config in configs:
        require_known(config)
        for name in ("base_model_name_or_path", "revision"):
            models = [each.get(name) for each in (configs[0], config)]
            if models[0] != models[1]:
                raise MergeError(
                    f"Adapters have different backbones: {name} is {models[0]!r} and "
                    f"{models[1]!r}. Train all adapters on one model. If both mean the same "
                    "model, use one name in each adapter_config.json."
                )
    pairs = [{each.weight: each for each in factors_of(adapter)} for adapter in adapters]
    require_same_names(pairs, "change different weights")
    return pairs


def require_same_names(adapters: Sequence[Mapping[str, Any]], what: str) -> None:
    """Raises a `MergeError` unless all adapters have the same names; `what` describes these."""
    for index, each in enumerate(adapters):
        if differing := sorted(set(each) ^ set(adapters[0])):
            raise MergeError(
                f"Adapters 0 and {index} {what}: only one of them has {', '.join(differing)}. "
                "Merge adapters of the same weights."
            )


def _parsed(name: str) -> tuple[str, str | None, list[str]]:
    """Returns the module's name, an adapter's part and the rest; None for no part."""
    parts = name.split(".")
    index = next((i for i, part in enumerate(parts) if part in _PARTS), None)
    if index is None:
        return name, None, []
    return ".".join(parts[:index]), parts[index], parts[index + 1 :]


def _plain(name: str) -> str:
    """Returns the model's name of a weight or module, without the names of PEFT's wrappers."""
    parts = name.removeprefix("base_model.model.").split(".")
    return ".".join(part for part in parts if part != "base_layer")


def _without_adapter(name: str) -> str:
    module, part, rest = _parsed(name)
    if part is None:
        return name
    kept = rest[-1:] if rest[-1:] in (["weight"], ["bias"]) and part in ("lora_A", "lora_B") else []
    return ".".join([module, part, *kept])


def _of_pattern(config: Config, field: str, module: str, default: Any) -> Any:
    """Returns the value of the first pattern that matches as in PEFT's `get_pattern_key`."""
    for pattern, value in (config.get(field) or {}).items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except re.error as error:
            raise MergeError(
                f"{field} has {pattern!r}, which is not a regular expression: {error}."
            ) from None
    return default
