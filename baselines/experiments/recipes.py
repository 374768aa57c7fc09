"""Recipes: the commands that made what is stored, read from where they stand in a checkout.

    entry of the leaderboard    the bash blocks of its README.md; without one, which policies of the
                                package lack, `evaluate` with the options that its results name
    experiment                  "# Data:" in the head of its YAML file, or of one that it extends,
                                with further lines indented, and the program `experiment`
    figure of "What we found"   its experiments, which docs/images/findings.yaml names, and the
                                script that draws it

In both kinds of text `# Data: as NAME` stands for the commands by which another entry collects its
data: all up to its last collection.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from fleet_tools.config.values import load_text
from fleet_tools.config.yaml_text import parse_yaml
from fleet_tools.errors import ConfigError, require_name, shown
from fleet_tools.evaluation.result_folder import RESULT
from fleet_tools.leaderboard.result_folders import README, find_result_folders
from fleet_tools.policies.sources import built_in_description
from fleet_tools.storage import strict_json

Kind = Literal["entry", "experiment", "figure"]

RESULTS, EXPERIMENTS, IMAGES = Path("leaderboard/results"), Path("experiments"), Path("docs/images")
FIGURES = IMAGES / "findings.yaml"
TABLE = Path("docs/results/tables/findings.md")
LINKED = ("experiments", "examples", "docs")
"""Folders of a checkout that commands read and never write."""
RUNS, DRAWN = "runs/fleets", "figures"
"""Folders to which commands of experiments and of figures write."""

_DATA = re.compile(r"^# Data: (.*(?:\\\n#.*|\n#   .*)*)$", re.MULTILINE)
_AS = re.compile(r"as (\w+)")
_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_EVALUATE = ("python", "-m", "fleet_tools.evaluate")
_KEPT = ("--policy", "--level", "--tool")
_WORD = re.compile(r"[a-z_]+")
_COLLECTS = re.compile(r"\bcollect\b")


@dataclass(frozen=True)
class Recipe:
    """How a stored result is made again.

    Attributes:
        name: Name of the entry, the experiment or the figure.
        kind: What it is.
        commands: Lines of bash, in order; assignments of variables hold for those that follow.
        stored: Paths in the checkout, and in a folder where the commands ran, of what it makes:
            folders of evaluations, results of experiments, figures. By the path in the folder.
            An entry without a result has none.
    """

    name: str
    kind: Kind
    commands: tuple[str, ...]
    stored: Mapping[Path, Path]


def read_recipes(checkout: Path) -> dict[str, Recipe]:
    """Returns all recipes of a checkout by name.

    Args:
        checkout: Root of the checkout.

    Raises:
        ConfigError: It is none, or one of its texts names another entry or base that is not there.
    """
    for folder in (RESULTS, EXPERIMENTS):
        if not (checkout / folder).is_dir():
            raise ConfigError(
                f"{checkout} has no folder {folder}. Recipes are read from a checkout of the "
                "repository; give its root by --checkout."
            )
    entries = _entries(checkout)
    experiments = _experiments(checkout, entries)
    return entries | experiments | _figures(checkout, experiments)


def _entries(checkout: Path) -> dict[str, Recipe]:
    found, _ = find_result_folders(checkout / RESULTS)
    described = sorted((checkout / RESULTS).glob(f"*/{README}"))
    by_name: dict[str, list[Path]] = {each.parent.name: [] for each in described}
    for folder in (each.relative_to(checkout) for each in found):
        by_name.setdefault(folder.relative_to(RESULTS).parts[0], []).append(folder)
    texts = {name: _entry_text(checkout, name, folders) for name, folders in by_name.items()}
    return {
        name: Recipe(
            name, "entry", tuple(_expanded(text, texts, name)), {each: each for each in folders}
        )
        for (name, folders), text in zip(by_name.items(), texts.values(), strict=True)
    }


def _entry_text(checkout: Path, name: str, folders: list[Path]) -> str:
    readme = checkout / RESULTS / name / README
    if readme.is_file():
        return "".join(_BLOCK.findall(readme.read_text(encoding="utf-8")))
    return "\n".join(_stored_command(checkout, each) for each in folders)


def _stored_command(checkout: Path, folder: Path) -> str:
    """Returns the command of a result of one of the package's own policies.

    Of the stored command only the policy's name, level and tool are taken: it was written by
    whoever submitted the result.

    Raises:
        ConfigError: It names another policy, whose commands belong into a README.md.
    """
    words = shlex.split(str(strict_json.load(checkout / folder / RESULT).get("command")))
    given = {name: value for name, value in pairwise(words) if name in _KEPT}
    policy = given.get("--policy", "")
    if not built_in_description(policy) or not all(map(_WORD.fullmatch, given.values())):
        raise ConfigError(
            f"{folder / RESULT} names no policy of the package, but {shown(policy)}. Write the "
            f"commands that made it into {RESULTS}/{folder.relative_to(RESULTS).parts[0]}/{README}."
        )
    options = [word for pair in given.items() for word in pair]
    return shlex.join([*_EVALUATE, *options, "--output", str(folder)])


def _experiments(checkout: Path, entries: Mapping[str, Recipe]) -> dict[str, Recipe]:
    texts = {name: "\n".join(recipe.commands) for name, recipe in entries.items()}
    recipes = {}
    for path in sorted((checkout / EXPERIMENTS).glob("*.yaml")):
        name, file = path.stem, EXPERIMENTS / path.name
        data = _data_of(path)
        run = f"python -m fleet_tools.baselines.experiment {file} --output {RUNS}"
        made = Path(RUNS, f"{name}.json")
        stored = {made: EXPERIMENTS / f"{name}.json"}
        recipes[name] = Recipe(
            name, "experiment", (*_expanded(data, texts, str(file)), run), stored
        )
    return recipes


def _data_of(path: Path) -> str:
    """Returns what the head of an experiment's file says of its data, as lines of bash."""
    while True:
        text = path.read_text(encoding="utf-8")
        if match := _DATA.search(text):
            said = match[1].replace("\n#", "\n")
            return f"# Data: {said}" if _AS.fullmatch(said) else said
        base = re.search(r"^extends: (\S+)$", text, re.MULTILINE)
        if base is None:
            return ""
        path = path.parent / base[1]


