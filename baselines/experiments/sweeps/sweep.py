"""Configuration of a sweep over fleets, and its runs."""

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Self

import pydantic

from fleet_tools.baselines.federated import ReferenceName
from fleet_tools.baselines.federated.config import FleetConfig, reference
from fleet_tools.config.values import Count, Value, parse
from fleet_tools.errors import ConfigError

Keys = dict[str, pydantic.JsonValue]
"""Part of a `FleetConfig`, by the keys of its YAML; nested ones also as "split.alpha"."""


class Sweep(Value):
    """A comparison of arms while one key of the configuration varies, with several seeds each.

    Attributes:
        base: Configuration that all runs have in common.
        vary: Key that varies, such as "split.alpha", "participation" or "merge_every".
        values: Values of this key.
        arms: Keys in which each arm differs from the base, by the arm's name.
        references: Fleets with which the arms are compared, see `federated.config.reference`.
        seeds: Number of runs of each arm and value, whose `training.seed` are 0, 1, ...
    """

    base: Keys
    vary: str
    values: Annotated[tuple[pydantic.JsonValue, ...], pydantic.Field(min_length=1)]
    arms: Annotated[dict[str, Keys], pydantic.Field(min_length=1)]
    references: tuple[ReferenceName, ...] = ()
    seeds: Count = 3

    @pydantic.model_validator(mode="after")
    def _distinct_names(self) -> Self:
        if both := set(self.arms) & set(self.references):
            raise ValueError(
                f"{', '.join(sorted(both))} names both an arm and a reference; rename the arm"
            )
        return self


@dataclass(frozen=True)
class SweepRun:
    """The training of one fleet of a sweep.

    Attributes:
        arm: Name of the arm or the reference.
        value: Value of the key that varies.
        seed: Seed of the run.
        config: Configuration of the fleet.
    """

    arm: str
    value: pydantic.JsonValue
    seed: int
    config: FleetConfig

    @property
    def folder(self) -> str:
        """Name of the fleet's folder, a hash of its configuration: the same in all sweeps."""
        return hashlib.blake2b(self.config.to_json().encode(), digest_size=8).hexdigest()


def planned_runs(sweep: Sweep) -> list[SweepRun]:
    """Returns all runs of a sweep, ordered by seed.

    Raises:
        ConfigError: The configuration of a run is not valid; the message names the run.
        UnknownNameError, DatasetError: The datasets of a reference cannot be read.
    """
    return list(_planned_runs(sweep))


def _planned_runs(sweep: Sweep) -> Iterator[SweepRun]:
    # Values change fastest: arms share robots' first local updates, and runs at the same time
    # should not need the same ones.
    for seed in range(sweep.seeds):
        common = [
            (value, _merged(sweep.base, {sweep.vary: value, "training.seed": seed}))
            for value in sweep.values
        ]
        for arm, keys in sweep.arms.items():
            for value, base in common:
                source = f"The arm {arm!r} with {sweep.vary} {value!r}"
                yield SweepRun(arm, value, seed, parse(FleetConfig, _merged(base, keys), source))
        for name in sweep.references:
            for value, base in common:
                config = parse(FleetConfig, base | {"method": "naive_average"}, "The base")
                yield SweepRun(name, value, seed, reference(config, name))


def _merged(base: Keys, changes: Keys) -> Keys:
    """Returns a copy of the base with some keys changed."""
    merged = copy.deepcopy(base)
    for key, value in changes.items():
        *parents, last = key.split(".")
        part = merged
        for parent in parents:
            nested = part.setdefault(parent, {})
            if not isinstance(nested, dict):
                raise ConfigError(
                    f"The key {key!r} of the sweep is nested in {parent!r}, which is {nested!r}. "
                    "Leave one of the two out."
                )
            part = nested
        part[last] = value
    return merged
