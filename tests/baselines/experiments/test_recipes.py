"""Stored results are made again by the commands that stand beside them."""

import fnmatch
import json
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from support.collected import write_quick_task
from support.page_commands import problem
from support.processes import ROOT
from support.submitted import evaluation_with, write

from fleet_tools import reproduce
from fleet_tools.baselines.experiments.durations import Duration, durations
from fleet_tools.baselines.experiments.recipes import (
    EXPERIMENTS,
    LINKED,
    RESULTS,
    Recipe,
    read_recipes,
    scripts,
)
from fleet_tools.baselines.experiments.reproduction import RECORDS, compare_all, prepare, run, store
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.storage.provenance import Machine

RECIPES = read_recipes(ROOT)
RECORD = """
python() { printf '%s\\0' python "$@" '\n'; }
fleet-tools() { printf '%s\\0' fleet-tools "$@" '\n'; }
"""


def calls(recipe: Recipe, folder: Path) -> list[list[str]]:
    """Returns the words of each program that a recipe starts, as bash expands them."""
    for name in LINKED:
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    found = []
    for _, script in scripts(recipe):
        command = ["bash", "-euo", "pipefail", "-c", RECORD + script]
        out = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
        found += [line.strip("\0").split("\0") for line in out.split("\n\0") if line]
    return found


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
    for words in calls(recipe, tmp_path):
        assert (tmp_path / words[1]).is_file() or said_against(*words) is None, words
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


def duration(recipe: Recipe) -> Duration:
    """Returns what a recipe of this checkout takes."""
    return durations([recipe], ROOT)[recipe.name]


@pytest.mark.parametrize("name", RECIPES)
def test_the_work_of_a_recipe_is_what_bash_would_start(name, tmp_path):
    numbers = {"demonstrations": 0, "policies to train": 0}
    for words in calls(RECIPES[name], tmp_path):
        if words[2] == "fleet_tools.collect":
            numbers["demonstrations"] += int(*after(words, "--episodes"))
        trains = words[2] in ("fleet_tools.baselines.train", "fleet_tools.baselines.fleet")
        numbers["policies to train"] += trains and RECIPES[name].kind == "entry"
    unrecorded = replace(RECIPES[name], name="unrecorded")
    said = duration(unrecorded)
    for noun, number in numbers.items():
        if number:
            assert f"{number} {noun}" in said.text
    assert (said.seconds is None) == (said.kind == "unknown")


def test_a_time_is_measured_or_grows_with_the_work_or_is_unknown(tmp_path):
    assert duration(RECIPES["metaworld_one_merge"]).kind == "unknown"
    root = tmp_path / "root"
    write(evaluation_with(lambda trial: SUCCESS, name="expert"), root / RESULTS / "expert")

    def minutes(command: str) -> float:
        recipe = Recipe("mine", "experiment", (command,), {})
        return (durations([recipe], root)["mine"].seconds or 0.0) / 60

    collect = "python -m fleet_tools.collect --tool {} --episodes {} --output data"
    one, two = (minutes(collect.format("knife", number)) for number in (100, 200))
    assert two == pytest.approx(2 * one) and one > 0
    loop = (
        f"for TOOL in knife hammer; do for K in 1 2; do {collect.format('$TOOL', 50)}; done; done"
    )
    assert minutes(loop) == pytest.approx(one + minutes(collect.format("hammer", 100)))
    row = f"for A in 1 2 3; do echo $A; done; {collect.format('knife', 100)}"
    assert minutes(row) == pytest.approx(one)
    for odd in ("", " --task my.yaml", " --tool knife --episodes $N", " --note 'not closed"):
        assert minutes(f"python -m fleet_tools.collect{odd}") == 0
    # The estimate reads no more than text: a command that would leave a file leaves none.
    minutes(f"touch {tmp_path}/file; {collect.format('knife', 1)}")
    assert list(tmp_path.iterdir()) == [root]
    ran = {"machine": Machine.here().model_dump(), "commands": []}
    store(ran, root / RECORDS / "recorded.json")
    recorded = Recipe("recorded", "entry", (collect.format("knife", 1),), {})
    assert durations([recorded], root)["recorded"].kind == "measured"


def checkout(folder: Path, block: str, name: str = "mine") -> Path:
    """Makes a checkout with one entry, whose README has a block, and no stored result."""
    for each in (f"{RESULTS}/{name}", EXPERIMENTS, "docs/images", "examples"):
        (folder / each).mkdir(parents=True)
    (folder / "docs/images/findings.yaml").write_text("{}\n")
    (folder / RESULTS / name / "README.md").write_text(f"# Mine\n\n```bash\n{block}\n```\n")
    return folder


