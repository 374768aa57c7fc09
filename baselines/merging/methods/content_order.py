"""What depends on the contents of models alone, so that their order does not matter: order, seeds.

Copies of one model get the same seeds.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import torch

from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.merging.symmetry.table import State


def content_order(models: Sequence[State]) -> list[int]:
    """Returns the indices of models in an order that depends on their contents alone."""
    return sorted(range(len(models)), key=lambda index: digest(models[index]))


def digest(model: State) -> bytes:
    """Returns a hash of all tensors of a model, whatever the order of their names."""
    hashed = hashlib.sha256()
    for name in sorted(model):
        tensor = model[name].detach().cpu().contiguous().reshape(-1)
        hashed.update(tensor.view(torch.uint8).numpy().tobytes())
    return hashed.digest()


def content_seed(seed: int, number: int, *digests: bytes) -> int:
    """Returns a seed, below 2**31, for one draw that concerns one model.

    Args:
        seed: Seed of the problem.
        number: Number of the draw.
        digests: What the draw concerns; see `digest`.
    """
    hashed = hashlib.sha256(f"{seed} {number} ".encode())
    for each in digests:
        hashed.update(each)
    return int.from_bytes(hashed.digest()[:4], "little") >> 1


def reordered(problem: MergeProblem, order: Sequence[int]) -> MergeProblem:
    """Returns a problem with its models, and all that belongs to each, in another order."""
    weights, holders = problem.averaging_weights, problem.data_holders
    return replace(
        problem,
        models=[problem.models[index] for index in order],
        averaging_weights=None if weights is None else [weights[index] for index in order],
        data_holders=[holders[index] for index in order] if holders else (),
        activations=[problem.activations[index] for index in order] if problem.activations else (),
    )
