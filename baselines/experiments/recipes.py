"""Recipes: the commands behind the stored results of a checkout.

entry of the leaderboard    `data_commands` and `commands` of its `entry.yaml`
experiment                  `data_commands` of its YAML file, and the program `experiment`
findings                    the figure and the table of "What we found": their experiments in
                            docs/images/findings.yaml, and the script that draws them

All YAML files in `experiments` are experiments, apart from folders in `NO_EXPERIMENTS`. Their names
have the folder, such as paper/4a.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleet_tools.baselines.experiments.form import load_experiment
from fleet_tools.config.commands import DATA_OF, Commands, Words
from fleet_tools.config.values import load_text, load_yaml
from fleet_tools.config.yaml_text import parse_yaml
from fleet_tools.errors import ConfigError, require_name
from fleet_tools.evaluation.result_folder import RESULT
from fleet_tools.leaderboard.entries import ENTRY, EntryFile

ENTRIES, EXPERIMENTS, IMAGES = Path("leaderboard/entries"), Path("experiments"), Path("docs/images")
NO_EXPERIMENTS = ("common", "leaderboard", "large_fleets")
"""Folders of parts that experiments extend, and of single fleets."""
FINDINGS, TABLES = "findings", Path("docs/results/tables")
LINKED = ("experiments", "examples", "docs")
"""Folders of a checkout that commands read and never write."""
DATA = "data"
"""Folder of data, which all entries of the leaderboard share."""
RUNS, DRAWN = "runs/fleets", "figures"
"""Folders to which commands of experiments and of figures write."""


@dataclass(frozen=True)
class Recipe:
    """The commands that reproduce a stored result.

    Attributes:
        name: Name of the entry, the experiment or the figure.
        kind: Kind of the result.
        commands: The words of each command, in order, see `commands.arguments`.
        stored: Paths of its results in the checkout, by their paths in a folder where the commands
            ran: folders of evaluations, results of experiments, figures. An entry without a result
            has none.
    """

    name: str
    kind: Literal["entry", "experiment", "figure"]
    commands: tuple[Words, ...]
    stored: Mapping[Path, Path]


def read_recipes(checkout: Path) -> dict[str, Recipe]:
    """Returns all recipes of a checkout by name.

    Args:
        checkout: Root of the checkout.

    Raises:
        ConfigError: It is none, a file is not valid, or names a missing entry or base.
    """
    for folder in (ENTRIES, EXPERIMENTS):
        if not (checkout / folder).is_dir():
            raise ConfigError(
                f"{checkout} has no folder {folder}. Recipes are read from a checkout of the "
                "repository; give its root by --checkout."
            )
    entries = {
        path.parent.name: load_yaml(EntryFile, path)
        for path in sorted((checkout / ENTRIES).glob(f"*/{ENTRY}"))
    }
    recipes: dict[str, Recipe] = {}
    for name, entry in entries.items():
        calls = _calls((*entry.data_commands, *entry.commands), entries, name)
        folders = [path.parent for path in sorted((checkout / ENTRIES / name).rglob(RESULT))]
        stored = {each: each for each in (path.relative_to(checkout) for path in folders)}
        recipes[name] = Recipe(name, "entry", tuple(calls), stored)
    folder = checkout / EXPERIMENTS
    for path in sorted(folder.rglob("*.yaml")):
        file = path.relative_to(checkout)
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name.partition("/")[0] in NO_EXPERIMENTS:
            continue
        run = ("fleet-tools", "experiment", str(file), "--output", RUNS)
        calls = [*_calls(load_experiment(path).data_commands, entries, str(file)), run]
        stored = {Path(RUNS, f"{path.stem}.json"): file.with_suffix(".json")}
        recipes[name] = Recipe(name, "experiment", tuple(calls), stored)
    return recipes | {FINDINGS: _findings(checkout, recipes)}


def _calls(commands: Commands, entries: Mapping[str, EntryFile], source: str) -> list[Words]:
    """Returns the calls of commands, with an entry's data commands in place of `data-of`."""
    others = {name: entry for name, entry in entries.items() if name != source}
    calls: list[Words] = []
    for words in (words for command in commands for words in command.calls()):
        if words[0] == DATA_OF:
            name = " ".join(words[1:])
            require_name(f"entry whose data {source} uses", name, others)
            calls += _calls(others[name].data_commands, others, name)
        else:
            calls.append(words)
    return calls


def _findings(checkout: Path, experiments: Mapping[str, Recipe]) -> Recipe:
    file, parts = IMAGES / f"{FINDINGS}.yaml", []
    content = parse_yaml(load_text(checkout / file), str(file))
    for panel in content["experiments"].values():
        for stem in (panel["result"], *(each for each, _ in panel.get("others", {}).values())):
            require_name(f"experiment of {file}", stem, experiments)
            parts.append(experiments[stem])
    draw = ("python", f"{IMAGES}/findings_images.py", "--results", RUNS, "--output", DRAWN)
    commands = dict.fromkeys(command for part in parts for command in part.commands)
    stored = {made: path for part in parts for made, path in part.stored.items()}
    for folder, suffix in ((IMAGES, "png"), (TABLES, "md")):
        stored[Path(DRAWN, f"{FINDINGS}.{suffix}")] = folder / f"{FINDINGS}.{suffix}"
    return Recipe(FINDINGS, "figure", (*commands, draw), stored)