def _figures(checkout: Path, experiments: Mapping[str, Recipe]) -> dict[str, Recipe]:
    recipes = {}
    for name, titles in parse_yaml(load_text(checkout / FIGURES), str(FIGURES)).items():
        parts = []
        for stem in dict.fromkeys(stem for stems in titles.values() for stem in stems):
            require_name(f"experiment of {FIGURES}", stem, experiments)
            parts.append(experiments[stem])
        draw = f"python {IMAGES}/findings_images.py --results {RUNS} --output {DRAWN}"
        commands = dict.fromkeys(command for part in parts for command in part.commands)
        stored = {made: path for part in parts for made, path in part.stored.items()}
        stored[Path(DRAWN, f"{name}.png")] = IMAGES / f"{name}.png"
        if name == "findings_success":  # whose panels are the columns of the table
            stored[Path(DRAWN, TABLE.name)] = TABLE
        recipes[name] = Recipe(name, "figure", (*commands, draw), stored)
    return recipes


def _expanded(text: str, texts: Mapping[str, str], source: str) -> Iterator[str]:
    """Yields the lines of a text, with the lines of other entries in place of their names."""
    for line in text.replace("\\\n", " ").splitlines():
        match = _DATA.fullmatch(line)
        if match is None:
            if line.strip() and not line.startswith("#"):
                yield " ".join(line.split())
            continue
        other = _AS.fullmatch(match[1])
        given = other[1] if other else match[1]
        require_name(f"entry whose data {source} uses", given, {*texts} - {source})
        yield from _collection(list(_expanded(texts[given], texts, given)))


def _collection(lines: list[str]) -> list[str]:
    """Returns the lines up to the last one that collects data."""
    last = max((k for k, line in enumerate(lines) if _COLLECTS.search(line)), default=-1)
    return lines[: last + 1]


def scripts(recipe: Recipe) -> list[tuple[str, str]]:
    """Returns each command of a recipe, and the script that runs it by itself.

    The script begins with the assignments before it.
    """
    found, assigned = [], []
    for command in recipe.commands:
        if _ASSIGNMENT.match(command):
            assigned.append(command)
        else:
            found.append((command, "\n".join([*assigned, command])))
    return found
