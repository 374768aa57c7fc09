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
from fleet_tools.baselines.experiments.commands import RecipeCommand, arguments
from fleet_tools.baselines.experiments.recipes import (
    EXPERIMENTS,
    LINKED,
    RESULTS,
    Recipe,
    read_recipes,
)
from fleet_tools.baselines.experiments.reproduction import compare_all, prepare, run
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.leaderboard.result_folders import COMMANDS

RECIPES = read_recipes(ROOT)
PROGRAMS = {sys.executable: "python"}


def calls(recipe: Recipe, folder: Path) -> list[list[str]]:
    """Returns the words of each program that a recipe starts."""
    for name in LINKED:
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    found = [arguments(line, folder) for line in recipe.commands]
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
    read = [*after(words, "--dataset"), *(each for each in sources if each.startswith("runs/"))]
    for word in words:
        if word.endswith(".yaml"):
            read += data_of(folder / word)
    return read


def data_of(path: Path) -> list[str]:
    content = yaml.safe_load(path.read_text())
    values = content.get("values")
    named = [each.get("data") for each in values.values()] if isinstance(values, dict) else []
    found = [each for each in [content.get("data"), *named] if each]
    if not found and "extends" in content:
        return data_of(path.parent / content["extends"])
    return [name for each in found for name in ([each] if isinstance(each, str) else each)]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_understood_and_makes_what_is_stored_from_what_it_has_made(name, tmp_path):
    recipe, made = RECIPES[name], {}
    started = calls(recipe, tmp_path)
    # Of command lines that differ in numbers alone, one is parsed.
    for words in {re.sub(r"\d+", "", " ".join(words)): words for words in started}.values():
        assert (tmp_path / words[1]).is_file() or said_against(*words) is None, words
    for words in started:
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
    entries = {path.name for path in (ROOT / RESULTS).iterdir() if path.is_dir()}
    shown = {path.stem for path in (ROOT / "docs/images").glob("findings_*.png")}
    assert {*entries, *shown} <= set(RECIPES)
    assert {path.stem for path in (ROOT / EXPERIMENTS).glob("*.yaml")} <= set(RECIPES)


@given(st.lists(st.lists(st.sampled_from(["a", "b c", "1"]), min_size=1), max_size=3))
def test_a_command_has_a_line_for_each_combination_of_its_values(values):
    each = dict(zip("ABC", values, strict=False))
    run = " ".join(["python", *(f"'{{{name}}}'" for name in each)])
    lines = RecipeCommand(run=run, each=each).lines()
    assert [tuple(shlex.split(line)[1:]) for line in lines] == [*itertools.product(*values)]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("bash -c evil", "begin with python or fleet-tools"),
        ("", "begin with python or fleet-tools"),
        ("python 'not closed", "No closing quotation"),
        ("python {A}", "placeholders ['A']"),
        ({"run": "python x", "each": {"A": ["b"]}}, "placeholders []"),
        ({"line": "python x"}, "line"),
    ],
)
def test_commands_that_could_not_run_are_refused(command, said, tmp_path):
    root = checkout(tmp_path, command)
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_recipes(root)


def test_words_go_to_the_program_as_they_are_and_stars_find_paths(tmp_path):
    for name in ("b", "a"):
        (tmp_path / "data" / name).mkdir(parents=True)
    line = "fleet-tools train 'a;b' $(evil) `evil` $HOME data/* none/* --env 'size=[1,2]'"
    assert arguments(line, tmp_path) == [
        *(sys.executable, "-m", "fleet_tools", "train", "a;b", "$(evil)", "`evil`", "$HOME"),
        *("data/a", "data/b", "none/*", "--env", "size=[1,2]"),
    ]


def checkout(folder: Path, *commands: Any, name: str = "mine", **others: Any) -> Path:
    """Makes a checkout with one entry of some commands, and no stored result."""
    for each in (f"{RESULTS}/{name}", EXPERIMENTS, "docs/images", "examples"):
        (folder / each).mkdir(parents=True)
    (folder / "docs/images/findings.yaml").write_text("{}\n")
    (folder / RESULTS / name / COMMANDS).write_text(json.dumps({"commands": commands, **others}))
    return folder


@pytest.mark.slow  # starts programs
def test_an_entry_is_made_again_to_the_same_bits_and_one_that_lies_is_found(tmp_path, capsys):
    task = write_quick_task(tmp_path)
    command = f"python -m fleet_tools.evaluate --policy random --task {task} --scenes 1 --workers 0"
    root = checkout(tmp_path / "root", f"{command} --name mine --output {RESULTS}/mine/0")
    (root / RESULTS / "mine" / "0").mkdir()
    for file in ("result.json", "episodes.jsonl"):  # so that there is an entry at all
        (root / RESULTS / "mine" / "0" / file).write_text("{}")
    options = ["mine", "--checkout", str(root), "--json"]

    assert reproduce.main([*options, "--output", str(tmp_path / "one")]) == 1
    assert "mine" in capsys.readouterr().out  # what is stored cannot be read
    first = tmp_path / "one" / "mine" / RESULTS / "mine" / "0"
    shutil.copytree(first, root / RESULTS / "mine" / "0", dirs_exist_ok=True)
    assert reproduce.main([*options, "--output", str(tmp_path / "two")]) == 0
    (agreement,) = json.loads(capsys.readouterr().out)["agreements"]
    assert agreement["promised"] and agreement["identical"] == agreement["compared"] > 0

    as_log(root / RESULTS / "mine" / "0", lambda lines: lines[0].update(state_digest="0" * 16))
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
    one = "python -c \"print('one', file=open('log', 'a'))\""
    go = "python -c \"open('go')\""
    recipe = Recipe("mine", "entry", (one, go), {})
    root, folder = checkout(tmp_path / "root"), tmp_path / "run"
    report, said = prepare(recipe, root, folder), []
    assert run(recipe, folder, report, said.append) == 1
    (folder / "go").touch()
    report = prepare(recipe, root, folder)  # as another process finds it
    assert run(recipe, folder, report, said.append) == 0
    assert (folder / "log").read_text() == "one\n"
    assert said == [one, go, go]
    assert [each["code"] for each in report["commands"]] == [0, 0]
    with pytest.raises(ConfigError, match="another --output"):
        prepare(replace(recipe, name="other"), root, folder)


@pytest.mark.parametrize("entry", ["nobody", "mine"])
def test_data_of_an_entry_that_does_not_exist_are_refused(entry, tmp_path):
    with pytest.raises(UnknownNameError, match="entry whose data"):
        read_recipes(checkout(tmp_path, data_commands=entry))


def test_bad_usage_says_what_exists(tmp_path, capsys):
    here = ["--checkout", str(ROOT)]
    for words in (
        [],
        ["servo", "--list"],
        ["servoo", *here],
        ["servo", "--checkout", str(tmp_path)],
    ):
        assert reproduce.main(words) == 2
    said = capsys.readouterr().err
    assert "Did you mean 'servo'?" in said and "has no folder leaderboard/results" in said
    root = checkout(tmp_path / "root", "python x")
    assert reproduce.main(["mine", "--checkout", str(root)]) == 2
    assert "The entry 'mine' has no stored result yet" in capsys.readouterr().err
    assert reproduce.main(["servo", "--dry-run", *here]) == 0
    assert "examples.outside_policy.servo" in capsys.readouterr().out
