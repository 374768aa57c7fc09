"""Git Re-Basin (Ainsworth et al. 2023): alignment by matching, without gradients."""

import numpy as np
import torch

from fleet_tools.baselines.merging.average import average
from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.matching.weights import match_activations, match_weights
from fleet_tools.baselines.merging.methods.alternation import alternate, rest_shares
from fleet_tools.baselines.merging.problem import Fleet, Merged
from fleet_tools.baselines.merging.symmetry.group import Permutation


def git_rebasin(fleet: Fleet, *, by: str = "weights", rounds: int = 20) -> Merged:
    """Aligns models by matching, then averages.

    Of two models the second is aligned with the first; more are aligned in turn, each with the
    average of the rest (MergeMany).

    Args:
        fleet: The models; with their activations, for matching by these.
        by: "weights" or "activations".
        rounds: Of MergeMany, at most.

    Raises:
        FleetError: `by` is neither, there are no activations to match by, or no rounds.
        PermutationError: The activations do not fit the models.
    """
    if by not in ("weights", "activations"):
        raise FleetError(f"Models are matched by {by!r}; known are 'weights' and 'activations'.")
    if by == "activations":
        require_activations(fleet)
    permutations = match_fleet(fleet, by, rounds)
    return Merged(fleet.mean(permutations), permutations)


def match_fleet(fleet: Fleet, by: str = "weights", rounds: int = 20) -> tuple[Permutation, ...]:
    """The permutations of `git_rebasin`, which has the arguments' meaning."""
    generator = np.random.default_rng(fleet.seed)

    def by_weights(at, permutations):
        reference = average(fleet.permuted(permutations), rest_shares(fleet, at))
        return match_weights(
            fleet.symmetry, reference, fleet.models[at], generator, permutations[at]
        )

    def by_activations(at, permutations):
        shares = rest_shares(fleet, at)
        reference = {
            name: sum(
                share * permuted
                for share, permuted in zip(
                    shares.tolist(), _permuted_activations(fleet, name, permutations), strict=True
                )
                if share
            )
            for name in fleet.activations[at]
        }
        return match_activations(fleet.group, reference, fleet.activations[at])

    align = by_weights if by == "weights" else by_activations
    return alternate(fleet, align, generator, rounds)


def require_activations(fleet: Fleet) -> None:
    """Sees to it that there are activations to match by.

    Raises:
        FleetError: There are none.
    """
    if not fleet.activations:
        raise FleetError(
            "The fleet has no activations to match by. Give each model's, as "
            "`activations.record` returns them, or match by weights."
        )


def _permuted_activations(fleet: Fleet, name: str, permutations) -> list[torch.Tensor]:
    owner = fleet.group.owners.get(name)
    permuted = []
    for activations, permutation in zip(fleet.activations, permutations, strict=True):
        index = torch.as_tensor(permutation[name], device=activations[name].device)
        if owner is None:
            permuted.append(activations[name][:, index])
        else:
            order = torch.as_tensor(permutation[owner], device=index.device)
            wholes = activations[name][:, order]
            permuted.append(wholes.gather(2, index.expand(len(wholes), *index.shape)))
    return permuted
