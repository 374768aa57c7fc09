"""Levels: several protocols in one file, from the scenes of training to harder ones.

A level is a protocol of its own, whose digest depends on nothing but itself. One that is another
protocol keeps all results that follow this.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import pydantic

from fleet_tools.config.cameras import SensorName
from fleet_tools.config.values import Count, MisfitError, Value, parse
from fleet_tools.evaluation.disturbances import Disturbances
from fleet_tools.evaluation.level_scenes import NextObjects
from fleet_tools.evaluation.protocol import AnyScenes, ProtocolFile


class OtherProtocol(Value):
    """A level that is another protocol of the package."""

    protocol: str
    """Its name."""


class Level(Value):
    """A level of its own; tasks, unless it names some of them, and randomization are the file's."""

    description: str
    """What is harder."""
    splits: Annotated[dict[str, AnyScenes], pydantic.Field(min_length=1)]
    """Scenes of each split; see `fleet_tools.sim.splits`."""
    tasks: Annotated[tuple[str, ...], pydantic.Field(min_length=1)] | None = None
    """Those of the file's tasks that it has; None for all."""
    sensors: SensorName | None = None
    """Depth cameras of all policies; None if whoever evaluates chooses them."""
    disturbances: Disturbances | None = None
    """What its scenes have beside the tasks'."""
    next_objects: NextObjects | None = None
    """Objects beside the first one; None for none."""


def _kind(data: Any) -> str:
    other = isinstance(data, OtherProtocol) or (isinstance(data, Mapping) and "protocol" in data)
    return "other" if other else "level"


AnyLevel = Annotated[
    Annotated[OtherProtocol, pydantic.Tag("other")] | Annotated[Level, pydantic.Tag("level")],
    pydantic.Discriminator(_kind),
]


class LevelsFile(Value):
    """Definition of the levels of one version of a benchmark.

    Attributes:
        name, version: Identifier.
        tasks: Tasks of all levels but those that are other protocols, see `ProtocolFile`.
        randomization: Likewise.
        levels: The levels by name, the easiest first.
    """

    name: str
    version: Count
    tasks: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    randomization: Literal["on", "off"] | dict[str, bool] = "on"
    levels: Annotated[dict[str, AnyLevel], pydantic.Field(min_length=1)]

    @pydantic.model_validator(mode="after")
    def _no_scene_in_two_levels(self) -> Self:
        taken: dict[int, str] = {}
        for name, level in self.levels.items():
            scenes = level.splits.values() if isinstance(level, Level) else ()
            for seed in (seed for each in scenes for seed in each.all_seeds()):
                if (other := taken.setdefault(seed, name)) != name:
                    raise MisfitError(f"levels.{name}", f"it shares the seed {seed} with {other!r}")
            own_tasks = (level.tasks or ()) if isinstance(level, Level) else ()
            if others := set(own_tasks) - set(self.tasks):
                raise MisfitError(
                    f"levels.{name}.tasks", f"{sorted(others)} are none of {list(self.tasks)}"
                )
        return self

    def protocol_file(self, level: str) -> ProtocolFile | str:
        """Returns the protocol of a level, or the name of the one that it is.

        Args:
            level: Name of one of the levels.
        """
        found = self.levels[level]
        if isinstance(found, OtherProtocol):
            return found.protocol
        shared = self.model_dump(mode="json", exclude={"levels"})
        own = found.model_dump(mode="json", exclude_none=True)
        return parse(ProtocolFile, {**shared, **own, "level": level}, f"The level {level!r}")
