"""Demonstrations: their hash, their validation split, and the policies that can learn from them."""

import hashlib
import json

import numpy as np

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.scaling import Scaling
from fleet_tools.config.values import differences
from fleet_tools.dataset.normalization import normalization_of
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError, DatasetError


def content_digest(samples: Samples) -> str:
    """Returns a hash of the episodes of samples, by their final states."""
    listed = [[each.task, each.record.seed, each.record.state_digest] for each in samples.episodes]
    return hashlib.blake2b(json.dumps(listed).encode(), digest_size=8).hexdigest()


def split(samples: Samples, fraction: float, seed: int) -> tuple[Samples, Samples]:
    """Splits samples by episodes, at random.

    Args:
        samples: The samples.
        fraction: Fraction of the episodes in the second part, between 0 and 1.
        seed: Seed of the draw.

    Returns:
        The samples to learn from, and the samples for validation; both have episodes.

    Raises:
        ConfigError: There are too few episodes for both.
    """
    episodes = len(samples.episodes)
    count = max(1, round(fraction * episodes))
    if count >= episodes:
        raise ConfigError(
            f"Of {episodes} episode{'s' * (episodes != 1)}, none is left to learn from when a "
            f"fraction of {fraction:g} is used for validation. Collect more, or give a smaller "
            "fraction."
        )
    order = np.random.default_rng(seed).permutation(episodes)
    return samples.subset(sorted(order[count:])), samples.subset(sorted(order[:count]))


def blueprint_of(config: PolicyConfig, samples: Samples) -> Blueprint:
    """Returns the blueprint of a policy that learns from samples, with their scaling.

    Raises:
        LayoutError, UnknownNameError: The policy cannot read them.
        DatasetError: Their observations were made in different ways or hold numbers that are not
            finite, or a file cannot be read.
    """
    if samples.env_kwargs is None:
        raise DatasetError(
            "The datasets were observed in different ways (obs_mode, camera_size, ...), so that no "
            "environment gives the observations that the policy would learn from. Train on "
            "datasets of one kind."
        )
    Blueprint.of(config, samples.observation, samples.action)  # before all data are read
    scaling = Scaling.of(normalization_of(samples).observation)
    return Blueprint.of(config, samples.observation, samples.action, scaling, samples.env_kwargs)


def require_same_policy(blueprint: Blueprint, model: Blueprint) -> None:
    """Checks that two blueprints differ in nothing but their scaling.

    Policies of one blueprint can be merged, so a policy that is to be merged with another takes
    over its scaling, see `--like` of `python -m fleet_tools.baselines.train`.

    Args:
        blueprint: Blueprint that follows from the data.
        model: Blueprint of the other policy.

    Raises:
        ConfigError: They differ in more; the message says in what.
    """
    parts = [each.model_dump(mode="json", exclude={"scaling"}) for each in (blueprint, model)]
    if found := differences(*parts):
        raise ConfigError(
            "A policy of these datasets differs from that of the checkpoint: "
            f"{'; '.join(found)}. Give datasets of the same layout, or --architecture instead of "
            "--like."
        )
