"""The search for hard scenes: its seeds are nobody else's, and it finds more than chance."""

from collections import Counter

import failure_model
import numpy as np
import pytest
from failure_model import SPLITS, Pool
from hard_scenes import HardScenesOptions, listed_splits, search_task, write_candidates
from hypothesis import given, settings
from hypothesis import strategies as st
from task_selection import TaskSelection

from fleet_tools.config.tasks import load_task
from fleet_tools.evaluation.protocol_file import load_levels, load_protocol, protocol_names
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.scene import sample_scene
from fleet_tools.sim.splits import EVALUATION, TRAINING, VALIDATION

SEEDS = st.lists(st.integers(EVALUATION.start, EVALUATION.stop - 1), unique=True, max_size=6)
FOUND = st.dictionaries(
    st.sampled_from(["hammer", "knife", "wrench"]),
    st.fixed_dictionaries({split: SEEDS for split in SPLITS}),
    min_size=1,
)


@given(FOUND, st.integers(1, 5))
def test_a_level_has_as_many_scenes_of_each_task(found, wanted):
    splits = listed_splits(found, wanted)
    for split in SPLITS:
        count = min([wanted, *(len(each[split]) for each in found.values())])
        if count == 0:
            assert split not in splits
            continue
        for task, seeds in splits[split]["listed"].items():
            assert seeds == found[task][split][:count]


# --- The model and the choice of candidates ----------------------------------------------------


def pool(seed, *, candidates=400, batch=8, wanted=15, alike=1000, pairs=6) -> Pool:
    """Draws candidates; each split has as many, of several pairs of tool and object."""
    generator = np.random.default_rng(seed)
    names = [
        (split, f"tool_{pair}", "object")
        for split in SPLITS
        for pair in generator.integers(0, pairs, candidates)
    ]
    numbers = generator.standard_normal((len(names), 12))
    return Pool(names, numbers, 1.0, batch, wanted, alike)


def imagined(of: Pool) -> np.ndarray:
    """Returns difficulties of a policy that takes longer in one direction, and fails far out."""
    along = of.numbers @ np.r_[1, -1, 1, np.zeros(9)] / np.sqrt(3)
    return np.where(along > 2.05, 1.0, 0.5 + 0.1 * along)  # it fails in 2 of 100


def search(of: Pool, difficulty: np.ndarray, rounds: int) -> None:
    for _ in range(rounds):
        of.difficulty |= {k: float(difficulty[k]) for k in of.next_candidates()}


def failures(of: Pool) -> int:
    return sum(each >= 1 for each in of.difficulty.values())


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_a_region_of_failure_far_more_often_than_chance(seed):
    of = pool(seed)
    difficulty = imagined(of)
    search(of, difficulty, rounds=6)
    by_chance = len(of.difficulty) * np.mean(difficulty >= 1)
    assert len(of.difficulty) <= 6 * 4 * of.batch
    assert failures(of) >= 4 * max(by_chance, 1)
    tried = [k for k in of.difficulty if of.pairs[k][0] == "train"]
    hardest = sorted(of.difficulty[k] for k in tried)[-15:]
    assert sorted(of.difficulty[k] for k in of.found()["train"]) == hardest


def test_without_a_region_it_finds_what_chance_finds():
    of = pool(0, candidates=1000, wanted=1000)
    fails = np.random.default_rng(1).random(len(of.pairs)) < 0.2
    search(of, fails.astype(float), rounds=10)
    assert 0.1 < failures(of) / len(of.difficulty) < 0.3


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 6), st.integers(1, 4))
def test_no_candidate_is_tried_twice_and_no_pair_of_models_fills_a_split(
    seed, batch, wanted, alike
):
    of = pool(seed, candidates=30, batch=batch, wanted=wanted, alike=alike)
    difficulty = np.random.default_rng(seed).integers(0, 2, len(of.pairs))
    for _ in range(4):
        found = of.found()
        done = {split for split in SPLITS if sum(difficulty[found[split]]) >= wanted}
        chosen = of.next_candidates()
        assert len(set(chosen)) == len(chosen) and of.difficulty.keys().isdisjoint(chosen)
        assert done.isdisjoint(of.pairs[k][0] for k in chosen)
        assert max(Counter(of.pairs[k][0] for k in chosen).values(), default=0) <= batch
        of.difficulty |= {k: float(difficulty[k]) for k in chosen}
    for split, found in of.found().items():
        assert len(found) <= wanted and {of.pairs[k][0] for k in found} <= {split}
        assert max(Counter(of.pairs[k] for k in found).values(), default=0) <= alike
        least = min((of.difficulty[k] for k in found), default=0.0)
        full = Counter(of.pairs[k] for k in found)
        for k in of.difficulty.keys() - {*found}:  # what is left out is easier, or too much alike
            if of.pairs[k][0] == split and full[of.pairs[k]] < alike:
                assert len(found) == wanted and of.difficulty[k] <= least


