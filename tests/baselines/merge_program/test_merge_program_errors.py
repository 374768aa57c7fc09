"""The program that merges files: what it refuses, and says so before it writes anything."""

import contextlib
import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.merge_runs import run, write_two

from fleet_merging.errors import MergingError
from fleet_merging.methods.options import read_options
from fleet_merging.methods.registry import find
from fleet_tools.baselines.model_files import read_model, read_notes, write_model


@pytest.fixture(name="paths")
def _paths(tmp_path):
    return write_two(tmp_path)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"method": "git_rebasim"}, "Did you mean 'git_rebasin'"),
        ({"method": "sinkhorn_data", "problem": "table"}, "no data common to all models"),
        ({"method": "fleet_merge", "problem": "table"}, "no data holders to answer"),
        ({"problem": "tabel"}, "Did you mean 'table'"),
        ({"problem": "broken"}, "ZeroDivisionError"),
        ({"problem": "number"}, "returned a int"),
        ({"problem": "wrong_table", "method": "git_rebasin"}, "Either the table is wrong"),
    ],
)
def test_errors_are_reported_before_anything_is_written(more, message, paths, capsys):
    code, output = run(paths, **more)
    assert code == 2 and message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("0.bias"), "different parameters"),
        (lambda state: state.update({"0.bias": torch.zeros(3).double()}), "has the shape (32,)"),
        (lambda state: state.update({"0.bias": torch.zeros(32)}), "has the dtype"),
        (lambda state: state["0.bias"].fill_(torch.nan), "NaN or infinity in 0.bias"),
    ],
)
def test_models_that_do_not_fit_together_are_refused(change, message, paths, capsys):
    state = dict(read_model(paths[1]))
    change(state)
    write_model(paths[1], state)
    code, output = run(paths, problem="table")
    assert code == 2 and message in capsys.readouterr().err
    assert not output.exists()


def test_pickles_are_refused_unread(paths, capsys, tmp_path):
    class Malicious:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    torch.save(Malicious(), paths[1])
    assert run(paths)[0] == 2
    assert "is not a safetensors file" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


def test_a_merge_has_several_models(paths, capsys):
    assert run(paths[:1])[0] == 2
    assert "at least 2 models" in capsys.readouterr().err
    link = paths[0].with_name("link.safetensors")
    link.symlink_to(paths[0])
    assert run([*paths, link])[0] == 2
    assert "given twice" in capsys.readouterr().err
    assert run([paths[0], paths[0].parent])[0] == 2
    assert "is a folder" in capsys.readouterr().err
    write_model(paths[1], {})
    assert run(paths)[0] == 2
    assert "holds no tensors" in capsys.readouterr().err


@pytest.mark.parametrize("weights", [("1",), ("1", "2", "3"), ("nan", "1"), ("0", "0")])
def test_averaging_weights_are_one_for_each_model(weights, paths, capsys):
    with contextlib.suppress(SystemExit):
        assert run(paths, "--averaging-weights", *weights)[0] == 2
    assert "weights" in capsys.readouterr().err
    assert not paths[0].with_name("merged.safetensors").exists()


@pytest.mark.parametrize("method", ["naive_average", "git_rebasin"])
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"problem": "false_table"}, "changes them by"),
        ({"problem": "small"}, "other names or shapes"),
        ({"problem": None, "model": "small_model"}, "other names or shapes"),
        ({"problem": "table", "model": "model"}, "--problem defines the whole merge"),
        ({"problem": None, "model": "number"}, "returned a int"),
        ({"problem": None, "model": "broken"}, "ZeroDivisionError"),
        ({"problem": "misspelt"}, "2.bais"),
    ],
)
def test_nothing_is_merged_by_a_false_table(method, more, message, paths, capsys):
    code, output = run(paths, method=method, **more)
    assert code == 2 and message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_of_dtypes_that_cannot_be_averaged_a_cast_is_proposed(dtype, paths, capsys):
    for path in paths:
        write_model(path, {name: value.to(dtype) for name, value in read_model(path).items()})
    code, output = run(paths, problem="table")
    err = capsys.readouterr().err
    assert code == 2 and not output.exists()
    assert str(dtype).removeprefix("torch.") in err and "bfloat16" in err and "v.to(" in err


@pytest.mark.parametrize("points", ["2", "10"])
def test_lines_have_an_odd_number_of_points(points, paths, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(paths, "--points", points)
    assert "odd number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["epochs"], "not of the form NAME=VALUE"),
        (["epoch=3"], "Did you mean 'epochs'"),
        (["epochs=many"], "an integer"),
        (["soft=1"], "true or false"),
        (["tau=-1"], "out of range"),
        (["trust=much"], "a number or none"),
    ],
)
def test_options_are_checked(texts, message):
    with pytest.raises(MergingError, match=message):
        read_options(find("fleet_merge"), texts)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("nan", "2.bias holds NaN"),
        ("reshape", "2.weight is float64 (32, 24)"),
        ("drop", "0.bias is missing"),
        ("more", "more does not belong"),
    ],
)
def test_a_method_that_ruins_a_parameter_stores_nothing(how, message, paths, capsys):
    code, output = run(
        paths, "--option", f"how={how}", method="merging_support.merge_problems:poisoned"
    )
    err = capsys.readouterr().err
    assert code == 1 and "Not stored" in err and message in err
    assert not output.exists()


def test_a_foreign_model_needs_an_architecture_an_example_and_data_alone(paths, capsys):
    example = ("--example", "16x3")
    data = ("--data", "merging_support.merge_problems:data")
    known = {"problem": None, "model": "model_alone"}
    for path in paths:  # as others store them
        single = {name: each.float() for name, each in read_model(path).items()}
        write_model(path, single)
    assert run(paths, **known)[0] == 2
    assert "--example 8x3" in capsys.readouterr().err
    assert run(paths, "--example", "3,4", **known)[0] == 2
    assert "neither a shape" in capsys.readouterr().err
    assert run(paths, *example, "--quiet", **known)[0] == 0
    file = paths[0].with_name("example.safetensors")
    write_model(file, {"x": torch.randn(5, 3)})
    code, _ = run(paths, "--example", str(file), "--quiet", "--overwrite", **known)
    assert code == 0
    for path in paths:
        write_model(path, {name: each.double() for name, each in read_model(path).items()})
    given = (*data, "--json", "--overwrite", "--option", "steps=2", "--option", "epochs=1")
    code, output = run(paths, *given, method="fleet_merge", problem=None, model="model")
    report = json.loads(capsys.readouterr().out)
    assert code == 0 and report["traffic"]["calls"] == 4 and len(report["losses"]) == 2
    # An ensemble is stored with the names of its members.
    given = (*data, "--json", "--overwrite")
    code, output = run(paths, *given, method="density_gated_ensemble", problem=None, model="model")
    report = json.loads(capsys.readouterr().out)
    assert code == 0 and report["members"] == 2
    described = {"members": 2, "map": "0", "sharpness": 0.1, "reader": 0}
    assert read_notes(output)["ensemble"] == described
    assert {"members.1.0.weight", "means", "factors"} <= read_model(output).keys()


def test_only_methods_that_permute_nothing_need_no_table(paths, capsys):
    assert run(paths, problem=None)[0] == 2
    assert "--model MODULE:FACTORY" in capsys.readouterr().err
    code, output = run(paths, "--quiet", method="naive_average", problem=None)
    assert code == 0
    first, second, merged = (read_model(path) for path in (*paths, output))
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)
