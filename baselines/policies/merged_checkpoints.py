"""Checkpoints of policies as a merge problem, and the merged policy."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from fleet_merging.average import AveragingWeights
from fleet_merging.errors import MergeError
from fleet_merging.modules import keeps_statistics, recompute
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.problem import Encoders, MergeProblem, MergeResult, Teacher
from fleet_merging.queries.data_holder import DataHolder, LocalDataHolder
from fleet_merging.symmetry.table import State
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import GateConfig
from fleet_tools.baselines.policies.heads import first_noise, process_of, regression
from fleet_tools.baselines.policies.network import ENCODER_MODULES, FEATURES
from fleet_tools.baselines.policies.part_configs import LinearHeadConfig, OwnClassConfig

_BY_FEATURES = ("density_gated_ensemble", "gated_refit", "distillation")
"""Methods that need the end of the encoders."""


def checkpoint_problem(
    blueprint: Blueprint,
    models: Sequence[State],
    data_holders: Sequence[DataHolder] = (),
    shared: LocalDataHolder | None = None,
    *,
    averaging_weights: AveragingWeights | None = None,
    base: State | None = None,
    seed: int = 0,
    method: str = "",
) -> MergeProblem:
    """Returns the problem of merging policies of one blueprint.

    Args:
        blueprint: Blueprint of all of them.
        models: Their weights.
        data_holders: Holder of each one's data.
        shared: Holder of common data, which also gives the statistics of BatchNorms.
        averaging_weights: See `MergeProblem`.
        base: See `MergeProblem`.
        seed: See `MergeProblem`.
        method: The method, to check that it is possible.

    Raises:
        MergeError: The method uses features of encoders, and their use in the body is unknown; or
            the policies are ensembles themselves.
        FleetToolsError: See `MergeProblem`.
    """
    symmetry, network = blueprint.symmetry(), blueprint.create().eval()
    maps = blueprint.affine_maps()
    encoders = _encoders(blueprint, maps)
    if method in _BY_FEATURES and encoders is None and blueprint.config.encoders:
        raise MergeError(
            f"{method} must know how the body uses the features of encoders, which is unknown for "
            "a keypoint detector and for your own class of bodies. Choose concatenation, which "
            "works for all policies."
        )
    wide = _side_by_side(blueprint, len(models)) if method == "partition" else None
    has_norms = any(map(keeps_statistics, network.modules()))
    return MergeProblem(
        symmetry,
        models,
        averaging_weights,
        data_holders,
        shared,
        maps,
        seed=seed,
        base=base,
        module=network,
        example=blueprint.arguments(),
        output=_actions,
        state_size=_state_size(blueprint, network if encoders is not None else None),
        with_memory=blueprint.with_memory,
        arguments_of=partial(
            _arguments_of,
            blueprint,
            _features if encoders is not None else partial(observations_of, blueprint),
        ),
        encoders=encoders,
        inputs=partial(_read, shared) if shared is not None and blueprint.with_memory else None,
        resized=None if wide is None else wide.create().eval(),
        at_width=partial(_network_of_width, blueprint),
        finish=dict if shared is None or not has_norms else partial(_finished, network, shared),
    )


def merged_checkpoint(
    blueprint: Blueprint, result: MergeResult, notes: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Returns the merged policy: a network, or several as a density-gated or uniform ensemble.

    Args:
        blueprint: Blueprint of the merged policies.
        result: The result of `checkpoint_problem`'s merge.
        notes: See `Checkpoint`.
    """
    if not result.is_ensemble:
        state = result.state
        return Checkpoint(blueprint_like(blueprint, state) or blueprint, state, notes or {})
    gate, members = result.gate, len(result.members)
    config = GateConfig(members=members, sharpness=0.0)
    if gate is not None:
        config = GateConfig(members=members, sharpness=gate.sharpness, reader=gate.reader)
    gated = blueprint.model_copy(
        update={"config": blueprint.config.model_copy(update={"gate": config})}
    )
    weights = {
        f"members.{index}.{name}": tensor
        for index, member in enumerate(result.members)
        for name, tensor in member.items()
    }
    if gate is not None:
        weights |= {"gate.means": gate.means, "gate.factors": gate.factors}
    in_order = {name: weights[name] for name in gated.create_empty().state_dict()}
    return Checkpoint(gated, in_order, notes or {})


def network_like(blueprint: Blueprint, state: State) -> torch.nn.Module | None:
    """Returns the network of a blueprint with the width of some weights; None if it has none.

    Args:
        blueprint: The blueprint.
        state: The weights, perhaps not of a policy.
    """
    resized = blueprint_like(blueprint, state)
    return None if resized is None else resized.create().eval()