@pytest.mark.slow  # starts programs
def test_an_entry_is_made_again_to_the_same_bits_and_one_that_lies_is_found(tmp_path, capsys):
    task = write_quick_task(tmp_path)
    command = f"python -m fleet_tools.evaluate --policy random --task {task} --scenes 1 --workers 0"
    root = checkout(tmp_path / "root", f"{command} --name mine --output {RESULTS}/mine/0")
    (root / RESULTS / "mine" / "0").mkdir()
    for file in ("result.json", "episodes.jsonl"):  # so that there is an entry at all
        (root / RESULTS / "mine" / "0" / file).write_text("{}")
    given = ["mine", "--checkout", str(root), "--json", "--record"]

    assert reproduce.main([*given, "--output", str(tmp_path / "one")]) == 1
    assert "mine" in capsys.readouterr().out  # what is stored cannot be read
    first = tmp_path / "one" / "mine" / RESULTS / "mine" / "0"
    shutil.copytree(first, root / RESULTS / "mine" / "0", dirs_exist_ok=True)
    assert reproduce.main([*given, "--output", str(tmp_path / "two")]) == 0
    (agreement,) = json.loads(capsys.readouterr().out)["agreements"]
    assert agreement["promised"] and agreement["identical"] == agreement["compared"] > 0

    log = root / RESULTS / "mine" / "0" / "episodes.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[0]["state_digest"] = "0" * 16
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert reproduce.main([*given, "--output", str(tmp_path / "two")]) == 1  # nothing runs again
    (agreement,) = json.loads(capsys.readouterr().out)["agreements"]
    assert agreement["identical"] == agreement["compared"] - 1 and not agreement["agrees"]

    assert reproduce.main(["--list", "--checkout", str(root), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out).values()
    assert listed["time"]["kind"] == "measured" and listed["time"]["seconds"] > 0


def test_an_experiment_agrees_with_itself_and_not_with_other_rates(tmp_path):
    recipe = RECIPES["one_network_mlp"]
    (made, stored), folder = next(iter(recipe.stored.items())), tmp_path / "run"
    (folder / made).parent.mkdir(parents=True)
    shutil.copy(ROOT / stored, folder / made)
    (same,) = compare_all(recipe, ROOT, folder)
    assert same.agrees and same.identical == same.compared > 0

    result = json.loads((ROOT / stored).read_text())
    (row,) = (row for row in result["rows"] if row["arm"] == "compress")
    row["success"] = {"rate": 0.0, "low": 0.0, "high": 0.01}
    result["cells"][0]["loss"] *= 1 + 1e-15
    del result["rows"][-1]
    (folder / made).write_text(json.dumps(result))
    (other,) = compare_all(recipe, ROOT, folder)
    assert not other.agrees and other.identical == other.compared - 1
    assert "compress, 0.1: success 0 to 0.01, stored" in other.text and "is lacking" in other.text
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
    root = checkout(tmp_path / "root", "")
    recipe = Recipe("mine", "entry", ("NAME=log", "echo one >> $NAME", "test -e go"), {})
    folder = tmp_path / "run"
    report, said = prepare(recipe, root, folder), []
    assert run(recipe, folder, report, said.append) == 1
    (folder / "go").touch()
    report = prepare(recipe, root, folder)  # as another process finds it
    assert run(recipe, folder, report, said.append) == 0
    assert (folder / "log").read_text() == "one\n"
    assert said == ["echo one >> $NAME", "test -e go", "test -e go"]
    assert [each["code"] for each in report["commands"]] == [0, 0]
    with pytest.raises(ConfigError, match="another --output"):
        prepare(replace(recipe, name="other"), root, folder)


def test_a_loop_ends_with_its_first_failure(tmp_path):
    root = checkout(tmp_path / "root", "")
    recipe = Recipe("mine", "entry", ("for k in a b; do echo $k >> log; test -e no; done",), {})
    report = prepare(recipe, root, tmp_path / "run")
    assert run(recipe, tmp_path / "run", report, lambda _: None) == 1
    assert (tmp_path / "run" / "log").read_text() == "a\n"


@pytest.mark.parametrize("block", ["# Data: as nobody", "# Data: as mine", "# Data: echo hello"])
def test_data_of_an_entry_that_does_not_exist_are_refused(block, tmp_path):
    root = checkout(tmp_path / "root", block)
    with_result(root)
    with pytest.raises(UnknownNameError, match="entry whose data"):
        read_recipes(root)


def with_result(root: Path, **content: str) -> None:
    (root / RESULTS / "mine" / "result.json").write_text(json.dumps(content))
    (root / RESULTS / "mine" / "episodes.jsonl").write_text("")


def test_of_the_command_in_a_result_only_words_for_a_policy_of_the_package_run(tmp_path):
    root = checkout(tmp_path / "root", "")
    (root / RESULTS / "mine" / "README.md").unlink()
    own = "python -m fleet_tools.evaluate --policy zero"
    with_result(root, command=f"evil; $(evil) --output /etc {own} --tool hammer ; `evil`")
    (words,) = calls(read_recipes(root)["mine"], tmp_path)
    assert words == [*own.split(), "--tool", "hammer", "--output", f"{RESULTS}/mine"]
    for evil in ("bash -c evil", own.replace("zero", "evil:make"), f"{own} --tool $(evil)"):
        with_result(root, command=evil)
        with pytest.raises(ConfigError, match="names no policy of the package"):
            read_recipes(root)


def test_bad_usage_says_what_exists(tmp_path, capsys):
    here = ["--checkout", str(ROOT)]
    for given in (
        [],
        ["servo", "--list"],
        ["servoo", *here],
        ["servo", "--checkout", str(tmp_path)],
    ):
        assert reproduce.main(given) == 2
    said = capsys.readouterr().err
    assert "Did you mean 'servo'?" in said and "has no folder leaderboard/results" in said
    root = checkout(tmp_path / "root", "echo hello")
    assert reproduce.main(["mine", "--checkout", str(root)]) == 2
    assert "The entry 'mine' has no stored result yet" in capsys.readouterr().err
    assert reproduce.main(["servo", "--dry-run", *here]) == 0
    assert "examples.outside_policy.servo" in capsys.readouterr().out