def test_the_model_leaves_one_out_as_if_it_had_been_fitted_without(monkeypatch):
    generator = np.random.default_rng(1)
    numbers, values = generator.standard_normal((15, 4)), generator.standard_normal(15)
    values -= values.mean()  # the mean that all have is left as it is
    kernel = (1 + numbers @ numbers.T / 4) ** 3
    errors = {}
    for ridge in (0.1, 1.0, 10.0):
        left_out = []
        for k in range(15):
            rest = np.delete(np.arange(15), k)
            weights = np.linalg.solve(kernel[np.ix_(rest, rest)] + ridge * np.eye(14), values[rest])
            left_out.append(kernel[k, rest] @ weights - values[k])
        errors[ridge] = np.square(left_out).sum()
    best = min(errors, key=lambda ridge: errors[ridge])
    monkeypatch.setattr(failure_model, "_RIDGES", np.array([*errors]))
    weights = np.linalg.solve(kernel + best * np.eye(15), values)
    others = generator.standard_normal((5, 4))
    expected = (1 + others @ numbers.T / 4) ** 3 @ weights
    assert failure_model.expected(numbers, values, others) == pytest.approx(expected)


def test_the_model_sees_what_a_policy_on_keypoints_can_meet_and_nothing_else():
    task = load_robot().fill(load_task("spatula"))
    scenes = [sample_scene(task, 2**52 + k) for k in range(40)]
    numbers = failure_model.scene_numbers(scenes)
    looks = {"table_texture": "stone", "table_tint": (1.0, 1.0, 1.0), "seed": 5, "cameras": {}}
    changed = [scene.model_copy(update=looks) for scene in scenes]
    assert np.array_equal(failure_model.scene_numbers(changed), numbers)
    assert numbers.mean(axis=0) == pytest.approx(0) and numbers.std(axis=0) == pytest.approx(1)
    heavier = [scenes[0].model_copy(update={"tool_mass_scale": 1.1}), *scenes[1:]]
    assert not np.array_equal(failure_model.scene_numbers(heavier), numbers)


# --- The program --------------------------------------------------------------------------------


def options(tmp_path, **changes) -> HardScenesOptions:
    given = {
        "policies": ("zero",),
        "tasks": TaskSelection(tool="hammer"),
        "candidates": 8,
        "output": tmp_path / "out",
        "workers": WorkerOptions(workers=0),
        "quiet": True,
    }
    return HardScenesOptions(**{**given, **changes})


def test_candidates_have_seeds_that_neither_training_nor_another_level_has(tmp_path):
    file = write_candidates(options(tmp_path, candidates=100_000), "hammer")
    candidates = load_protocol(str(file))
    published = {
        seed
        for name in protocol_names()
        for level, protocol in load_levels(name).items()
        if level != "hard"
        for scenes in protocol.splits.values()
        for seed in scenes.all_seeds()
    }
    for scenes in candidates.splits.values():
        seeds = scenes.all_seeds()
        assert isinstance(seeds, range)
        assert seeds.start in EVALUATION and seeds[-1] in EVALUATION
        assert seeds.start not in TRAINING and seeds[-1] not in VALIDATION
        assert not any(seed in seeds for seed in published)


def test_the_published_level_has_candidates_of_the_search_that_differ(tmp_path):
    candidates = load_protocol(str(write_candidates(options(tmp_path, candidates=1000), "hammer")))
    hard = load_protocol("v3", "hard")
    assert hard.disturbances is hard.sensors is None
    pairs = Counter[tuple[str, str, str, str]]()
    for name in hard.tasks:
        task = load_robot().fill(load_task(name))
        for trial in hard.trials(name):
            assert trial.seed in candidates.splits[trial.split].all_seeds()
            scene = hard.scene(task, trial)
            assert scene == sample_scene(task, trial.seed, split=trial.split)  # as in training
            pairs[name, trial.split, scene.tool, scene.object] += 1
    assert max(pairs.values()) <= HardScenesOptions.model_fields["alike"].default


def test_candidates_of_a_level_have_its_disturbances(tmp_path):
    plain = load_protocol(str(write_candidates(options(tmp_path), "hammer")))
    pushed = load_protocol(str(write_candidates(options(tmp_path, level="disturbed"), "hammer")))
    assert plain.disturbances is None
    assert pushed.disturbances == load_protocol("v3", "disturbed").disturbances


def test_without_a_task_it_searches_in_those_of_the_protocol(tmp_path):
    every = options(tmp_path, tasks=TaskSelection()).task_names()
    assert [*every] == [*load_protocol("v3").tasks]
    assert [*options(tmp_path).task_names()] == ["hammer"]


@pytest.mark.slow  # some twenty episodes
def test_scenes_are_as_hard_as_policies_find_them_and_stored_episodes_give_them_again(tmp_path):
    given = options(tmp_path, policies=("zero", "random"), rounds=2, batch=1, wanted=2)
    rows, pool, trials = search_task(given, "hammer")
    for number in range(2):
        stored = load_evaluation(given.output / f"{number}_hammer").episodes
        assert {e.seed for e in stored} == {trials[k].seed for k in pool.difficulty}
        assert not any(e.success for e in stored)
    assert {*pool.difficulty.values()} == {2.0} and rows[-1]["of these all fail"] == 8
    logs = [given.output / f"{number}_hammer" / "episodes.jsonl" for number in range(2)]
    before = [log.read_bytes() for log in logs]
    again, other, _ = search_task(given, "hammer")
    assert (again, other.found()) == (rows, pool.found())
    assert [log.read_bytes() for log in logs] == before


@pytest.mark.slow  # eight episodes
def test_what_the_first_policy_solves_quickly_is_tried_by_no_other(tmp_path):
    given = options(tmp_path, policies=("expert", "zero"), rounds=1, batch=1)
    _, pool, _ = search_task(given, "hammer")
    assert len(pool.difficulty) == 4 and max(pool.difficulty.values()) < 0.5
    assert not load_evaluation(given.output / "1_hammer").episodes
