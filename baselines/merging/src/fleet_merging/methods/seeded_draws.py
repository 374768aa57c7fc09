"""Draws that depend only on the contents of models, so that their order does not matter.

These are orders, seeds, and gradients of data holders on seeded draws. Copies of one model get the
same seeds.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from fleet_merging.average import floating_tensors
from fleet_merging.methods.facts import required
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.query import LossQuery
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.symmetry.table import State


def content_order(models: Sequence[State]) -> list[int]:
    """Returns the indices of models in an order that depends only on their contents."""
    return sorted(range(len(models)), key=lambda index: digest(models[index]))


def digest(model: State) -> bytes:
    """Returns a hash of all tensors of a model, independent of their order."""
    hashed = hashlib.sha256()
    for name in sorted(model):
        tensor = model[name].detach().cpu().contiguous().reshape(-1)
        hashed.update(tensor.view(torch.uint8).numpy().tobytes())
    return hashed.digest()


def content_seed(seed: int, number: int, *digests: bytes) -> int:
    """Returns a seed, below 2**31, for a draw with a number, by the digests of its inputs."""
    hashed = hashlib.sha256(f"{seed} {number} ".encode())
    for each in digests:
        hashed.update(each)
    return int.from_bytes(hashed.digest()[:4], "little") >> 1


def reordered(problem: MergeProblem, order: Sequence[int]) -> MergeProblem:
    """Returns a problem with its models and all their fields in another order."""
    weights, holders = problem.averaging_weights, problem.data_holders
    return replace(
        problem,
        models=[problem.models[index] for index in order],
        averaging_weights=None if weights is None else [weights[index] for index in order],
        data_holders=[holders[index] for index in order] if holders else (),
    )


class DrawnGradients:
    """Asks the data holders of a problem for gradients; `meter` counts the traffic."""

    def __init__(self, problem: MergeProblem) -> None:
        required(problem, "data_holders")
        self.meter = TrafficMeter()
        self._problem = problem
        self._digests = [digest(model) for model in problem.models]
        self._tied = tied_names(problem.models)

    def ask(
        self, models: Mapping[int, State], number: int
    ) -> Iterator[tuple[int, dict[str, torch.Tensor]]]:
        """Yields gradients of losses by holder's index, each on a draw from the data of one holder.

        They are in float64, without parameters that do not influence the loss. A data holder
        answers with one gradient for tied weights; it is returned by each of their names. The
        number of the draw and the contents of the holder's own model in the problem determine the
        seed. `models` has the queried model by holder's index.
        """
        queries = [
            LossQuery(model, content_seed(self._problem.seed, number, self._digests[index]))
            for index, model in models.items()
        ]
        holders = [self._problem.data_holders[index] for index in models]
        for index, answer in zip(models, self.meter.ask_losses(holders, queries), strict=True):
            gradient = {name: value.double() for name, value in answer.gradient.items()}
            for names in self._tied:
                known = [gradient[name] for name in names if name in gradient]
                if len(known) == 1:
                    gradient.update(dict.fromkeys(names, known[0]))
            yield index, gradient


def tied_names(models: Sequence[State]) -> list[tuple[str, ...]]:
    """Returns groups of parameters that are equal in each model, as tied weights are.

    Constant tensors, such as biases of zero, do not count.
    """
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name, tensor in floating_tensors(models[0]).items():
        if bool((tensor != tensor.flatten()[:1]).any()):
            contents = (digest({name: model[name]}) for model in models)
            groups[(tensor.shape, *contents)].append(name)
    return [tuple(names) for names in groups.values() if len(names) > 1]
