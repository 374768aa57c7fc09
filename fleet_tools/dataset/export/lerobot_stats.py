"""Statistics as LeRobot keeps them: of each episode, and of all."""

import numpy as np

Stats = dict[str, np.ndarray]

_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
_STRIDE = 4


def vector_stats(rows: np.ndarray) -> Stats:
    """Returns the statistics of rows (T, n), entry by entry; `count` is T."""
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


def picture_stats(pictures: np.ndarray) -> Stats:
    """Returns the statistics of pictures (T, height, width, 3) uint8, colour by colour.

    Colours are in [0, 1], the results (3, 1, 1), of every fourth pixel of every fourth line.
    """
    colours = pictures[:, ::_STRIDE, ::_STRIDE].reshape(-1, 3) / 255
    stats = {name: value.reshape(3, 1, 1) for name, value in _without_count(vector_stats(colours))}
    return stats | {"count": np.array([len(pictures)])}


def combined(parts: list[Stats]) -> Stats:
    """Returns the statistics of all parts together, given those of each.

    Quantiles are the parts' mean, weighted by their counts, which only comes near the truth.
    """
    counts = np.array([part["count"][0] for part in parts])
    weights = counts / counts.sum()

    def mean(values: list[np.ndarray]) -> np.ndarray:
        return np.tensordot(weights, np.stack(values), axes=1)

    whole = mean([part["mean"] for part in parts])
    squares = mean([part["std"] ** 2 + (part["mean"] - whole) ** 2 for part in parts])
    return {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": whole,
        "std": np.sqrt(squares),
        "count": np.array([counts.sum()]),
        **{name: mean([part[name] for part in parts]) for name in _QUANTILES},
    }


def _without_count(stats: Stats) -> list[tuple[str, np.ndarray]]:
    return [(name, value) for name, value in stats.items() if name != "count"]
