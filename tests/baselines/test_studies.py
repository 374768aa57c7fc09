"""Studies: cells that are kept, data that are dealt, tables that are true, programs that go on."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from conftest import run_python

from fleet_tools.baselines import studies as program
from fleet_tools.baselines.experiments.result_cache import Cells
from fleet_tools.baselines.experiments.studies import digits, online, oracles, training
from fleet_tools.baselines.experiments.studies.networks import NETWORKS
from fleet_tools.baselines.experiments.studies.tables import Cell, by_column, by_quantity, spread

torch.set_num_threads(1)


def some_digits(count=200):
    """Noise in place of pictures: what is dealt here are labels."""
    generator = torch.Generator().manual_seed(0)
    return digits.Digits(
        torch.rand(count, 64, generator=generator), torch.arange(count, dtype=torch.int64) % 10
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_tables_are_true_of_their_networks(name):
    """Directly: `check` moves weights so far that layers as wide as these saturate."""
    network, data = NETWORKS[name], some_digits(20)
    state = {
        key: value * (1 + 0.3 * torch.rand_like(value)) if value.is_floating_point() else value
        for key, value in training.initial(network, 0).items()
    }
    group = network.symmetry.group(state)
    permuted = network.symmetry.apply(group.random(np.random.default_rng(0)), state)
    moved = [key for key in state if not torch.equal(state[key], permuted[key])]
    loss = training.judge(network, state, data)[0]
    assert training.judge(network, permuted, data)[0] == pytest.approx(loss, rel=1e-5)
    broken = permuted | {moved[0]: state[moved[0]]}
    assert abs(training.judge(network, broken, data)[0] - loss) > 1e-4


def test_the_program_knows_the_networks_without_importing_them():
    assert set(program.NETWORKS) == set(NETWORKS)
    imported = run_python(
        "import sys, json, contextlib, io\n"
        "from fleet_tools.baselines import studies as program\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    program.main(['oracles', '--help'])\n"
        "print(json.dumps([m for m in ('torch', 'sklearn', 'gymnasium.envs.classic_control')"
        " if m in sys.modules]))"
    )
    assert imported == []


@settings(max_examples=25)
@given(st.integers(2, 6), st.floats(0.3, 100), st.integers(0, 1000))
def test_every_picture_is_dealt_once(parts, alpha, seed):
    all_of_them = some_digits()
    dealt = digits.partition(all_of_them, parts, alpha, np.random.default_rng(seed))
    assert len(dealt) == parts and min(map(len, dealt)) >= 2
    pictures = torch.cat([part.pictures for part in dealt])
    assert sorted(map(tuple, pictures.tolist())) == sorted(
        map(tuple, all_of_them.pictures.tolist())
    )


def test_alpha_says_how_alike_the_parts_are():
    def concentration(alpha):
        dealt = digits.partition(some_digits(1000), 5, alpha, np.random.default_rng(0))
        counts = np.array([np.bincount(part.labels, minlength=10) for part in dealt])
        return float((counts.max(axis=0) / counts.sum(axis=0)).mean())

    assert concentration(0.05) > 0.8 > concentration(1.0) > concentration(1000.0)
    assert concentration(1000.0) == pytest.approx(0.2, abs=0.05)


def test_training_is_repeatable_and_leaves_its_start():
    network, data = NETWORKS["cnn"], some_digits(40)
    start = training.initial(network, 0)
    before = {name: tensor.clone() for name, tensor in start.items()}
    short = training.Training(epochs=2)
    one, again = (training.train(network, start, data, short, seed=1) for _ in range(2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert all(torch.equal(start[name], before[name]) for name in start)
    assert training.judge(network, one, data)[0] < training.judge(network, start, data)[0]


def test_a_cell_is_computed_once_for_its_settings(tmp_path):
    cells, calls = Cells(tmp_path / "study"), []

    def compute():
        calls.append(1)
        return {"barrier": 0.1 + 0.2}

    first = cells.get("a", {"steps": (1, 2)}, compute)
    assert cells.get("a", {"steps": (1, 2)}, compute) == first and len(calls) == 1
    cells.get("a", {"steps": (1, 3)}, compute)
    assert len(calls) == 2
    (tmp_path / "study" / "a.json").write_text("{")
    assert cells.get("a", {"steps": (1, 3)}, compute) == first and len(calls) == 3


def test_a_cell_that_is_interrupted_leaves_nothing(tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Cells(tmp_path).get("a", {}, interrupted)
    assert not list(tmp_path.iterdir())


def test_tables_show_the_spread():
    assert spread([0.2, 0.1, 0.4]) == "0.2 [0.1 0.4]"
    assert (spread([0.25]), spread([])) == ("0.25", "-")
    cells = [Cell("mlp", "naive", seed, {"barrier": 1.0 + seed, "acc": 0.5}) for seed in range(3)]
    assert by_column(cells, "barrier", "pairs") == "pairs    naive\nmlp    2 [1 3]"
    assert by_quantity(cells, "pairs").splitlines()[0].split() == ["pairs", "barrier", "acc"]


def test_online_study_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    command = ["online", "--episodes", "2", "--output", str(tmp_path)]
    monkeypatch.setattr(online, "AGENTS", 2)
    assert program.main([*command, "--seeds", "1", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert program.main([*command, "--seeds", "2", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [cell["row"] for cell in cells] == [*online.ARMS, *online.ARMS]
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    assert program.main([*command, "--seeds", "2"]) == 0
    assert "Medians over 2 seeds" in capsys.readouterr().out


def test_the_split_is_always_the_same():
    pytest.importorskip("sklearn")
    (train, test), (again, _) = digits.load(), digits.load()
    assert (len(train), len(test)) == (1400, 397)
    assert torch.equal(train.pictures, again.pictures) and float(train.pictures.min()) >= 0
    assert float(train.pictures.max()) == 1.0


def test_oracles_go_on_where_they_stopped(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(digits, "load", lambda: (some_digits(), some_digits(50)))
    monkeypatch.setattr(oracles, "TRAINING", replace(oracles.TRAINING, epochs=1))
    quick = {"naive": oracles.PAIRS["naive"], "matching": oracles.PAIRS["matching"]}
    monkeypatch.setattr(oracles, "PAIRS", quick)
    monkeypatch.setattr(oracles, "FLEETS", quick)
    monkeypatch.setattr(oracles, "ALPHAS", (1.0,))
    monkeypatch.setitem(oracles.NETWORKS, "mlp", oracles.NETWORKS["cnn"])
    command = ["oracles", "--only", "mlp", "fleets", "--seeds", "1", "--output", str(tmp_path)]
    assert program.main(command) == 0
    out = capsys.readouterr().out
    assert "barrier of pairs" in out and "accuracy of five" in out

    def never(*arguments):
        raise AssertionError("computed again")

    monkeypatch.setattr(oracles, "train", never)
    monkeypatch.setattr(oracles, "merge", never)
    assert program.main(command) == 0
    assert capsys.readouterr().out == out

    # Other settings: nothing that follows from the old ones is taken for theirs.
    monkeypatch.setattr(oracles, "TRAINING", replace(oracles.TRAINING, epochs=2))
    with pytest.raises(AssertionError, match="computed again"):
        program.main(command)


def test_absent_scikit_learn_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert program.main(["oracles", "--only", "mlp", "--output", str(tmp_path / "new")]) == 2
    assert "[studies]" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_bad_usage_is_refused(capsys):
    for command in (["oracles", "--only", "mpl"], ["online", "--seeds", "0"], []):
        with pytest.raises(SystemExit) as stop:
            program.main(command)
        assert stop.value.code == 2
