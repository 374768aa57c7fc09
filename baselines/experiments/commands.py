"""Commands as data: a line, once for each combination of the values of its placeholders.

No shell reads them. `python` is the running interpreter, `fleet-tools` this package, and `*` stands
for paths that exist.
"""

import glob
import itertools
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from fleet_tools.config.values import Value

_PLACEHOLDER = re.compile(r"\{([A-Z]+)\}")
_PROGRAMS = {"python": (sys.executable,), "fleet-tools": (sys.executable, "-m", "fleet_tools")}


class RecipeCommand(Value):
    """A command that is run for each combination of some values.

    Attributes:
        run: The program, `python` or `fleet-tools`, and its arguments, quoted as in bash.
        each: Values by the name of the placeholder, such as TOOL for `{TOOL}`.
    """

    run: str
    each: dict[str, tuple[str | int, ...]] = {}

    @pydantic.model_validator(mode="after")
    def _can_run(self) -> Self:
        if (words := shlex.split(self.run))[:1] not in [[name] for name in _PROGRAMS]:
            raise ValueError(f"commands begin with {' or '.join(_PROGRAMS)}; given: {words[:1]}")
        if (named := {*_PLACEHOLDER.findall(self.run)}) != {*self.each}:
            raise ValueError(
                f"`run` has the placeholders {sorted(named)}, and `each` has {sorted(self.each)}"
            )
        return self

    def lines(self) -> list[str]:
        """Returns the command lines; the last placeholder changes fastest."""
        combinations = itertools.product(*self.each.values())
        each = [dict(zip(self.each, map(str, values), strict=True)) for values in combinations]
        return [_PLACEHOLDER.sub(lambda m, of=of: of[m[1]], self.run) for of in each]


def _as_command(given: Any) -> Any:
    return {"run": given} if isinstance(given, str) else given


Commands = tuple[Annotated[RecipeCommand, pydantic.BeforeValidator(_as_command)], ...]
"""Commands in their order; one without placeholders may be its line alone."""

DataCommands = Commands | str
"""Commands that make data; or the name of an entry of the leaderboard, for the ones of that."""


def arguments(line: str, folder: Path) -> list[str]:
    """Returns the arguments of a command line's process.

    Args:
        line: The line.
        folder: The folder where it runs, in which paths with `*` are looked for.
    """
    program, *words = shlex.split(line)
    found = [
        sorted(glob.glob(word, root_dir=folder)) or [word] if "*" in word else [word]
        for word in words
    ]
    return [*_PROGRAMS[program], *itertools.chain(*found)]
