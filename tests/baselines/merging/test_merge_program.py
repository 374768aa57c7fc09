"""The program that merges files: what it stores, what it reports, what it refuses."""

import contextlib
import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import merge_specs
from conftest import run_python

from fleet_tools.baselines import merge
from fleet_tools.baselines.merge import read_model, read_notes, read_options, write_model
from fleet_tools.baselines.merging.methods.registry import METHODS
from fleet_tools.baselines.merging.methods.registry import merge as merge_fleet
from fleet_tools.errors import FleetToolsError, UnknownNameError

QUICK = ("steps=2", "epochs=1", "rounds=1")


@pytest.fixture
def paths(tmp_path):
    """Two models of one function, but for noise and the order of their units."""
    paths = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for path, state in zip(paths, merge_specs.models(), strict=True):
        write_model(path, state)
    return paths


def run(paths, *more, method="git_rebasin", spec="with_data", output=None):
    output = output or paths[0].with_name("merged.safetensors")
    given = [*map(str, paths), "--spec", f"merge_specs:{spec}", "--method", method]
    return merge.main([*given, "--output", str(output), *more]), output


def options_of(method):
    texts = []
    for text in QUICK:
        with contextlib.suppress(UnknownNameError):  # not every method has every option
            read_options(METHODS[method], [text])
            texts += ["--option", text]
    return texts


@pytest.mark.parametrize("method", METHODS)
def test_every_method_stores_a_model_and_leaves_its_inputs(method, paths):
    before = [path.read_bytes() for path in paths]
    code, output = run(paths, *options_of(method), "--quiet", method=method)
    assert code == 0
    assert [path.read_bytes() for path in paths] == before
    assert {p.name for p in output.parent.iterdir()} == {output.name, *(p.name for p in paths)}
    merged, one = read_model(output), read_model(paths[0])
    assert merged.keys() == one.keys()
    assert all(merged[name].dtype == one[name].dtype for name in one)


def test_what_it_stores_is_what_the_library_merges(paths):
    _, output = run(paths, "--quiet", "--weights", "3", "1", "--seed", "4", spec="symmetry")
    fleet = merge_specs.Spec(merge_specs.symmetry()).fleet(
        [read_model(path) for path in paths], [3, 1], 4
    )
    expected = merge_fleet("git_rebasin", fleet).state
    stored = read_model(output)
    assert all(torch.equal(stored[name], expected[name]) for name in expected)
    notes = read_notes(output)
    assert read_notes(paths[0]) is None
    assert notes["method"] == "git_rebasin" and notes["weights"] == [0.75, 0.25]


def test_the_same_command_stores_the_same_bytes(paths):
    more = ("--quiet", *options_of("fleet_merge"))
    first = run(paths, *more, method="fleet_merge")[1].read_bytes()
    assert run(paths, *more, method="fleet_merge")[1].read_bytes() == first


def test_report_shows_that_a_permuted_copy_is_brought_back(paths, capsys):
    assert run(paths, "--json")[0] == 0
    report = json.loads(capsys.readouterr().out)
    assert report["after"]["distance"] < 0.1 * report["before"]["distance"]
    assert report["after"]["barrier"] < 0.05 * report["before"]["barrier"]
    assert report["after"]["loss"] < 0.05 * report["before"]["loss"]
    assert len(report["losses"]) == 2


def test_without_data_it_reports_distances(paths, capsys):
    assert run(paths, spec="table")[0] == 0
    out = capsys.readouterr().out
    assert "largest distance" in out and "neither `shared` nor `robots`" in out


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"method": "git_rebasim"}, "did you mean 'git_rebasin'"),
        ({"method": "sinkhorn_rebasin", "spec": "table"}, "needs data that all models share"),
        ({"method": "fleet_merge", "spec": "table"}, "no robots to ask"),
        ({"method": "git_rebasin_activations", "spec": "table"}, "no activations"),
        ({"spec": "tabel"}, "did you mean 'table'"),
        ({"spec": "broken"}, "ZeroDivisionError"),
        ({"spec": "number"}, "returned a int"),
        ({"spec": "wrong_table", "method": "git_rebasin"}, "Either the table is wrong"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_written(more, why, paths, capsys):
    code, output = run(paths, **more)
    assert code == 2 and why in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda state: state.pop("0.bias"), "different parameters"),
        (lambda state: state.update({"0.bias": torch.zeros(3).double()}), "has the shape (32,)"),
        (lambda state: state.update({"0.bias": torch.zeros(32)}), "has the dtype"),
        (lambda state: state["0.bias"].fill_(torch.nan), "NaN or infinity in 0.bias"),
    ],
)
def test_models_that_do_not_fit_together_are_refused(change, why, paths, capsys):
    state = dict(read_model(paths[1]))
    change(state)
    write_model(paths[1], state)
    code, output = run(paths, spec="table")
    assert code == 2 and why in capsys.readouterr().err
    assert not output.exists()


def test_pickles_are_refused_unread(paths, capsys, tmp_path):
    class Stranger:
        def __reduce__(self):
            return (open, (str(tmp_path / "stranger"), "w"))

    torch.save(Stranger(), paths[1])
    assert run(paths)[0] == 2
    assert "is no safetensors file" in capsys.readouterr().err
    assert not (tmp_path / "stranger").exists()


def test_the_output_is_none_of_the_models(paths, capsys):
    before = paths[0].read_bytes()
    assert run(paths, output=paths[0])[0] == 2
    assert "is one of the models" in capsys.readouterr().err and paths[0].read_bytes() == before
    assert run(paths, output=paths[0].parent / "nowhere" / "m")[0] == 2
    assert run([paths[0], paths[1].with_name("absent")])[0] == 2


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["epochs"], "no NAME=VALUE"),
        (["epoch=3"], "did you mean 'epochs'"),
        (["epochs=many"], "a whole number"),
        (["soft=1"], "true or false"),
        (["tau=-1"], "out of range"),
    ],
)
def test_options_are_checked(texts, why):
    with pytest.raises(FleetToolsError, match=why):
        read_options(METHODS["fleet_merge"], texts)


def test_options_reach_the_method_and_its_descent():
    chosen = read_options(METHODS["fleet_merge"], ["epochs=5", "steps=7", "soft=true", "tau=0.5"])
    assert chosen["epochs"] == 5 and chosen["soft"] is True
    assert (chosen["descent"].steps, chosen["descent"].tau) == (7, 0.5)


def test_help_imports_no_torch():
    imported = run_python(
        "import sys, json, contextlib, io\n"
        "from fleet_tools.baselines import merge\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    merge.main(['--help'])\n"
        "print(json.dumps([m for m in ('torch', 'pydrake') if m in sys.modules]))"
    )
    assert imported == []
