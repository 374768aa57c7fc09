"""The law of success against the number of robots, its test on 100 robots, and small parts."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fleet_cases import write_data
from support.processes import ROOT

from fleet_tools.baselines.experiments.arena import FailedRunError
from fleet_tools.baselines.experiments.fleets import ToolUse
from fleet_tools.baselines.experiments.form import Experiment, load_experiment, planned_runs
from fleet_tools.baselines.experiments.result import as_json, make_result
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError

SCRIPT = runpy.run_path(str(ROOT / "docs/results/scaling_law.py"))
FLEETS, SEEDS, SCENES, LARGE = (5, 20, 50), 3, 40, 100
ALPHAS = (0.1, 1.0)
FOLDER = ROOT / "experiments" / "budget"


def law_of(outcomes: list[tuple[int, int, int]], robots: int = LARGE) -> Any:
    return SCRIPT["prediction"]("gate", 0.1, outcomes, robots)


def rate(intercept: float, slope: float, robots: int) -> float:
    return float(1 / (1 + np.exp(-intercept - slope * np.log(robots))))


def drawn(
    generator: np.random.Generator, chance: float, dispersion: float, scenes: int = SCENES
) -> int:
    """Draws solved scenes of one seed, with a rate of its own if they are dispersed."""
    if dispersion > 1:
        alike = (scenes - dispersion) / (dispersion - 1)
        chance = generator.beta(chance * alike, (1 - chance) * alike)
    return int(generator.binomial(scenes, chance))


def outcomes(
    generator: np.random.Generator, law: tuple[float, float], dispersion: float
) -> list[tuple[int, int, int]]:
    return [
        (robots, drawn(generator, rate(*law, robots), dispersion), SCENES)
        for robots in FLEETS
        for _ in range(SEEDS)
    ]


@given(st.floats(-2, 2), st.floats(-0.5, 0.5))
def test_many_scenes_without_chance_give_the_law_back(intercept, slope):
    many = 10**6
    exact = [(each, round(many * rate(intercept, slope, each)), many) for each in FLEETS]
    found = law_of(exact)
    assert found.slope == pytest.approx(slope, abs=1e-3)
    assert found.rate == pytest.approx(rate(intercept, slope, LARGE), abs=1e-3)
    assert found.low <= found.rate <= found.high and found.high - found.low < 0.01


@given(st.lists(st.integers(0, SCENES), min_size=9, max_size=9), st.randoms())
def test_neither_the_order_of_seeds_nor_the_name_of_success_matters(solved, random):
    fleets = [robots for robots in FLEETS for _ in range(SEEDS)]
    seeds = list(zip(fleets, solved, [SCENES] * 9, strict=True))
    found = law_of(seeds)
    assert np.isfinite([found.slope, found.rate]).all()  # all or none may be solved
    assert 0 <= found.low <= found.high <= 1
    random.shuffle(seeds)
    assert law_of(seeds).slope == pytest.approx(found.slope, abs=1e-3)
    mirrored = law_of([(robots, scenes - k, scenes) for robots, k, scenes in seeds])
    assert mirrored.slope == pytest.approx(-found.slope, abs=1e-3)
    assert mirrored.rate == pytest.approx(1 - found.rate, abs=1e-3)
    assert mirrored.dispersion == pytest.approx(found.dispersion, rel=1e-2)


def test_equal_rates_have_no_slope_and_the_rate_of_all():
    found = law_of([(robots, 10, SCENES) for robots in FLEETS for _ in range(SEEDS)])
    assert found.slope == pytest.approx(0, abs=1e-3) and found.dispersion < 0.01
    assert found.rate == pytest.approx((90 + 0.5) / (360 + 1), abs=0.003)
    assert found.low < found.rate < found.high


@pytest.mark.parametrize("dispersion", [1, 3])
def test_intervals_contain_the_next_seeds_in_95_of_100_cases(dispersion):
    generator, law, held = np.random.default_rng(2), (2.0, -0.4), []
    for _ in range(60):
        found = law_of(outcomes(generator, law, dispersion))
        chance = rate(*law, LARGE)
        solved = sum(drawn(generator, chance, dispersion) for _ in found.scenes)
        total = sum(found.scenes)
        held.append(round(found.low * total) <= solved <= round(found.high * total))
    assert np.mean(held) >= 0.92


def test_intervals_are_wider_if_seeds_differ_more_and_for_larger_fleets():
    def width(spread: int, robots: int = LARGE) -> float:
        found = law_of(
            [(each, 20 + k * spread, SCENES) for each in FLEETS for k in (-1, 0, 1)], robots
        )
        return found.high - found.low

    assert width(2) < width(8) < width(16)
    assert width(8, 20) < width(8, 100) < width(8, 10_000)


def test_too_few_outcomes_are_refused():
    for few in ([(5, 1, 4)] * 3, [(5, 1, 4), (20, 1, 4)]):
        with pytest.raises(ConfigError, match="three outcomes of two fleets"):
            law_of(few)


def stored(folder: Path, stem: str, fleets: tuple[int, ...], solved: int, **changes: Any) -> Path:
    """Stores a result in which a number of scenes of each seed is solved; returns its file."""
    form = {
        "base": {"rollouts": SCENES, "split": {"by": "task"}},
        "vary": "case",
        "values": {
            f"{robots}, {alpha}": {"robots": robots, "split.alpha": alpha}
            for robots in fleets
            for alpha in ALPHAS
        },
        "arms": {"gate": {"method": "naive_average"}, "raw": {"raw_data": {}}},
        "seeds": SEEDS,
    }
    experiment = parse(Experiment, form | changes, "The test")
    success = {"hammer": [[int(scene < solved) for scene in range(SCENES)]]}
    cells = [
        {"arm": arm, "value": value, "seed": seed, "success": success}
        for arm in experiment.arms
        for value in experiment.cases
        for seed in range(experiment.seeds)
    ]
    path = folder / f"{stem}.json"
    path.write_text(as_json(make_result(experiment, cells)))
    return path


def test_a_prediction_is_stored_and_compared_with_the_later_result(tmp_path):
    path = stored(tmp_path, "scaling", FLEETS, 20)
    predictions = SCRIPT["predicted"](path, LARGE)
    again = parse(SCRIPT["Predictions"], json.loads(predictions.to_json()), "The file")
    assert again == predictions == SCRIPT["predicted"](path, LARGE)
    assert [(each.arm, each.alpha) for each in again.laws] == [
        (arm, alpha) for arm in ("gate", "raw") for alpha in ALPHAS
    ]
    for solved, verdict in ((20, "held"), (0, "did not hold"), (SCENES, "did not hold")):
        later = stored(tmp_path, "scaling_100", (LARGE,), solved)
        lines = SCRIPT["table"](again, path, later).splitlines()
        assert len(lines) == 2 + len(again.laws)
        assert all(line.endswith(f"({3 * solved} of 120) | {verdict} |") for line in lines[2:])


def test_a_comparison_with_something_else_is_refused(tmp_path):
    path = stored(tmp_path, "scaling", FLEETS, 20)
    predictions = SCRIPT["predicted"](path, LARGE)
    later = stored(tmp_path, "scaling_100", (LARGE,), 20)
    for fleets, changes, message in (
        ((80,), {}, "predicted are 100 robots"),
        ((LARGE,), {"seeds": 2}, "in more than its `values`"),
        ((LARGE,), {"arms": {"gate": {"method": "git_rebasin"}}}, "in more than its `values`"),
    ):
        other = stored(tmp_path, "other", fleets, 20, **changes)
        with pytest.raises(ConfigError, match=message):
            SCRIPT["table"](predictions, path, other)
    stored(tmp_path, "scaling", FLEETS, 21)
    with pytest.raises(ConfigError, match="fitted to another result"):
        SCRIPT["table"](predictions, path, later)
    with pytest.raises(ConfigError, match="is not a result"):
        SCRIPT["table"](predictions, tmp_path / "none.json", later)


def test_incomplete_results_are_refused(tmp_path):
    path = stored(tmp_path, "scaling", FLEETS, 20)
    content = json.loads(path.read_text())
    del content["cells"][4]["success"]
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"no success of gate, 5, 1\.0, seed 1"):
        SCRIPT["predicted"](path, LARGE)
    without = {"values": {"5": {"robots": 5}}}
    with pytest.raises(ConfigError, match=r"no `robots` or no `split\.alpha`"):
        SCRIPT["predicted"](stored(tmp_path, "without", FLEETS, 20, **without), LARGE)


def test_the_stored_experiments_differ_in_robots_alone_and_share_each_robots_bytes():
    one, large = (load_experiment(FOLDER / f"{stem}.yaml") for stem in ("scaling", "scaling_100"))
    differ = {"values", "about"}
    assert one.model_dump(exclude=differ) == large.model_dump(exclude=differ)
    assert {*one.arms} >= {*one.controls, "gate"} and one.seeds == SEEDS
    fleets = []
    for experiment in (one, large):
        arena = ToolUse(experiment)
        runs = [each for each in planned_runs(experiment) if not each.is_reference]
        plans = [arena.plan(each) for each in runs]
        assert {each.budget for each in plans} == {20_000, 21_000}
        fleets.append({(each.config.robots, each.config.split.alpha) for each in plans})
    assert fleets == [{(n, a) for n in each for a in ALPHAS} for each in (FLEETS, (LARGE,))]


def small_fleets(data: Path, **robots: int) -> Experiment:
    """Returns an experiment with fleets of the same data, by the names of the cases."""
    mixtures = {"teacher": "density_gated_ensemble", "mixtures": 8, "states": 200, "steps": 2}
    form = {
        "data": str(data),
        "base": {
            "policy": {"body": {"type": "mlp", "layers": 1, "width": 4}},
            "split": {"alpha": 0.1},
            "uploads": {"bits": 8},
            "training": {"epochs": 1},
        },
        "vary": "robots",
        "values": {name: {"robots": count} for name, count in robots.items()},
        "arms": {
            "gate": {"method": "naive_average", "last_method": "density_gated_ensemble"},
            "distillation": {
                "method": "naive_average",
                "last_method": "distillation",
                "last_options": mixtures,
            },
        },
        "references": ["joint", "server", "single"],
        "seeds": 1,
    }
    return parse(Experiment, form, "The test")


def test_robots_of_five_episodes_are_merged_and_fewer_have_no_mixture(tmp_path):
    data = write_data(tmp_path / "data", [3] * 28)  # 25 are not held out
    experiment = small_fleets(data, five=5, three=8)
    arena, losses, refused = ToolUse(experiment), list[float](), list[str]()
    for each in planned_runs(experiment):
        if not each.is_reference:
            try:
                losses.append(arena.measure(arena.plan(each), tmp_path / "out")["loss"])
            except FailedRunError as error:
                refused.append(f"{each.title}: {error}")
    assert len(losses) == 3 and np.isfinite(losses).all()
    assert len(refused) == 1 and "'distillation' with three" in refused[0]
    assert "every robot was excluded" in refused[0] and "at least 5 episodes" in refused[0]


def test_the_servers_own_run_is_the_same_beside_any_fleet(tmp_path):
    experiment = small_fleets(write_data(tmp_path / "data"), three=3, five=5)
    arena, places = ToolUse(experiment), {}
    for each in planned_runs(experiment):
        places.setdefault(each.arm, set()).add(arena.plan(each).folder)
    alone, own = ("joint", "server"), ("gate", "distillation", "single")
    expected = dict.fromkeys(alone, 1) | dict.fromkeys(own, 2)
    assert {arm: len(found) for arm, found in places.items()} == expected
