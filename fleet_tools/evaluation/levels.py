"""Levels of a protocol: the ranges of training, and harder scenes matched to them.

A level has the first scenes of each split of the nominal level, by the same seeds, with one thing
changed: so the episodes of both are pairs. It is read as a protocol of its own, whose digest
depends on nothing but itself: one that is added or tuned leaves the results of the others valid.
"""

from typing import Annotated, Self

import pydantic

from fleet_tools.config.values import STORED_IF_SET, Count, MisfitError, parse
from fleet_tools.evaluation.level_scenes import LevelChanges
from fleet_tools.evaluation.protocol import NOMINAL, ProtocolFile


class Level(LevelChanges):
    """A level beside the nominal one."""

    description: str
    """Description of the difficulty."""
    scenes: Count
    """It has this many first scenes of each task and split."""


class LevelsFile(ProtocolFile):
    """A protocol's file: the nominal level, and others beside it.

    Attributes:
        levels: The other levels by name, in the order in which pages show them.
    """

    levels: Annotated[dict[str, Level], STORED_IF_SET] = {}

    @pydantic.model_validator(mode="after")
    def _levels_fit(self) -> Self:
        if self.level or {NOMINAL, ""} & {*self.levels}:
            raise MisfitError(
                "levels",
                f"{NOMINAL!r} is reserved for the file itself, and a name must not be empty; "
                "choose another name",
            )
        fewest = min(split.scenes for split in self.splits.values())
        for name, level in self.levels.items():
            if level.scenes > fewest:
                reason = f"the nominal level has only {fewest} of a split"
                raise MisfitError(f"levels.{name}.scenes", reason)
        return self

    def protocol_files(self) -> dict[str, ProtocolFile]:
        """Returns the protocol of each level by name, the nominal one first."""
        shared = self.model_dump(mode="json", exclude={"levels"})
        files = {NOMINAL: parse(ProtocolFile, shared, f"The level {NOMINAL!r}")}
        for name, level in self.levels.items():
            own = level.model_dump(mode="json", exclude={"scenes"})
            splits = {k: {**of, "scenes": level.scenes} for k, of in shared["splits"].items()}
            content = {**shared, **own, "level": name, "splits": splits}
            files[name] = parse(ProtocolFile, content, f"The level {name!r}")
        return files
