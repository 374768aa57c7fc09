"""What the numbers of an episode may be: finite, and within the limits of what they measure."""

import numpy as np

from fleet_tools.dataset.episode_file import OBSERVATIONS
from fleet_tools.envs.array_spec import LIMITS
from fleet_tools.perception.observation_config import channel_of


def disallowed(name: str, rows: np.ndarray) -> str | None:
    """Returns what is wrong with the values of an array; None if nothing is.

    Args:
        name: A field of `Episode`, or "observations/<name>".
        rows: The array, or some of its rows.
    """
    if rows.dtype == bool:
        rows = rows.view(np.uint8)
        low, high = 0.0, 1.0
    else:
        low, high = _limits(name, rows.dtype)
    if rows.size == 0 or (low <= rows.min() and rows.max() <= high):
        return None  # a comparison with NaN is False
    if np.isnan(rows).any():
        return "NaN"
    return f"numbers from {rows.min():g} to {rows.max():g}, not all in [{low:g}, {high:g}]"


def _limits(name: str, dtype: np.dtype) -> tuple[float, float]:
    channel = channel_of(name) if name.startswith(OBSERVATIONS) else None
    kind = "action" if name == "actions" else channel
    if kind in LIMITS:
        return LIMITS[kind]
    largest = np.finfo(dtype).max if dtype.kind == "f" else np.inf
    return float(-largest), float(largest)
