"""Statistics in LeRobot's form, of single episodes and of all of them."""

import numpy as np

Stats = dict[str, np.ndarray]

_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
_STRIDE = 4
"""Only every fourth pixel of every fourth line of an image counts."""


def vector_stats(rows: np.ndarray) -> Stats:
    """Returns the statistics of the columns of (T, n); `count` is T."""
    rows = np.asarray(rows, np.float64)
    quantiles = np.quantile(rows, list(_QUANTILES.values()), axis=0)
    return {
        "min": rows.min(axis=0),
        "max": rows.max(axis=0),
        "mean": rows.mean(axis=0),
        "std": rows.std(axis=0),
        "count": np.array([len(rows)]),
        **dict(zip(_QUANTILES, quantiles, strict=True)),
    }


def image_stats(images: np.ndarray) -> Stats:
    """Returns the statistics of the channels of images, (T, height, width, 3) uint8.

    Returns:
        Statistics of channels in [0, 1], (3, 1, 1) each; `count` is T.
    """
    pixels = images[:, ::_STRIDE, ::_STRIDE].reshape(-1, 3) / 255
    stats = {name: values.reshape(3, 1, 1) for name, values in _without_count(vector_stats(pixels))}
    return stats | {"count": np.array([len(images)])}


def combined(parts: list[Stats]) -> Stats:
    """Returns the statistics of all parts together, from the statistics of each part.

    Quantiles are means of the parts' quantiles, weighted by the counts, and only approximate.
    """
    counts = np.array([part["count"][0] for part in parts])
    fractions = counts / counts.sum()

    def mean(values: list[np.ndarray]) -> np.ndarray:
        return np.tensordot(fractions, np.stack(values), axes=1)

    total = mean([part["mean"] for part in parts])
    squares = mean([part["std"] ** 2 + (part["mean"] - total) ** 2 for part in parts])
    return {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": total,
        "std": np.sqrt(squares),
        "count": np.array([counts.sum()]),
        **{name: mean([part[name] for part in parts]) for name in _QUANTILES},
    }


def _without_count(stats: Stats) -> list[tuple[str, np.ndarray]]:
    return [(name, value) for name, value in stats.items() if name != "count"]
