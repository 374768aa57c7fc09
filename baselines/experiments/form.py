"""The form of experiments: their YAML file, and the runs that it plans."""

import copy
import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from fleet_tools.baselines.federated.life import Life
from fleet_tools.config.commands import DataCommands
from fleet_tools.config.extends import load_layers
from fleet_tools.config.values import Count, CountOrZero, OddCount, Value, parse, validate
from fleet_tools.errors import ConfigError

MAX_SEEDS = 1000
"""Largest number of seeds; the seeds of validation follow them."""

Keys = dict[str, pydantic.JsonValue]
"""Part of a run's configuration, by the keys of its YAML; nested ones also as "split.alpha"."""


Margin = Annotated[float, pydantic.Field(gt=0, lt=1)]
"""A difference of success rates."""


def _as_list(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


class LineConfig(Value):
    """Points on the lines between two policies at which barriers are measured.

    Attributes:
        points: Number of points at which losses are measured, with both ends: odd, at least 3.
        rollouts: Number of scenes of each task in which policies on the line are run; 0 runs none.
        rollout_points: Number of points at which policies are run, with both ends.
    """

    points: OddCount = 11
    rollouts: CountOrZero = 0
    rollout_points: OddCount = 5


class Experiment(Value):
    """A comparison of arms over a varied setting, with several seeds each.

    Attributes:
        arena: The arena: a name of `arena.ARENAS`, or module:class of your own.
        data: Datasets, with wildcards such as data/mt10/*; their matches are sorted. In the arena
            supervised, the name of one set of examples.
        data_commands: Commands that make these data, which `reproduce` runs.
        base: Common configuration of all runs, by the arena's keys.
        vary: Key that varies, such as "split.alpha"; or a title of `values` with names.
        values: Values of this key; or by name, the keys of each case.
        arms: Changes of the base by each arm, by the arm's name.
        controls: Arms that do not merge separately trained policies, drawn dashed.
        references: The arena's controls to which arms are compared, such as joint training.
        seeds: Number of runs of each arm and value, of the seeds 0, 1, ...; see `validation`.
        lines: Lines between policies on which barriers are measured; arms are then methods that
            align. None measures merged policies instead.
        life: Arrivals and departures of robots, see `FleetConfig.life`; arms may vary its
            `control`. None for fleets without one.
        measures: Measures on pages, in this order (default: all measures).
        against: Arms and references to which the page compares all other success rates. Each has
            the margin of equivalent rates, such as 0.1 for 10 points; null for none.
        about: Description for its page.
        own_scenes: Whether each seed is evaluated in its own scenes; otherwise all are in the same.
        validation: Whether it chooses settings. Its seeds are then 1000, 1001, ..., and its scenes
            of rollouts differ, too: no other experiment reports any of them.
    """

    arena: str = "tool_use"
    data: Annotated[tuple[str, ...], pydantic.BeforeValidator(_as_list)] = ()
    data_commands: DataCommands = ()
    base: Keys = {}
    vary: str | None = None
    values: (
        Annotated[tuple[pydantic.JsonValue, ...], pydantic.Field(min_length=1)]
        | Annotated[dict[str, Keys], pydantic.Field(min_length=1)]
    ) = {"": {}}
    arms: Annotated[dict[str, Keys], pydantic.Field(min_length=1)]
    controls: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    seeds: Annotated[Count, pydantic.Field(le=MAX_SEEDS)] = 3
    lines: LineConfig | None = None
    life: Life | None = None
    measures: tuple[str, ...] | None = None
    against: dict[str, Margin | None] = {}
    about: str = ""
    own_scenes: bool = True
    validation: bool = False

    @pydantic.model_validator(mode="after")
    def _names_fit(self) -> Self:
        if both := set(self.arms) & set(self.references):
            raise ValueError(
                f"{', '.join(sorted(both))} names both an arm and a reference; rename the arm"
            )
        if missing := set(self.controls) - set(self.arms):
            raise ValueError(f"`controls` names {', '.join(sorted(missing))}, which is not an arm")
        if missing := set(self.against) - set(self.compared):
            raise ValueError(
                f"`against` names {', '.join(sorted(missing))}; known arms and references: "
                f"{', '.join(self.compared)}"
            )
        if self.vary is None and not isinstance(self.values, dict):
            raise ValueError("`values` needs the key `vary`; give it, or give each value a name")
        return self

    @property
    def cases(self) -> dict[str, Keys]:
        """The keys of each value, by its label."""
        if isinstance(self.values, dict):
            return self.values
        return {label(value): {str(self.vary): value} for value in self.values}

    @property
    def compared(self) -> tuple[str, ...]:
        """Names of the arms and references."""
        return (*self.arms, *self.references)

    def title(self, arm: str, value: str) -> str:
        """Returns the name of an arm, with its value if there are several."""
        return f"{arm}, {value}" if len(self.cases) > 1 else arm


def label(value: pydantic.JsonValue) -> str:
    """Returns a value as text of tables and figures."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Run:
    """The run of one arm, value and seed.

    Attributes:
        arm: Name of the arm or the reference.
        value: Label of the value, see `Experiment.cases`.
        seed: Its seed.
        keys: Its configuration, nested, without the seed.
        is_reference: Whether `arm` is a reference, with the keys of the base.
    """

    arm: str
    value: str
    seed: int
    keys: Keys
    is_reference: bool = False

    @property
    def title(self) -> str:
        """Name of the run in error messages."""
        return f"{self.arm!r}" + (f" with {self.value}" if self.value else "")

    def parsed(self, kind: type[Value], **changes: Any) -> Any:
        """Returns the configuration as a value of the arena.

        Args:
            kind: Class of the value.
            changes: Keys that replace the run's; None takes a key away.

        Raises:
            ConfigError: It is not valid; the message names the run.
        """
        keys = {k: v for k, v in (self.keys | changes).items() if changes.get(k, ...) is not None}
        return parse(kind, keys, f"The arm {self.title}")


def planned_runs(experiment: Experiment) -> list[Run]:
    """Returns all runs, ordered by seed.

    Raises:
        ConfigError: A wildcard of `data` matches nothing, or a key is nested in a number.
    """
    # Values change fastest: arms share robots' first local updates, and runs at the same time
    # should not need the same ones.
    cases = {name: _with_data(experiment, keys) for name, keys in experiment.cases.items()}
    first = MAX_SEEDS if experiment.validation else 0
    return [
        Run(arm, name, seed, merged(base, keys), is_reference)
        for seed in range(first, first + experiment.seeds)
        for is_reference, arms in (
            (False, experiment.arms),
            (True, {name: Keys() for name in experiment.references}),
        )
        for arm, keys in arms.items()
        for name, base in cases.items()
    ]


def _with_data(experiment: Experiment, keys: Keys) -> Keys:
    life = {} if experiment.life is None else {"life": experiment.life.model_dump(mode="json")}
    base = merged({"data": list(experiment.data), **life, **experiment.base}, keys)
    data: pydantic.JsonValue = expanded(_as_list(base["data"]))
    return base | {"data": data}


def expanded(patterns: Sequence[str]) -> list[pydantic.JsonValue]:
    """Returns paths with sorted matches in place of wildcards.

    Raises:
        ConfigError: A wildcard matches nothing.
    """
    paths: list[pydantic.JsonValue] = []
    for pattern in patterns:
        found = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        if not found:
            raise ConfigError(
                f"The experiment's data {pattern!r} matches nothing in {Path.cwd()}. Collect the "
                "datasets first, or correct the pattern."
            )
        paths += found
    return paths


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Keys:
    """Returns a copy of nested keys with some keys changed, which may be given as "split.alpha".

    Raises:
        ConfigError: A key is nested in another one that has no keys.
    """
    result = copy.deepcopy(dict(base))
    for key, value in changes.items():
        *parents, last = key.split(".")
        part = result
        for parent in parents:
            nested = part.setdefault(parent, {})
            if not isinstance(nested, dict):
                raise ConfigError(
                    f"The key {key!r} of the experiment is nested in {parent!r}, which is "
                    f"{nested!r}. Leave one of the two out."
                )
            part = nested
        part[last] = value
    return result


def load_experiment(path: Path) -> Experiment:
    """Reads an experiment, and the file that it `extends`.

    Keys are merged one by one; an empty mapping clears one below it. An arm or a named value that
    is null is left out; null is an ordinary value elsewhere.

    Raises:
        ConfigError: A file is missing, is not YAML, or does not fit.
    """
    file = load_layers(path, lambda base, folder: folder / base)
    content: Any = {}
    for layer in reversed(file.layers):
        content = _over(content, layer.content)
    return validate(Experiment, content, str(path), file.cite)


def _over(below: Any, above: Any, parents: tuple[str, ...] = ()) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict) or not above:
        return above
    result = dict(below)
    for key, value in above.items():
        if value is None and parents in (("arms",), ("values",)):
            result.pop(key, None)
        else:
            result[key] = _over(below.get(key), value, (*parents, key))
    return result
