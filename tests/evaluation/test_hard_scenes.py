"""The search for hard scenes: its seeds are nobody else's, and it keeps what it says."""

import hard_scenes
import pytest
from hard_scenes import SPLITS, HardScenesOptions, listed_splits, search_task, write_candidates
from hypothesis import given
from hypothesis import strategies as st
from task_selection import TaskSelection

from fleet_tools.evaluation.protocol_file import load_levels, load_protocol, protocol_names
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.parallel.workers import WorkerOptions
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


def options(tmp_path, **changes) -> HardScenesOptions:
    given = {
        "policies": ("zero",),
        "tasks": TaskSelection(tool="hammer"),
        "output": tmp_path / "out",
        "workers": WorkerOptions(workers=0),
        "quiet": True,
    }
    return HardScenesOptions(**{**given, **changes})


def test_candidates_have_seeds_that_neither_training_nor_a_published_level_has(tmp_path):
    file = write_candidates(options(tmp_path, candidates=100_000), "hammer")
    candidates = load_protocol(str(file))
    published = {
        seed
        for name in protocol_names()
        for level in load_levels(name).values()
        for scenes in level.splits.values()
        for seed in scenes.all_seeds()
    }
    for scenes in candidates.splits.values():
        seeds = scenes.all_seeds()
        assert isinstance(seeds, range)
        assert seeds.start in EVALUATION and seeds[-1] in EVALUATION
        assert seeds.start not in TRAINING and seeds[-1] not in VALIDATION
        assert not any(seed in seeds for seed in published)


def test_candidates_of_a_level_have_its_disturbances(tmp_path):
    plain = load_protocol(str(write_candidates(options(tmp_path), "hammer")))
    pushed = load_protocol(str(write_candidates(options(tmp_path, level="disturbed"), "hammer")))
    assert plain.disturbances is None
    assert pushed.disturbances == load_protocol("v3", "disturbed").disturbances


@pytest.mark.slow  # eight episodes
def test_a_scene_is_hard_where_policies_fail_and_the_expert_succeeds(tmp_path):
    given = options(tmp_path, candidates=1)
    row, hard = search_task(given, "hammer")
    expert = load_evaluation(given.output / "expert_hammer")
    solved = {
        split: [e.seed for e in expert.episodes if e.split == split and e.success]
        for split in SPLITS
    }
    assert hard == solved and row["all policies fail"] == 4
    easy = options(tmp_path, policies=("zero", "expert"), candidates=1, output=tmp_path / "none")
    row, hard = search_task(easy, "hammer")
    assert row["all policies fail"] == 4 - sum(map(len, solved.values()))
    assert hard_scenes.listed_splits({"hammer": hard}, 9) == {}
