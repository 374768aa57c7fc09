"""The program that merges files: what it stores and reports."""

import contextlib
import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from merging_support import merge_problems
from support.merge_runs import run, write_two
from support.processes import run_python

from fleet_merging.errors import UnknownChoiceError
from fleet_merging.methods.facts import METHODS, NETWORK
from fleet_merging.methods.options import read_options
from fleet_merging.methods.registry import find
from fleet_merging.methods.registry import merge as merge_models
from fleet_tools.baselines.model_files import read_model, read_notes, write_model

QUICK = ("steps=2", "epochs=1", "rounds=1", "samples=2", "byzantine=0")
OF_TWO = [
    name
    for name, facts in METHODS.items()
    if facts.returns == NETWORK and "krum" not in name and name != "lora"
]
"""Not of those which need three models at least, or adapters."""


@pytest.fixture(name="paths")
def _paths(tmp_path):
    return write_two(tmp_path)


def options_of(method):
    arguments = []
    for text in QUICK:
        with contextlib.suppress(UnknownChoiceError):  # not every method has every option
            read_options(find(method), [text])
            arguments += ["--option", text]
    return arguments


@pytest.mark.parametrize("method", OF_TWO)
def test_every_method_stores_a_model_and_does_not_change_its_inputs(method, paths):
    before = [path.read_bytes() for path in paths]
    code, output = run(paths, *options_of(method), "--quiet", method=method)
    assert code == 0
    assert [path.read_bytes() for path in paths] == before
    assert {p.name for p in output.parent.iterdir()} == {output.name, *(p.name for p in paths)}
    merged, one = read_model(output), read_model(paths[0])
    assert merged.keys() == one.keys()
    assert all(merged[name].dtype == one[name].dtype for name in one)


def test_a_base_is_a_file_for_methods_on_task_vectors(paths, tmp_path, capsys):
    base = tmp_path / "base.safetensors"
    start = {name: tensor / 2 for name, tensor in read_model(paths[0]).items()}
    write_model(base, start)
    given = ("--base", str(base), "--option", "scale=2", "--quiet")
    code, output = run(paths, *given, method="task_arithmetic", problem="table")
    assert code == 0 and read_notes(output)["base"] == base.name
    first, second, merged = (read_model(path) for path in (*paths, output))
    for name, tensor in start.items():
        expected = tensor + (first[name] - tensor) + (second[name] - tensor)
        torch.testing.assert_close(merged[name], expected)
    # A base of another architecture, none at all, and one that would be overwritten.
    write_model(base, {**start, "more": torch.zeros(1)})
    options = {"method": "task_arithmetic", "problem": "table"}
    assert run(paths, *given, **options, output=tmp_path / "x")[0] == 2
    assert run(paths, "--option", "scale=2", **options, output=tmp_path / "x")[0] == 2
    assert "--base" in capsys.readouterr().err
    assert run(paths, *given, "--overwrite", **options, output=base)[0] == 2
    assert not (tmp_path / "x").exists()


def test_the_stored_model_is_that_of_the_library(paths):
    given = ("--averaging-weights", "3", "1", "--seed", "4")
    _, output = run(paths, "--quiet", *given, problem="table")
    models = [read_model(path) for path in paths]
    problem = replace(merge_problems.table(models), averaging_weights=[3, 1], seed=4)
    expected = merge_models("git_rebasin", problem).state
    stored = read_model(output)
    assert all(torch.equal(stored[name], expected[name]) for name in expected)
    notes = read_notes(output)
    assert read_notes(paths[0]) is None
    assert notes["method"] == "git_rebasin" and notes["weights"] == [0.75, 0.25]


def test_the_same_command_stores_the_same_bytes(paths):
    more = ("--quiet", *options_of("fleet_merge"))
    first = run(paths, *more, method="fleet_merge")[1].read_bytes()
    code, output = run(paths, *more, "--overwrite", method="fleet_merge")
    assert code == 0 and output.read_bytes() == first


def test_the_report_shows_that_a_permuted_copy_is_aligned(paths, capsys):
    assert run(paths, "--json")[0] == 0
    report = json.loads(capsys.readouterr().out)
    assert report["after"]["distance"] < 0.1 * report["before"]["distance"]
    assert report["after"]["barrier"] < 0.05 * report["before"]["barrier"]
    assert report["after"]["loss"] < 0.05 * report["before"]["loss"]
    assert len(report["losses"]) == 2


