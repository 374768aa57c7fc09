"""Whether a merged model is one: what must hold of it before anyone loads or stores it."""

import torch

from fleet_tools.baselines.merging.buffers import VARIANCE, last_name
from fleet_tools.baselines.merging.errors import UnsoundMergeError
from fleet_tools.baselines.merging.symmetry.table import State


def require_sound(state: State, form: State, maker: str) -> None:
    """Raises an error unless a merged model is of the form of the models, and usable.

    Args:
        state: The merged model.
        form: A model of which it was made; its numbers do not matter.
        maker: What made it, such as "ties", for the message.

    Raises:
        UnsoundMergeError: A tensor is missing, unknown, of another shape or dtype, or not finite,
            or a variance is negative; the message names it.
    """
    faults = [f"{name} is missing" for name in form if name not in state]
    faults += [fault for name, value in state.items() if (fault := _fault(name, value, form))]
    if faults:
        more = f", and {len(faults) - 6} more" if len(faults) > 6 else ""
        raise UnsoundMergeError(
            f"{maker} made no usable model: {', '.join(faults[:6])}{more}. Give smaller steps or "
            "scales if numbers are too large, or choose another method."
        )


def _fault(name: str, value: object, form: State) -> str:
    if name not in form:
        return f"{name} belongs to none of the models"
    if not isinstance(value, torch.Tensor):
        return f"{name} is a {type(value).__name__}"
    for what, found, wanted in (
        ("shape", tuple(value.shape), tuple(form[name].shape)),
        ("dtype", value.dtype, form[name].dtype),
    ):
        if found != wanted:
            return f"{name} has the {what} {found} instead of {wanted}"
    if not bool(torch.isfinite(value).all()):
        return f"{name} would not be finite"
    if last_name(name) == VARIANCE and bool((value < 0).any()):
        return f"{name} has variances below 0"
    return ""