def blueprint_like(blueprint: Blueprint, state: State) -> Blueprint | None:
    """Returns a blueprint with the width of some weights; see `network_like`."""
    own, given = _shapes(blueprint.create_empty().state_dict()), _shapes(state)
    if own == given:
        return blueprint
    name = next((name for name in own if name.startswith("head.")), "")  # a weight, (out, in)
    body: Any = blueprint.config.body
    if len(given.get(name, ())) != 2 or not hasattr(body, "width"):
        return None
    resized = blueprint.with_width(body.width + given[name][1] - own[name][1])
    # A network without numbers takes no memory at any width.
    fits = resized is not None and _shapes(resized.create_empty().state_dict()) == given
    return resized if fits else None


def _shapes(state: State) -> dict[str, torch.Size]:
    return {name: each.shape for name, each in state.items()}


def _network_of_width(blueprint: Blueprint, width: int) -> torch.nn.Module:
    resized = blueprint.with_width(width)
    if resized is None:
        raise MergeError(
            f"A policy with the body {blueprint.config.body.type!r} has no width to change; only "
            "an MLP or a recurrent body has. Leave out `width`."
        )
    return resized.create().eval()


def _side_by_side(blueprint: Blueprint, times: int) -> Blueprint | None:
    """Returns a blueprint as wide as several policies together; None if blocks do not fit it."""
    body: Any = blueprint.config.body
    if blueprint.config.encoders or blueprint.config.conditioned_on_task:
        return None
    return blueprint.with_width(times * body.width) if hasattr(body, "width") else None


def _actions(outputs: Any) -> torch.Tensor:
    return outputs[0]  # without the hidden state


def _state_size(blueprint: Blueprint, encoding: Any) -> int | None:
    """Returns the number of numbers of a state, or of features of a network with encoders."""
    if encoding is not None:
        with torch.no_grad():
            return encoding.features(blueprint.example()).shape[-1]
    return sum(len(blueprint.scaling.mean[name]) for name in blueprint.names("state")) or None


def _encoders(blueprint: Blueprint, maps: Sequence[AffineMap]) -> Encoders | None:
    """Returns a policy's encoders; None if it has none, or if their use in the body is unknown."""
    config = blueprint.config
    if not config.encoders or blueprint.reading or isinstance(config.body, OwnClassConfig):
        return None
    prefixes = _encoder_names()
    names = blueprint.create_empty().state_dict()
    parameters = tuple(name for name in names if name.startswith(prefixes))
    reader = next(each.name for each in maps if not each.name.startswith(prefixes))
    return Encoders(parameters, reader)


def _encoder_names() -> tuple[str, ...]:
    """Returns the prefixes of the names of encoders' parts."""
    return tuple(f"{module}." for module in ENCODER_MODULES.values())


def _arguments_of(
    blueprint: Blueprint,
    as_observations: Callable[[torch.Tensor], tuple[dict[str, torch.Tensor]]],
    states: torch.Tensor,
    teacher: Teacher,
    generator: np.random.Generator,
) -> tuple[Any, ...]:
    """See `MergeProblem.arguments_of`.

    The inputs of a head that denoises lie between noise and actions that the teacher draws.
    """
    (observations,), head = as_observations(states), blueprint.config.head
    if isinstance(head, LinearHeadConfig):
        return (observations,)
    shape = (len(states), states.shape[1] if states.dim() == 3 else 1, blueprint.numbers)
    (noise,) = first_noise(head, shape, generator)
    actions = process_of(head).sample(lambda *asked: teacher(observations, None, *asked), noise)
    return (observations, None, *regression(head, actions.clamp(-1, 1), generator).inputs)


def _features(features: torch.Tensor) -> tuple[dict[str, torch.Tensor]]:
    """Returns features, (n, size) or (n, steps, size), as observations of trajectories."""
    return ({FEATURES: features if features.dim() == 3 else features[:, None]},)


def observations_of(blueprint: Blueprint, scaled: torch.Tensor) -> tuple[dict[str, torch.Tensor]]:
    """Returns scaled states, (n, size) or (n, steps, size), as observations of trajectories."""
    names = blueprint.names("state")
    offset, divisor = map(torch.from_numpy, blueprint.scaling.arrays(names))
    sizes = [len(blueprint.scaling.mean[name]) for name in names]
    steps = scaled.shape[1] if scaled.dim() == 3 else 1
    parts = (scaled * divisor + offset).split(sizes, -1)
    return (
        {
            name: part.reshape(-1, steps, *blueprint.observation[name].shape)
            for name, part in zip(names, parts, strict=True)
        },
    )


def _read(shared: LocalDataHolder) -> list[tuple[Any, ...]]:
    return [batch.arguments for batch in shared.batches()] if shared.batches else []


def _finished(
    network: torch.nn.Module, shared: LocalDataHolder, state: State
) -> dict[str, torch.Tensor]:
    return recompute(network, state, _read(shared))
