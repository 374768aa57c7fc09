"""Protocols: their scenes, none of which is collected for training."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.evaluated import FIRST, SMALL

from fleet_tools.config.values import parse
from fleet_tools.dataset.attempts import scene_seed
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.evaluation.config import PROTOCOL, PROTOCOL_NAME
from fleet_tools.evaluation.protocol import Protocol, protocol_digest, task_digests
from fleet_tools.evaluation.protocol_file import load_protocol, protocol_names
from fleet_tools.sim.splits import EVALUATION, SPLITS, TRAINING

SCENES = st.builds(
    lambda first, scenes: {"first_seed": first, "scenes": scenes},
    st.integers(FIRST - 5, FIRST + 60) | st.integers(2**53 - 20, 2**53),
    st.integers(1, 30),
)


@given(st.dictionaries(st.sampled_from(SPLITS), SCENES, min_size=1))
def test_a_protocol_has_each_seed_once_and_only_those_of_evaluation(splits):
    data = SMALL.model_dump() | {"splits": splits}
    seeds = [s["first_seed"] + k for s in splits.values() for k in range(s["scenes"])]
    valid = len(set(seeds)) == len(seeds) and all(seed in EVALUATION for seed in seeds)
    if not valid:
        with pytest.raises(ConfigError):
            parse(Protocol, data, "data")
        return
    protocol = parse(Protocol, data, "data")
    for task in protocol.tasks:
        assert sorted(trial.seed for trial in protocol.trials(task)) == sorted(seeds)


@given(st.integers(0, 2**64), st.integers(0, 10**9))
def test_scenes_of_collection_are_never_evaluated(seed, attempt):
    assert scene_seed(seed, attempt) in TRAINING
    assert scene_seed(seed, attempt) not in EVALUATION


def test_seeds_are_exact_as_double_precision_numbers():
    for seeds in (TRAINING, EVALUATION):
        assert all(int(float(seed)) == seed for seed in (seeds[0], seeds[-1]))
        assert float(seeds[-1]) != float(seeds[-2])
    assert TRAINING.stop == EVALUATION.start
    assert 2**32 in TRAINING  # environments draw their own seeds below it


def test_there_is_one_protocol_and_former_ones_are_refused_by_name():
    assert protocol_names() == [PROTOCOL] and load_protocol(PROTOCOL).name == PROTOCOL_NAME
    for former in ("v2", "v3"):
        with pytest.raises(UnknownNameError, match="Did you mean 'v1'"):
            load_protocol(former)


def test_trials_are_in_the_order_of_the_file_with_the_first_scenes_first():
    keys = [trial.key for trial in SMALL.trials()]
    assert len(set(keys)) == len(keys) == 14
    assert keys[:5] == [*(("hammer", "train", k) for k in range(4)), ("hammer", "unseen_tools", 0)]
    assert SMALL.trials("knife", "train", 2) == SMALL.trials()[7:9]
    assert {trial.key for trial in SMALL.trials(scenes=2)} < set(keys)
    with pytest.raises(UnknownNameError, match="Did you mean 'hammer'"):
        SMALL.trials("hamer")
    with pytest.raises(UnknownNameError, match="split of the protocol 'small v1'"):
        SMALL.trials(split="all")


def test_the_digest_depends_on_all_that_determines_an_episode():
    digests = task_digests(SMALL)
    first = protocol_digest(SMALL, digests)
    assert first == protocol_digest(Protocol(**SMALL.model_dump()), dict(digests))
    others = [
        protocol_digest(SMALL, digests | {"hammer": "0"}),
        protocol_digest(SMALL.model_copy(update={"randomization": "off"}), digests),
        protocol_digest(SMALL.model_copy(update={"version": 2}), digests),
    ]
    assert len({first, *others}) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ["hammer", "hammer"]}, "a task is given twice"),
        ({"tasks": ["hamer"]}, "Did you mean 'hammer'"),
        (
            {"splits": {"tests": {"scenes": 1, "first_seed": FIRST}}},
            "split of the task 'hammer': 'tests'",
        ),
        ({"splits": {"train": {"scenes": 1, "first_seed": 7}}}, "smaller ones are for training"),
        ({"randomization": {"objct_pose": False}}, "Did you mean 'object_pose'"),
        ({"scene": 3}, "key: 'scene'"),
    ],
)
def test_an_invalid_protocol_is_refused(tmp_path, changes, message):
    data = {**SMALL.model_dump(mode="json", exclude={"task_files"}), **changes}
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        load_protocol(str(path))


def test_a_users_own_protocol_is_given_by_its_path(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(SMALL.model_dump(mode="json", exclude={"task_files"})))
    assert load_protocol(str(path)) == SMALL
    with pytest.raises(UnknownNameError, match="given by the path"):
        load_protocol("v0")


def test_a_protocol_of_ones_own_has_a_name_of_its_own(tmp_path):
    path = tmp_path / "own.yaml"
    data = SMALL.model_dump(mode="json", exclude={"task_files"})
    path.write_text(yaml.safe_dump({**data, "name": PROTOCOL_NAME, "version": 3}))
    with pytest.raises(ConfigError, match="Give your protocol another name"):
        load_protocol(str(path))
