"""Commands as data: lists of words, once for each combination of the values of placeholders.

The first word is a program: `fleet-tools` is this package, `python` the running interpreter, and
`copy` copies a file. `data-of` stands for the commands that make the data of an entry of the
leaderboard. No shell reads the others; `*` stands for paths that exist.
"""

import glob
import itertools
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from fleet_tools.config.values import Value

_PLACEHOLDER = re.compile(r"\{([A-Z]+)\}")
_COPY = (
    "import pathlib, shutil, sys; source, target = map(pathlib.Path, sys.argv[1:]); "
    "target.parent.mkdir(parents=True, exist_ok=True); shutil.copyfile(source, target)"
)
_PROGRAMS = {
    "fleet-tools": (sys.executable, "-m", "fleet_tools"),
    "python": (sys.executable,),
    "copy": (sys.executable, "-c", _COPY),
}
DATA_OF = "data-of"

Words = tuple[str, ...]
"""A program and its arguments."""


def _words(given: Any) -> Any:
    if not isinstance(given, list | tuple):
        raise ValueError("expected a list of words, such as [fleet-tools, collect, --tool, hammer]")
    for word in given:
        if isinstance(word, bool) or not isinstance(word, str | int | float):
            raise ValueError(
                f"expected words that are texts or numbers; given: {word!r}. Put it into quotes"
            )
    return tuple(map(str, given))


class RecipeCommand(Value):
    """A command that is run for each combination of some values.

    Attributes:
        run: The program, see above, and its arguments.
        each: Values by the name of the placeholder, such as TASK for `{TASK}`.
    """

    run: Annotated[Words, pydantic.BeforeValidator(_words)]
    each: dict[str, tuple[str | int, ...]] = {}

    @pydantic.model_validator(mode="after")
    def _can_run(self) -> Self:
        programs = [*_PROGRAMS, DATA_OF]
        if self.run[:1] not in [(name,) for name in programs]:
            raise ValueError(
                f"expected a command that begins with {', '.join(programs)}; given: {self.run[:1]}"
            )
        if (named := {*_PLACEHOLDER.findall(" ".join(self.run))}) != {*self.each}:
            raise ValueError(
                f"`run` has the placeholders {sorted(named)}, but `each` defines "
                f"{sorted(self.each)}"
            )
        return self

    def calls(self) -> list[Words]:
        """Returns the words of each call; the last placeholder changes fastest."""
        combinations = itertools.product(*self.each.values())
        each = [dict(zip(self.each, map(str, values), strict=True)) for values in combinations]
        return [
            tuple(_PLACEHOLDER.sub(lambda m, of=of: of[m[1]], word) for word in self.run)
            for of in each
        ]

    def lines(self) -> list[str]:
        """Returns the calls as a shell would take them, for readers."""
        return [shlex.join(words) for words in self.calls()]


def _as_command(given: Any) -> Any:
    return given if isinstance(given, dict | RecipeCommand) else {"run": given}


Commands = tuple[Annotated[RecipeCommand, pydantic.BeforeValidator(_as_command)], ...]
"""Commands in their order; one without placeholders may be its list alone."""

DataCommands = Commands
"""Commands that make data; `[data-of, NAME]` stands for the data commands of an entry NAME."""


def arguments(words: Sequence[str], folder: Path) -> list[str]:
    """Returns the arguments of a command's process.

    Args:
        words: The words of the command.
        folder: The folder where it runs, in which paths with `*` are looked for.
    """
    program, *others = words
    found = [
        sorted(glob.glob(word, root_dir=folder)) or [word] if "*" in word else [word]
        for word in others
    ]
    return [*_PROGRAMS[program], *itertools.chain(*found)]
