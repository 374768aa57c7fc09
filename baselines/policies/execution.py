"""What a policy executes of the chunks of actions that it predicts, one chunk in each step."""

from collections.abc import Sequence

import numpy as np

from fleet_tools.baselines.policies.head_config import EnsembleConfig, ExecutionConfig

Chunks = tuple[np.ndarray, ...]
"""Remembered chunks (n, 6), the oldest first; each has the action of its own step first."""


def execute(
    config: ExecutionConfig, former: Chunks, chunk: np.ndarray
) -> tuple[np.ndarray, Chunks]:
    """Returns the action of a step.

    Args:
        config: How chunks are executed.
        former: What was remembered after the step before; nothing at the beginning of an episode.
        chunk: The chunk of this step, (n, 6).

    Returns:
        The action (6,), and the chunks to remember.
    """
    if isinstance(config, EnsembleConfig):
        chunks = (*former, chunk)[-len(chunk) :]
        return ensemble(chunks, config.decay), chunks
    chunks = (*former, chunk) if len(former) < config.steps else (chunk,)
    return chunks[0][len(chunks) - 1], chunks


def ensemble(chunks: Sequence[np.ndarray], decay: float) -> np.ndarray:
    """Returns the weighted mean of all predictions for a step (Zhao et al. 2023, section IV-B).

    Args:
        chunks: Chunks of this step and those before it, the oldest first, (n, 6) each.
        decay: See `EnsembleConfig`.

    Returns:
        (6,).
    """
    ages = range(len(chunks) - 1, -1, -1)
    predictions = [chunk[age] for chunk, age in zip(chunks, ages, strict=True)]
    weights = ensemble_weights(len(chunks), decay)
    return (weights @ np.stack(predictions)).astype(chunks[0].dtype)


def ensemble_weights(count: int, decay: float) -> np.ndarray:
    """Returns the weights of predictions from the oldest on, (count,); their sum is 1."""
    weights = np.exp(-decay * np.arange(count))
    return weights / weights.sum()
