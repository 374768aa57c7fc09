"""The arena of labelled examples: parts, training, lines, controls, and what is refused first."""

import sys
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from support.study_cases import EIGHT, content_of, examples, measured, some_digits

from fleet_tools.baselines import experiment as program
from fleet_tools.baselines.experiments.supervised import arena as arena_module
from fleet_tools.baselines.experiments.supervised import networks, sources, training
from fleet_tools.baselines.experiments.supervised.labelled import Labelled, TextShape, partition

torch.set_num_threads(1)

CONTROL = {"options": {"of": "base"}, "initialization": "common"}


def run(tmp_path, *more: str, **changes) -> int:
    """Runs the program on a small experiment."""
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(content_of(**changes)))
    with examples(some_digits(), some_digits(50)):
        return program.main(
            [str(path), "--output", str(tmp_path / "new"), "--workers", "0", "--quiet", *more]
        )


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


def test_lines_join_the_networks_and_only_merges_on_them_have_a_barrier(tmp_path):
    """Independently: the ends are the networks before alignment, the middle is the average."""
    data, test = some_digits(), some_digits(50)
    arms: dict[str, Any] = {name: {"method": name} for name in ("naive_average", "git_rebasin")}
    arms["common_init"] = {"method": "naive_average", "initialization": "common"}
    arms["least_squares"] = {"method": "least_squares", "options": {"alignment": "activations"}}
    found = measured(tmp_path, data, test, arms=arms, lines={}, references=["single"])
    network = networks.network("mlp-1x8", EIGHT)
    ends = []
    for seed in (0, 1):
        start = training.initial_weights(network, seed)
        short = training.TrainingSettings(epochs=1)
        state = training.train(network, start, data, short, seed)
        ends.append(training.evaluate(network, state, test))
    for method in ("naive_average", "git_rebasin"):
        value = found[method, "", 0]
        (line,) = value["lines"]
        for measure, of_ends in zip(("loss", "accuracy"), zip(*ends, strict=True), strict=True):
            values = line[measure]["values"]
            assert (values[0], values[-1]) == pytest.approx(of_ends, rel=1e-5)
        assert value["accuracy"] == line["accuracy"]["values"][5]
        losses = np.array(line["loss"]["values"])
        highest = float((losses - (losses[0] + losses[-1]) / 2).max())
        assert line["loss"]["height"] == pytest.approx(highest)
    assert "lines" in found["common_init", "", 0] and "lines" not in found["least_squares", "", 0]
    alone = found["single", "", 0]
    assert alone == {"accuracy": pytest.approx(np.mean([end[1] for end in ends]))}


def test_the_linear_control_is_least_squares_on_the_pooled_images(tmp_path):
    """Independently: numpy, with the parts weighted alike."""
    data, test = some_digits(300), some_digits(300)
    arms = {"linear": {"network": "linear", "method": "head_refit", **CONTROL}}
    base = content_of()["base"] | {"models": 5, "alpha": 1.0}
    found = measured(tmp_path, data, test, base=base, arms=arms, references=["joint"])
    assert found["joint", "", 0]["accuracy"] > 0

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
    assert found["linear", "", 0]["accuracy"] == pytest.approx(accuracy, abs=1e-9)


def test_controls_of_texts_fit_the_character_after_each_position(tmp_path):
    """Each character determines the next one: who fits another position than it reads fails."""
    starts = torch.arange(40)[:, None] % 7
    texts = (starts + 2 * torch.arange(13)) % 7
    data = Labelled(texts[:, :-1], texts[:, -1], TextShape(12, 7), torch.arange(40) % 4)
    arms = {
        "linear": {"network": "linear", "method": "head_refit", **CONTROL},
        "untrained": {"method": "head_refit", **CONTROL},
        "least_squares": {"method": "least_squares", "options": {"alignment": "activations"}},
    }
    base = {"network": "language", "models": 2, "alpha": 10.0, "training": {"epochs": 1}}
    found = measured(tmp_path, data, data, base=base, arms=arms)
    assert [value["accuracy"] for value in found.values()] == [1.0] * 3


def test_what_is_measured_is_not_computed_again_and_other_settings_are(tmp_path, monkeypatch):
    arms = content_of()["arms"] | {"own": {"method": f"{__name__}:first"}}
    assert run(tmp_path, arms=arms, references=["joint", "single"]) == 0
    before = (tmp_path / "new" / "study.json").read_bytes()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(arena_module, "train", refuse)
    monkeypatch.setattr(arena_module, "merge", refuse)
    assert run(tmp_path, arms=arms, references=["joint", "single"]) == 0
    assert (tmp_path / "new" / "study.json").read_bytes() == before
    (tmp_path / "new" / "study.json").unlink()
    for other in ({"training": {"epochs": 2}}, {"examples": 100}, {"test_examples": 9}):
        with pytest.raises(AssertionError, match="computed again"):
            run(tmp_path, base=content_of()["base"] | other)
        (tmp_path / "new" / "study.json").unlink()


def first(problem):
    """A method of one's own."""
    from fleet_merging.methods.rebasin import naive_average

    return naive_average(problem)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"base": {"network": "mlp-1x20000"}, "arms": {"a": {"method": "least_squares"}}},
            "3.2 GB",
        ),
        ({"base": {"network": "language"}}, "network for these examples"),
        ({"base": {"network": "mlp-1x8", "models": 3}, "lines": {}}, "between two models"),
        ({"arms": {"a": {"method": "git_rebasn"}}}, "Did you mean 'git_rebasin'"),
        ({"arms": {"a": {"method": "git_rebasin", "options": {"stps": 1}}}}, "option"),
        ({"references": ["task_specific"]}, "reference of supervised"),
        ({"arena": "supervized"}, "Did you mean 'supervised'"),
        ({"base": {"network": "mlp-1x8", "epoch": 1}}, "arm 'git_rebasin'"),
    ],
)
def test_what_is_not_possible_is_refused_before_training(tmp_path, capsys, changes, message):
    assert run(tmp_path, **changes) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_the_split_of_digits_is_always_the_same():
    pytest.importorskip("sklearn")
    (train, test), (again, _) = sources.load("digits"), sources.load("digits")
    assert (len(train), len(test), train.shape) == (1400, 397, EIGHT)
    assert torch.equal(train.inputs, again.inputs) and float(train.inputs.min()) >= 0
    assert float(train.inputs.max()) == 1.0


def test_absent_scikit_learn_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(content_of()))
    arena_module._loaded.cache_clear()
    assert program.main([str(path), "--output", str(tmp_path / "new"), "--workers", "0"]) == 2
    assert "[studies]" in capsys.readouterr().err and not (tmp_path / "new").exists()
