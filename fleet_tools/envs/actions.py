"""Actions: bounded motions of the end effector, in units of the task's action bounds."""

import numpy as np
from numpy.typing import ArrayLike

from fleet_tools.config.control import StepBounds
from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.errors import InvalidActionError, shown


def action_spec(bounds: StepBounds, rate_hz: float) -> ArraySpec:
    """Returns what the numbers of an action mean: translation, then rotation vector.

    Args:
        bounds: Largest motion in one control step.
        rate_hz: Control rate.
    """
    axes = [f"{motion}_{axis}" for motion in ("translation", "rotation") for axis in "xyz"]
    return ArraySpec(
        kind="action",
        shape=(6,),
        dtype="float32",
        unit="m, rad",
        frame="end effector, as it is before the step",
        entries=tuple(axes),
        scale=tuple(action_scale(bounds).tolist()),
        rate_hz=rate_hz,
    )


def action_scale(bounds: StepBounds) -> np.ndarray:
    """Returns the motion for which each entry of an action is 1, (6,), m and rad."""
    return np.repeat([bounds.translation_m, np.deg2rad(bounds.rotation_deg)], 3)


def check_action(action: ArrayLike, size: int = 6) -> tuple[np.ndarray, bool]:
    """Returns the action to be executed, (size,) float32, and whether it was clipped.

    Raises:
        InvalidActionError: The action has a wrong shape or dtype, or is not finite.
    """
    try:
        array = np.asarray(action)
    except Exception as error:  # of any class, by whoever made the action
        raise InvalidActionError(
            f"An action is an array of shape ({size},); given: {shown(action)}, which cannot be "
            f"made one: {error}"
        ) from None
    if np.ma.is_masked(action):
        raise InvalidActionError(f"An action has no masked entries; given: {shown(action)}.")
    if array.shape != (size,) or array.dtype.kind != "f":
        raise InvalidActionError(
            f"An action has shape ({size},) and a floating-point dtype; given: shape "
            f"{array.shape}, dtype {array.dtype}."
        )
    if not np.isfinite(array).all():
        raise InvalidActionError(f"An action must be finite; given: {array.tolist()}.")
    clipped = np.clip(array, -1.0, 1.0)
    # In float32, so that stored actions replay bit for bit.
    return clipped.astype(np.float32), bool((clipped != array).any())