def test_without_data_it_reports_distances(paths, capsys):
    assert run(paths, problem="table")[0] == 0
    out = capsys.readouterr().out
    assert "largest distance" in out and "there are no data" in out


def test_the_traffic_is_reported(paths, capsys):
    assert run(paths, *options_of("fleet_merge"), method="fleet_merge")[0] == 0
    assert "Data holders answered 4 queries: 0.0 MB to them" in capsys.readouterr().out


def test_the_output_is_a_new_file_in_an_existing_folder(paths, capsys):
    before = paths[0].read_bytes()
    assert run(paths, output=paths[0])[0] == 2
    assert (
        "is also one of the input models" in capsys.readouterr().err
        and paths[0].read_bytes() == before
    )
    assert run(paths, output=paths[0].parent / "nowhere" / "m")[0] == 2
    assert run([paths[0], paths[1].with_name("absent")])[0] == 2


def test_an_existing_output_is_replaced_on_request_only(paths, capsys):
    output = paths[0].with_name("mine")
    output.write_text("mine")
    assert run(paths, output=output)[0] == 2
    assert "exists already" in capsys.readouterr().err and output.read_text() == "mine"
    assert run(paths, "--overwrite", "--quiet", output=output)[0] == 0
    assert read_model(output)


def test_what_was_checked_is_reported(paths, capsys):
    assert run(paths, "--json", problem="checked")[0] == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["check"]["parameters"] == 6 and err == ""
    assert run(paths, "--json", "--overwrite", problem="table")[0] == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["check"] is None
    assert err.count("\n") == 1 and "not checked" in err
    assert run(paths, "--overwrite", problem="fixed")[0] == 0
    assert "fixes every axis of all 6 parameters" in capsys.readouterr().err


def test_a_table_is_derived_from_a_model(paths):
    _, output = run(paths, "--quiet", problem=None, model="model")
    derived = read_model(output)
    _, output = run(paths, "--quiet", "--overwrite", problem="table")
    written = read_model(output)
    assert all(torch.equal(derived[name], written[name]) for name in written)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_models_of_every_precision_are_merged(dtype, paths):
    for path in paths:
        write_model(path, {name: value.to(dtype) for name, value in read_model(path).items()})
    code, output = run(paths, "--quiet", problem="table")
    assert code == 0 and {value.dtype for value in read_model(output).values()} == {dtype}


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod."])
def test_names_with_a_wrappers_prefix_are_recognized(prefix, paths, capsys):
    for path in reversed(paths):  # one of them, then both
        write_model(path, {prefix + name: value for name, value in read_model(path).items()})
        assert run(paths, problem="table")[0] == 2
        assert f"removeprefix({prefix!r})" in capsys.readouterr().err


def test_options_reach_the_method_and_its_descent():
    options = read_options(find("fleet_merge"), ["epochs=5", "steps=7", "soft=true", "tau=0.5"])
    assert options["epochs"] == 5 and options["soft"] is True
    assert (options["descent"].steps, options["descent"].tau) == (7, 0.5)
    options = read_options(find("fleet_merge_listing"), ["steps=7", "trust=0.5"])
    assert (options["descent"].steps, options["descent"].projection) == (7, "after")
    assert options["trust"] == 0.5
    assert read_options(find("fleet_merge"), ["trust=none", "participants=null"]) == {
        "trust": None,
        "participants": None,
    }


def test_help_works_without_torch_and_merging_says_how_to_install_it(paths):
    """PyTorch is hidden from the process."""
    help_text, imported, code, error = run_python(
        "import contextlib, io, json, sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "from fleet_tools.baselines import merge\n"
        "out, err = io.StringIO(), io.StringIO()\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):\n"
        "    merge.main(['--help'])\n"
        "heavy = ('fleet_merging', 'pydrake', 'ray')\n"
        "imported = [name for name in heavy if name in sys.modules]\n"
        "with contextlib.redirect_stderr(err):\n"
        "    code = merge.main([*sys.argv[1:], '--method', 'git_rebasin', '--output', 'merged'])\n"
        "print(json.dumps([out.getvalue(), imported, code, err.getvalue()]))",
        *map(str, paths),
    )
    assert "--averaging-weights" in help_text and imported == []
    assert code == 2
    assert "torch is needed" in error and "pip install" in error and "learning" in error
