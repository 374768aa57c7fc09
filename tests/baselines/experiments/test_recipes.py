"""Stored results are made again by the commands that stand beside them."""

import fnmatch
import itertools
import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.collected import write_quick_task
from support.evaluated import as_log
from support.page_commands import problem
from support.processes import ROOT

from fleet_tools import reproduce
from fleet_tools.baselines.experiments.form import load_experiment
from fleet_tools.baselines.experiments.recipes import (
    ENTRIES,
    EXPERIMENTS,
    LINKED,
    Recipe,
    read_recipes,
)
from fleet_tools.baselines.experiments.reproduction import compare_all, prepare, run
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.config.commands import RecipeCommand, arguments
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.leaderboard.entries import ENTRY, read_entries

RECIPES = read_recipes(ROOT)
PROGRAMS = {sys.executable: "python"}


def calls(recipe: Recipe, folder: Path) -> list[list[str]]:
    """Returns the words of each program that a recipe starts."""
    for name in LINKED:
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    found = [arguments(words, folder) for words in recipe.commands]
    return [[PROGRAMS.get(program, program), *words] for program, *words in found]


@cache
def said_against(*words: str) -> str | None:
    """Returns why a program does not take its words; None if it does."""
    return problem(list(words))


def after(words: list[str], option: str) -> list[str]:
    """Returns the values of an option."""
    if option not in words:
        return []
    rest = words[words.index(option) + 1 :]
    return rest[: next((k for k, word in enumerate(rest) if word.startswith("--")), len(rest))]


def read_by(words: list[str], folder: Path) -> list[str]:
    """Returns what a program reads that another one has made: datasets, checkpoints."""
    sources = [word.removeprefix("dagger:") for word in after(words, "--policy")]
    read = [*after(words, "--dataset"), *after(words, "--detector")]
    read += [each for each in sources if each.startswith(("runs/", "leaderboard/"))]
    for word in words:
        if word.endswith(".yaml"):
            read += data_of(folder / word)
    return read


def data_of(path: Path) -> list[str]:
    content = yaml.safe_load(path.read_text())
    values = content.get("values")
    cases = values.values() if isinstance(values, dict) else ()
    named = [each.get("data") for each in cases if each]
    found = [each for each in [content.get("data"), *named] if each]
    if not found and "extends" in content:
        return data_of(path.parent / content["extends"])
    paths = [name for each in found for name in ([each] if isinstance(each, str) else each)]
    return [path for path in paths if "/" in path]  # labelled examples have names


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_understood_and_makes_what_is_stored_from_what_it_has_made(name, tmp_path):
    recipe, made = RECIPES[name], {}
    started = calls(recipe, tmp_path)
    # Of command lines that differ in numbers alone, one is parsed.
    for words in {re.sub(r"\d+", "", " ".join(words)): words for words in started}.values():
        if words[1] != "-c":  # `copy`
            assert (tmp_path / words[1]).is_file() or said_against(*words) is None, words
    for words in started:
        if words[1] == "-c":  # `copy`
            made[words[-1]] = words
            continue
        for path in read_by(words, tmp_path):
            known = [each for each in made if path.startswith(each) or fnmatch.fnmatch(each, path)]
            assert known, f"{path} has not been made before {words}"
        for output in after(words, "--output"):
            assert output.partition("/")[0] not in LINKED, "the checkout is written to"
            assert made.get(output, words) == words or output == "runs/fleets", output
            made[output] = words
    for path in recipe.stored:
        assert any(path.is_relative_to(each) for each in made), f"nothing makes {path}"


def test_every_entry_and_every_figure_of_what_we_found_has_a_recipe():
    entries = {path.name for path in (ROOT / ENTRIES).iterdir() if path.is_dir()}
    shown = {path.stem for path in (ROOT / "docs/images").glob("findings_*.png")}
    assert {*entries, *shown} <= set(RECIPES)


def test_recipes_are_the_files_that_are_experiments_and_no_parts_of_others():
    def is_experiment(path: Path) -> bool:
        try:
            load_experiment(path)
        except ConfigError:
            return False
        return "common" not in path.relative_to(ROOT).parts

    found = filter(is_experiment, (ROOT / EXPERIMENTS).rglob("*.yaml"))
    names = {str(path.relative_to(ROOT / EXPERIMENTS).with_suffix("")) for path in found}
    assert names == {each.name for each in RECIPES.values() if each.kind == "experiment"}
    assert {"paper/4a", "studies/mnist_alphas", "life/six_tools", "linear_control"} <= names


