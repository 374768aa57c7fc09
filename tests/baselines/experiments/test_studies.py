"""Studies: stored results, partitions of data, tables, and programs that resume."""

import json
import sys
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from support.study_cases import EIGHT, some_digits, study

from fleet_tools.baselines import studies as program
from fleet_tools.baselines.experiments.result_cache import ResultCache
from fleet_tools.baselines.experiments.studies import (
    fleets,
    model_sets,
    networks,
    online,
    pairs,
    sources,
    training,
)
from fleet_tools.baselines.experiments.studies.labelled import Labelled, TextShape, partition
from fleet_tools.baselines.experiments.studies.networks import IMAGE_NETWORKS, TEXT_NETWORKS
from fleet_tools.baselines.experiments.studies.tables import (
    TableEntry,
    format_spread,
    table_by_quantity,
    table_of_quantity,
)

torch.set_num_threads(1)


def test_the_program_knows_networks_and_images():
    assert set(get_args(program.NetworkName)) == {*IMAGE_NETWORKS, *TEXT_NETWORKS}
    assert set(get_args(program.SourceName)) == set(sources.SOURCES)
    columns = {*pairs.pair_columns("mlp"), *fleets.fleet_columns(5)}
    assert set(get_args(program.MethodName)) == columns
    assert {*fleets.PANELS, *fleets.CONTROLS} <= columns


