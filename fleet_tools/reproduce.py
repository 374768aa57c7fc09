"""Makes stored results again: `python -m fleet_tools.reproduce NAME`.

A name is an entry of the leaderboard, an experiment, or a figure of "What we found"; its commands
are data of a checkout, see `fleet_tools.baselines.experiments.recipes`.
"""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fleet_tools.errors import ConfigError, require_name
from fleet_tools.utils import cli

# Results are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.experiments.recipes import Recipe


class ReproduceOptions(cli.Options):
    """Runs the commands that made a stored result, and compares the new result with it.

    They run in a folder of their own, OUTPUT/NAME, and write nothing into the checkout. Entries of
    the leaderboard share their data, OUTPUT/data. The same command resumes a run that was stopped.

    Exit codes:
    0: what came out agrees with what is stored, in bits where promised, else by success rates.
    1: it does not, or a command failed.
    2: it cannot begin.
    130: Ctrl-C.
    """

    name: Annotated[str | None, Positional, arg(metavar="NAME")] = None
    """Entry of the leaderboard, experiment, or figure of "What we found"; see --list."""
    list: bool = False
    """Print all names, with the number of commands of each."""
    dry_run: bool = False
    """Print the commands, and run nothing."""
    output: Path = Path("runs/reproduce")
    """Folder of the runs."""
    checkout: Path = Path()
    """Root of the checkout whose results are made again."""


def _reproduce(options: ReproduceOptions) -> int:
    from fleet_tools.baselines.experiments.recipes import read_recipes

    if options.list is (options.name is not None):
        raise ConfigError("Give NAME, or --list, which prints all names.")
    recipes = read_recipes(options.checkout)
    if options.name is None:
        rows = {
            name: {"kind": recipe.kind, "commands": len(recipe.commands)}
            for name, recipe in recipes.items()
        }
        options.report(
            rows,
            lambda: "\n".join(
                f"{row['kind']:10}  {row['commands']:4}  {name}" for name, row in rows.items()
            ),
        )
        return cli.OK
    require_name("result", options.name, recipes, "See --list.")
    recipe = recipes[options.name]
    if options.dry_run:
        stored = [
            str(path) for path in recipe.stored.values() if (options.checkout / path).exists()
        ]
        compared = f"# Compared with: {', '.join(stored) or 'nothing, none is stored'}"
        options.report(
            asdict(recipe) | {"stored": stored},
            lambda: "\n".join([*map(shlex.join, recipe.commands), compared]),
        )
        return cli.OK
    return _run(recipe, options)


def _run(recipe: "Recipe", options: ReproduceOptions) -> int:
    from fleet_tools.baselines.experiments import reproduction

    folder = options.output / recipe.name
    report = reproduction.prepare(recipe, options.checkout, folder)

    def say(text: str) -> None:
        if not options.quiet:
            print(text, file=sys.stderr, flush=True)

    code = reproduction.run(recipe, folder, report, say)
    if code != 0:
        command = report["commands"][-1]["command"]
        print(f"Failed with {code}: {command}. The same command resumes it.", file=sys.stderr)
        return cli.FAILED
    agreements = reproduction.compare_all(recipe, options.checkout, folder)
    report["agreements"] = [asdict(each) for each in agreements]
    reproduction.store(report, folder)
    seconds = sum(each["seconds"] for each in report["commands"])
    lines = [
        f"{'agrees' if each.agrees else 'DIFFERS'}: {each.path}: {each.identical} of "
        f"{each.compared} bit for bit{_promise(each.promised)}; {each.text}"
        for each in agreements
    ]
    lines += ["Nothing is stored with which it could be compared."] * (not lines)
    lines.append(f"{seconds / 60:.1f} min; the results are in {folder}.")
    options.report(report, lambda: "\n".join(lines))
    return cli.OK if all(each.agrees for each in agreements) else cli.FAILED


def _promise(promised: bool | None) -> str:
    return {True: " (promised)", False: " (not promised here)", None: " (not promised)"}[promised]


PROGRAM = cli.Program("reproduce", cli.Command(ReproduceOptions, _reproduce))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