@given(st.lists(st.lists(st.sampled_from(["a", "b c", "1"]), min_size=1), max_size=3))
def test_a_command_is_called_for_each_combination_of_its_values(values):
    each = dict(zip("ABC", values, strict=False))
    command = RecipeCommand(run=("python", *(f"{{{name}}}" for name in each)), each=each)
    assert [words[1:] for words in command.calls()] == [*itertools.product(*values)]
    assert [tuple(shlex.split(line)) for line in command.lines()] == command.calls()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["bash", "-c", "evil"], "begins with fleet-tools, python, copy, data-of"),
        ([], "begins with fleet-tools, python, copy, data-of"),
        ("python x", "list of words"),  # a shell's text
        ({"run": "python x"}, "list of words"),
        (["python", True], "texts or numbers; given: True"),
        (["python", ["x"]], "texts or numbers"),
        (["python", "{A}"], "placeholders ['A']"),
        ({"run": ["python", "x"], "each": {"A": ["b"]}}, "placeholders []"),
        ({"line": ["python", "x"]}, "line"),
    ],
)
def test_commands_that_could_not_run_are_refused(command, said, tmp_path):
    root = checkout(tmp_path, command)
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_recipes(root)


def test_words_go_to_the_program_as_they_are_and_stars_find_paths(tmp_path):
    for name in ("b", "a"):
        (tmp_path / "data" / name).mkdir(parents=True)
    words = ["a;b", "$(evil)", "`evil`", "$HOME", "data/*", "none/*", "--env", "size=[1,2]"]
    assert arguments(["fleet-tools", "train", *words], tmp_path) == [
        *(sys.executable, "-m", "fleet_tools", "train", "a;b", "$(evil)", "`evil`", "$HOME"),
        *("data/a", "data/b", "none/*", "--env", "size=[1,2]"),
    ]


def checkout(folder: Path, *commands: Any, name: str = "mine", **others: Any) -> Path:
    """Makes a checkout with one entry of some commands, and no stored result."""
    for each in (f"{ENTRIES}/{name}", EXPERIMENTS, "docs/images", "examples"):
        (folder / each).mkdir(parents=True)
    (folder / "docs/images/findings.yaml").write_text("{}\n")
    content = {"name": name, "title": name, "description": name, "track": "keypoints"}
    (folder / ENTRIES / name / ENTRY).write_text(
        json.dumps({**content, "commands": commands, **others})
    )
    return folder


@pytest.mark.slow  # starts programs
def test_an_entry_is_made_again_to_the_same_bits_and_one_that_lies_is_found(tmp_path, capsys):
    task = write_quick_task(tmp_path)
    options = ["--task", str(task), "--scenes", 1, "--workers", 0, "--name", "mine"]
    results = ENTRIES / "mine" / "results" / "nominal"
    command = ["fleet-tools", "evaluate", "--policy", "random", *options, "--output", str(results)]
    root = checkout(tmp_path / "root", command)
    options = ["mine", "--checkout", str(root), "--json"]
    assert reproduce.main([*options, "--output", str(tmp_path / "one")]) == 0
    assert json.loads(capsys.readouterr().out)["agreements"] == []  # nothing is stored

    (root / results).mkdir(parents=True)
    (root / results / "result.json").write_text("{}")
    assert reproduce.main([*options, "--output", str(tmp_path / "one")]) == 1
    assert "mine" in capsys.readouterr().out  # what is stored cannot be read
    first = tmp_path / "one" / "mine" / results
    shutil.copytree(first, root / results, dirs_exist_ok=True)
    assert reproduce.main([*options, "--output", str(tmp_path / "two")]) == 0
    (agreement,) = json.loads(capsys.readouterr().out)["agreements"]
    assert agreement["promised"] and agreement["identical"] == agreement["compared"] > 0

    as_log(root / results, lambda lines: lines[0].update(state_digest="0" * 16))
    assert reproduce.main([*options, "--output", str(tmp_path / "two")]) == 1  # nothing runs again
    (agreement,) = json.loads(capsys.readouterr().out)["agreements"]
    assert agreement["identical"] == agreement["compared"] - 1 and not agreement["agrees"]


def test_an_experiment_agrees_with_itself_and_not_with_other_rates(tmp_path):
    recipe = RECIPES["one_network_mlp"]
    (made, stored), folder = next(iter(recipe.stored.items())), tmp_path / "run"
    (folder / made).parent.mkdir(parents=True)
    shutil.copy(ROOT / stored, folder / made)
    (same,) = compare_all(recipe, ROOT, folder)
    assert same.agrees and same.identical == same.compared > 0

    result = json.loads((ROOT / stored).read_text())
    (row,) = (row for row in result["rows"] if row["arm"] == "structured_compression")
    row["success"] = {"rate": 0.0, "low": 0.0, "high": 0.01}
    result["cells"][0]["loss"] *= 1 + 1e-15
    del result["rows"][-1]
    (folder / made).write_text(json.dumps(result))
    (other,) = compare_all(recipe, ROOT, folder)
    assert not other.agrees and other.identical == other.compared - 1
    assert (
        "structured_compression, 0.1: success 0 to 0.01, stored" in other.text
        and "is lacking" in other.text
    )
    (folder / made).unlink()
    assert not compare_all(recipe, ROOT, folder)[0].agrees