def test_moments_too_large_for_memory_are_refused_before_training(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sources, "load", lambda name, root: (some_digits(), some_digits(50)))
    sizes = ["--layers", "1", "--width", "20000", "--output", str(tmp_path / "new")]
    for only, methods in (("mlp", []), ("fleets", ["--methods", "least_squares"])):
        assert program.main(["supervised", "--only", only, *methods, *sizes]) == 2
        assert "3.2 GB" in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_the_network_of_fleets_is_checked_only_where_fleets_are_chosen(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "load", lambda name, root: (some_digits(64), some_digits(50)))
    language = ["--only", "elman", "--fleet-network", "language"]  # not for images
    sizes = ["--seeds", "1", "--epochs", "1", "--methods", "naive_average"]
    assert program.main(["supervised", *language, *sizes, "--output", str(tmp_path / "pairs")]) == 0
    language.insert(1, "fleets")
    assert program.main(["supervised", *language, *sizes, "--output", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()


def test_variants_of_fleet_merge_differ_from_it_in_one_point():
    columns = fleets.fleet_columns(5, 40)
    usual = columns["fleet_merge"]
    for name, column in columns.items():
        if name.startswith("fleet_merge_") and "in_turn" not in name:
            options = sum(column.options.get(key) != usual.options[key] for key in usual.options)
            more = len(column.options.keys() - usual.options.keys())
            assert (column.method != usual.method) + options + more == (
                2 if "listing" in name else 1
            )


@settings(max_examples=25)
@given(st.integers(2, 6), st.floats(0.3, 100), st.integers(0, 1000))
def test_every_image_is_in_one_part(count, alpha, seed):
    data = some_digits()
    parts = partition(data, count, alpha, np.random.default_rng(seed))
    assert len(parts) == count and min(map(len, parts)) >= 2
    images = torch.cat([part.inputs for part in parts])
    assert sorted(map(tuple, images.tolist())) == sorted(map(tuple, data.inputs.tolist()))


def test_alpha_determines_how_similar_the_parts_are():
    def concentration(alpha: float) -> float:
        parts = partition(some_digits(1000), 5, alpha, np.random.default_rng(0))
        counts = np.array([np.bincount(part.labels, minlength=10) for part in parts])
        return float((counts.max(axis=0) / counts.sum(axis=0)).mean())

    assert concentration(0.05) > 0.8 > concentration(1.0) > concentration(1000.0)
    assert concentration(1000.0) == pytest.approx(0.2, abs=0.05)


def test_training_is_repeatable_and_does_not_change_its_start():
    network, data = networks.network("cnn", EIGHT), some_digits(40)
    start = training.initial_weights(network, 0)
    before = {name: tensor.clone() for name, tensor in start.items()}
    short = training.TrainingSettings(epochs=2)
    one, again = (training.train(network, start, data, short, seed=1) for _ in range(2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert all(torch.equal(start[name], before[name]) for name in start)
    assert training.evaluate(network, one, data)[0] < training.evaluate(network, start, data)[0]


def test_a_result_is_computed_once_for_its_settings(tmp_path):
    cache, calls = ResultCache(tmp_path / "study"), []

    def compute() -> dict[str, float]:
        calls.append(1)
        return {"barrier": 0.1 + 0.2}

    first = cache.get_or_compute("a", {"steps": (1, 2)}, compute)
    assert cache.get_or_compute("a", {"steps": (1, 2)}, compute) == first and len(calls) == 1
    cache.get_or_compute("a", {"steps": (1, 3)}, compute)
    assert len(calls) == 2
    (tmp_path / "study" / "a.json").write_text("{")
    assert cache.get_or_compute("a", {"steps": (1, 3)}, compute) == first and len(calls) == 3


def test_stored_results_of_the_same_settings_are_read(tmp_path):
    """As a file has them: the settings as JSON, and the result."""
    options = {"start": "matching", "trust": 0.9, "descent": {"steps": 200, "rate": 0.1,
               "tau": 1.0, "noise": 0.1, "iterations": 60, "projection": "through"}}  # fmt: skip
    settings = {
        "network": "MLP 4x512", "data": "digits", "examples": 200, "test_examples": 50,
        "training": {"epochs": 40, "rate": 0.001, "batch": 64},
        "method": "sinkhorn_data", "options": options, "control": False,
    }  # fmt: skip
    value = {"barrier": 0.5, "accuracy": 0.9, "single": 0.8, "seconds": 1.0}
    curves = {"loss": [1.0, 2.0, 1.0], "accuracy": [0.9, 0.8, 0.9]}
    stored = tmp_path / "pair-mlp-sinkhorn_data_matched-0.json"
    data = study(some_digits(), some_digits(50), epochs=40)
    for found, expected in (({"curves": curves}, curves), ({}, {})):  # without curves: an old one
        stored.write_text(json.dumps({"settings": settings, "value": value | found}))
        (entry,) = pairs.pair_study(tmp_path, data, ["mlp"], 1, ["sinkhorn_data_matched"])
        assert (entry.value, entry.curves) == (value, expected)


def test_curves_join_the_networks_of_a_pair(tmp_path):
    """Independently: the ends are the networks before alignment, the middle is the average."""
    data, name = study(some_digits(), some_digits(50)), "mlp-1x8"
    methods = ["naive_average", "common_init", "git_rebasin", "least_squares"]
    columns = {entry.row: entry for entry in pairs.pair_study(tmp_path, data, [name], 1, methods)}
    assert list(columns) == ["naive_average", "common_init", "git_rebasin", "least_squares"]
    network = data.network(name)
    sets = model_sets.ModelSet(tmp_path, f"pair-{name}", network, data, [data.training] * 2, 0)
    ends = [training.evaluate(network, state, data.test) for state in sets.load(control=False)]
    for method in ("naive_average", "git_rebasin"):
        entry = columns[method]
        for measure, of_ends in zip(("loss", "accuracy"), zip(*ends, strict=True), strict=True):
            curve = entry.curves[measure]
            assert (curve[0], curve[-1]) == pytest.approx(of_ends, rel=1e-5)
        assert entry.value["accuracy"] == entry.curves["accuracy"][5]
        losses = np.array(entry.curves["loss"])
        highest = float((losses - (losses[0] + losses[-1]) / 2).max())
        assert entry.value["barrier"] == pytest.approx(highest)
    assert not columns["least_squares"].curves and "barrier" not in columns["least_squares"].value


def test_an_interrupted_computation_stores_nothing(tmp_path):
    def interrupted() -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ResultCache(tmp_path).get_or_compute("a", {}, interrupted)
    assert not list(tmp_path.iterdir())


def test_tables_show_the_spread():
    assert format_spread([0.2, 0.1, 0.4]) == "0.2 [0.1 0.4]"
    assert (format_spread([0.25]), format_spread([])) == ("0.25", "-")
    entries = [
        TableEntry("mlp", "naive", seed, {"barrier": 1.0 + seed, "acc": 0.5}) for seed in range(3)
    ]
    table = table_of_quantity(entries, "barrier", "pairs")
    assert table.as_text() == "pairs    naive\nmlp    2 [1 3]"
    assert table.as_markdown() == "| pairs | naive |\n| --- | --- |\n| `mlp` | 2 [1 3] |"
    assert table_by_quantity(entries, "pairs").columns == ["barrier", "acc"]
    assert table_of_quantity(entries, "loss", "pairs").rows == {}


def test_the_online_study_resumes(tmp_path, capsys, monkeypatch):
    command = ["online", "--episodes", "2", "--output", str(tmp_path)]
    monkeypatch.setattr(online, "AGENTS", 2)
    assert program.main([*command, "--seeds", "1", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert program.main([*command, "--seeds", "2", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert [entry["row"] for entry in entries] == [*online.ARMS, *online.ARMS]
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    assert program.main([*command, "--seeds", "2"]) == 0
    assert "Medians over 2 seeds" in capsys.readouterr().out


def test_the_split_is_always_the_same():
    pytest.importorskip("sklearn")
    (train, test), (again, _) = sources.load("digits"), sources.load("digits")
    assert (len(train), len(test), train.shape) == (1400, 397, EIGHT)
    assert torch.equal(train.inputs, again.inputs) and float(train.inputs.min()) >= 0
    assert float(train.inputs.max()) == 1.0


def test_the_supervised_study_resumes(tmp_path, capsys, monkeypatch):
    split = some_digits(), some_digits(50)
    monkeypatch.setattr(sources, "load", lambda name, root: split)
    few = ["--only", "mlp", "fleets", "--seeds", "1", "--alphas", "1", "--models", "2", "3"]
    sizes = ["--layers", "1", "2", "--width", "8", "--epochs", "1"]
    methods = ["--methods", "naive_average", "git_rebasin"]
    command = ["supervised", *few, *sizes, *methods, "--output", str(tmp_path)]
    assert program.main(command) == 0
    out = capsys.readouterr().out
    assert "digits: barrier of pairs" in out and "digits: accuracy of fleets" in out
    assert "mlp-1x8" in out and "mlp-2x8" in out
    assert "2 models, alpha 1" in out and "3 models, alpha 1" in out

    def refuse(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(model_sets, "train", refuse)
    monkeypatch.setattr(model_sets, "merge", refuse)
    assert program.main(command) == 0
    assert capsys.readouterr().out == out

    # With other settings, no result of the former ones is used.
    for other in (["--epochs", "2"], ["--examples", "100"], ["--test-examples", "9"]):
        with pytest.raises(AssertionError, match="computed again"):
            program.main([*command, *other])


def test_the_linear_control_is_least_squares_on_the_pooled_images(tmp_path):
    """Independently: numpy, with the parts weighted alike."""
    data, test = some_digits(300), some_digits(300)
    linear, joint = fleets.fleet_study(
        tmp_path, study(data, test), [(5, 1.0)], 1, "mlp-1x8", ["linear", "joint"]
    )
    assert (linear.row, joint.row) == ("linear", "joint")
    assert joint.value["accuracy"] == joint.value["single"]  # one network

    parts = partition(data, 5, 1.0, np.random.default_rng((0, 1000)))
    x, y, weight = [], [], []
    for part in parts:
        x.append(np.pad(part.inputs.double().numpy(), ((0, 0), (0, 1)), constant_values=1.0))
        y.append(np.eye(10)[part.labels.numpy()])
        weight.append(np.full(len(part), 1 / len(part) / len(parts)))
    x, y, weight = np.vstack(x), np.vstack(y), np.concatenate(weight)[:, None]
    start = training.initial_weights(networks.linear(EIGHT), 0)
    prior = np.vstack([start["0.weight"].numpy().T, start["0.bias"].numpy()])
    products = x.T @ (weight * x)
    damping = 1e-3 * np.trace(products) / 65 * np.eye(65)
    matrix = np.linalg.solve(products + damping, x.T @ (weight * y) + damping @ prior)
    logits = np.pad(test.inputs.numpy(), ((0, 0), (0, 1)), constant_values=1.0) @ matrix
    accuracy = float(np.mean(logits.argmax(1) == test.labels.numpy()))
    assert linear.value["accuracy"] == pytest.approx(accuracy, abs=1e-9)


def test_controls_of_texts_fit_the_character_after_each_position(tmp_path):
    """Each character determines the next one: who fits another position than it reads fails."""
    starts = torch.arange(40)[:, None] % 7
    texts = (starts + 2 * torch.arange(13)) % 7
    data = Labelled(texts[:, :-1], texts[:, -1], TextShape(12, 7), torch.arange(40) % 4)
    columns = ["linear", "untrained", "least_squares"]
    found = fleets.fleet_study(tmp_path, study(data, data), [(2, 10.0)], 1, "language", columns)
    assert [entry.value["accuracy"] for entry in found] == [1.0] * 3


@pytest.mark.parametrize(
    ("only", "method"), [("mlp", "fleet_merge"), ("fleets", "sinkhorn_data_matched")]
)
def test_methods_of_another_study_are_refused(tmp_path, capsys, monkeypatch, only, method):
    monkeypatch.setattr(sources, "load", lambda name, root: (some_digits(), some_digits(50)))
    arguments = ["--only", only, "--methods", method, "--output", str(tmp_path / "new")]
    assert program.main(["supervised", *arguments]) == 2
    assert method in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_absent_scikit_learn_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert program.main(["supervised", "--only", "mlp", "--output", str(tmp_path / "new")]) == 2
    assert "[studies]" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["supervised", "--only", "mpl"],
        ["supervised", "--data", "svhn"],
        ["supervised", "--alphas", "0"],
        ["supervised", "--methods", "naive"],
        ["supervised", "--layers", "0"],
        ["supervised", "--layers"],
        ["supervised", "--page", "page.json"],
        ["online", "--seeds", "0"],
        [],
    ],
)
def test_bad_usage_is_refused(command):
    with pytest.raises(SystemExit, match="2"):
        program.main(command)
