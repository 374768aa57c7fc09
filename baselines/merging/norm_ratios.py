"""How much the weights of two models differ, by the norms of their parameters.

The paper's appendix says of policies that learned the same data twice that "the weight different
norm compared to the weight norm" is below 1%, which can be read in two ways; both are computed. The
first one does not depend on the order of the units, the second one does.
"""

from dataclasses import dataclass

import torch

from fleet_tools.baselines.merging.symmetry.table import State


@dataclass(frozen=True)
class NormRatio:
    """Relative difference of a parameter between two models, with Frobenius norms.

    Attributes:
        of_norms: Difference of the norms, (norm(second) - norm(first)) / norm(first), without sign.
        of_difference: Norm of the difference, norm(second - first) / norm(first).
    """

    of_norms: float
    of_difference: float


def norm_ratios(first: State, second: State) -> dict[str, NormRatio]:
    """Returns the ratios of each parameter of floating-point numbers, by its name.

    Parameters that are zero in the first model have no ratio and are left out.

    Args:
        first: Weights of a model.
        second: Weights of another one of the same form.
    """
    ratios: dict[str, NormRatio] = {}
    for name, weights in first.items():
        if not torch.is_floating_point(weights):
            continue
        one, other = weights.double(), second[name].double()
        norm = float(one.norm())
        if norm > 0:
            ratios[name] = NormRatio(
                abs(float(other.norm()) - norm) / norm, float((other - one).norm()) / norm
            )
    return ratios