def test_costs_that_are_not_rates_are_compared_too(tmp_path):
    recipe = RECIPES["linear_control"]
    (made, stored), folder = next(iter(recipe.stored.items())), tmp_path / "run"
    (folder / made).parent.mkdir(parents=True)
    result = json.loads((ROOT / stored).read_text())
    for factor, agrees in ((1 + 1e-6, True), (1.5, False)):
        for row in result["rows"]:
            for name, measure in row.items():
                if isinstance(measure, dict):
                    row[name] = {k: v and v * factor for k, v in measure.items()}
        (folder / made).write_text(json.dumps(result))
        assert compare_all(recipe, ROOT, folder)[0].agrees is agrees


@pytest.mark.slow  # starts a program
def test_a_figure_and_its_table_follow_from_the_results_of_its_experiments(tmp_path):
    recipe, folder = RECIPES["findings_success"], tmp_path / "run"
    report = prepare(recipe, ROOT, folder)
    for made, stored in recipe.stored.items():
        if stored.suffix == ".json":
            (folder / made).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / stored, folder / made)
    assert run(replace(recipe, commands=recipe.commands[-1:]), folder, report, lambda _: None) == 0
    found = compare_all(recipe, ROOT, folder)
    assert len(found) == len(recipe.stored) and all(each.agrees for each in found)
    others = [each for each in found if not each.path.endswith(".png")]  # by any matplotlib
    assert all(each.identical == each.compared > 0 for each in others)


def test_what_ran_does_not_run_again_and_what_failed_does(tmp_path):
    one = ("python", "-c", "print('one', file=open('log', 'a'))")
    go = ("python", "-c", "open('go')")
    copy = ("copy", "log", "entry/checkpoints/log")
    recipe = Recipe("mine", "entry", (one, go, copy), {})
    root, folder = checkout(tmp_path / "root"), tmp_path / "run"
    report, said = prepare(recipe, root, folder), []
    assert run(recipe, folder, report, said.append) == 1
    (folder / "go").touch()
    report = prepare(recipe, root, folder)  # as another process finds it
    assert run(recipe, folder, report, said.append) == 0
    assert (folder / "log").read_text() == (folder / copy[-1]).read_text() == "one\n"
    assert [text[2:] for text in said if text.startswith("+")] == [
        *map(shlex.join, (one, go, go, copy))
    ]
    assert sum(text.endswith(" min") for text in said) == 4  # how long each took
    assert [each["code"] for each in report["commands"]] == [0, 0, 0]
    with pytest.raises(ConfigError, match="another --output"):
        prepare(replace(recipe, name="other"), root, folder)


@pytest.mark.parametrize("entry", ["nobody", "mine"])
def test_data_of_an_entry_that_does_not_exist_are_refused(entry, tmp_path):
    with pytest.raises(UnknownNameError, match="entry whose data"):
        read_recipes(checkout(tmp_path, data_commands=[["data-of", entry]]))


def test_bad_usage_says_what_exists(tmp_path, capsys):
    here = ["--checkout", str(ROOT)]
    for words in (
        [],
        ["expert", "--list"],
        ["expertt", *here],
        ["expert", "--checkout", str(tmp_path)],
    ):
        assert reproduce.main(words) == 2
    said = capsys.readouterr().err
    assert "Did you mean 'expert'?" in said and "has no folder leaderboard/entries" in said
    assert reproduce.main(["expert", "--dry-run", *here]) == 0
    assert "fleet-tools evaluate --policy expert" in capsys.readouterr().out


def test_entries_are_at_most_twelve_with_checkpoints_that_ship_and_share_their_data():
    entries, rejections = read_entries(ROOT / "leaderboard")
    assert not rejections and 0 < len(entries) <= 12
    files = [path for each in entries for path in each.folder.rglob("*.safetensors")]
    named = {each.source(policy) for each in entries for policy in each.file.policies}
    assert {*map(str, files)} <= named and sum(path.stat().st_size for path in files) < 30e6
    for path in files:
        load_checkpoint(path)
    made: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        for words in RECIPES[entry.name].commands:
            for path in after([*words], "--output"):
                if path.startswith("data/"):
                    assert made.setdefault(path, words) == words  # in whichever entry
