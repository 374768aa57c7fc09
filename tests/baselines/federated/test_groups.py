"""Fleets of several arms and sensors: whose episodes a robot has, and what it can do without."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.fleet_cases import answered, request, run_rounds, same
from support.shares import few
from support.small_datasets import Drawn, a_header, hammer_header, write

from fleet_tools.baselines.federated import central
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.references import reference
from fleet_tools.baselines.federated.robot import FleetClient, open_samples
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.layout import LayoutError
from fleet_tools.baselines.policies.part_configs import MLPConfig
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.rollouts import count_successes
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.config.values import parse
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.uploads import RawDataConfig
from fleet_tools.errors import ConfigError, DatasetError, UnknownNameError

SENSORS = {"end_effector_wrench": ((6,), "float32"), "object_keypoints": ((2, 3), "float32")}
UNREAD = {"gripper": ((1,), "float32")}
EPISODES = {"panda": 24, "ur5e": 16}
BLIND = {"robot": "ur5e", "observations": ["object_keypoints"]}
DEAF = {"robot": "ur5e", "observations": ["gripper"]}
WRENCH = "end_effector_wrench"
CAN_DO_WITHOUT = {
    "body": {"type": "mlp", "layers": 1, "width": 6},
    "reads": [*SENSORS],
    "optional": [WRENCH],
}


@pytest.fixture(name="arms", scope="module")
def _arms(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns datasets of two arms; a folder is named as its arm."""
    folder = tmp_path_factory.mktemp("arms")
    for seed, (arm, episodes) in enumerate(EPISODES.items()):
        header = a_header(SENSORS | UNREAD)
        spec = header.env_spec
        kwargs = {**spec.kwargs, "robot": arm} if arm != "panda" else spec.kwargs
        header = header.model_copy(update={"env_spec": spec.model_copy(update={"kwargs": kwargs})})
        steps = [2 + number % 3 for number in range(episodes)]
        write(folder / arm, Drawn(steps, [True] * episodes, seed), header)
    return [str(folder / arm) for arm in EPISODES]


def fleet(arms: list[str], groups: list[dict[str, Any]], **changes: Any) -> FleetConfig:
    """Returns the configuration of a fleet of groups."""
    robots = sum(group.get("robots", 1) for group in groups)
    given = {
        **{"data": arms, "groups": groups, "robots": robots, "split": {"alpha": 1.0}},
        **{"method": "naive_average", "held_out": 0.2, "policy": CAN_DO_WITHOUT},
        **{"training": {"epochs": 4, "batch_size": 8, "seed": 5}, "merge_every": 2},
    }
    return parse(FleetConfig, given | changes, "The test")


def owners(plan: FleetPlan) -> list[list[str]]:
    """Returns the arm of each episode of each robot."""
    every = Samples(plan.config.data).episodes
    return [[every[k].header.robot for k in each.episodes] for each in plan.assignments]


@given(
    counts=st.lists(st.tuples(st.sampled_from([*EPISODES]), st.integers(1, 2)), min_size=1),
    episodes=st.integers(8, 12) | st.none(),
    seed=st.integers(0, 99),
)
@few(15)
def test_a_robot_has_episodes_of_its_arm_and_arms_have_their_share(arms, counts, episodes, seed):
    groups = [{"robot": arm, "robots": count} for arm, count in counts[:3]]
    training = {"epochs": 4, "seed": seed}
    try:
        plan = FleetPlan.of(fleet(arms, groups, episodes=episodes, training=training))
    except (ConfigError, DatasetError):  # more robots than some arm has episodes
        return
    wanted = [group["robot"] for group in groups for _ in range(group["robots"])]
    assert [set(each) for each in owners(plan)] == [{arm} for arm in wanted]
    drawn = [k for each in plan.assignments for k in each.episodes]
    assert len(drawn) == len(set(drawn))
    if episodes is not None:
        assert len(drawn) == episodes
        for arm, count in Counter(wanted).items():
            own = sum(each.count(arm) for each in owners(plan))
            assert abs(own - episodes * count / len(wanted)) < 1


@given(episodes=st.integers(8, 12) | st.none(), alpha=st.sampled_from([0.1, 1.0]))
@few(6)
def test_one_group_of_all_robots_is_the_fleet_without_groups(arms, episodes, alpha):
    same_fleet = {"robots": 3, "episodes": episodes, "split": {"alpha": alpha}}
    plain, grouped = (
        FleetPlan.of(fleet(arms[:1], groups, **same_fleet)) for groups in ([], [{"robots": 3}])
    )
    assert plain.assignments == grouped.assignments


@pytest.mark.parametrize("name", ["joint", "joint_ensemble", "task_specific"])
def test_references_share_the_episodes_of_all_arms(arms, name):
    config = fleet(arms, [{"robots": 2}, {"robot": "ur5e"}], episodes=12)
    plan, other = FleetPlan.of(config), FleetPlan.of(reference(config, name))
    drawn = sorted(k for each in plan.assignments for k in each.episodes)
    if name == "task_specific":
        assert [set(each) for each in owners(other)] == [{"panda"}, {"ur5e"}]
        assert sorted(k for each in other.assignments for k in each.episodes) == drawn
    else:
        assert all(sorted(each.episodes) == drawn for each in other.assignments)


class _MeanWrench(Samples):
    """Samples in which the wrench of every step is a given one."""

    wrench = np.zeros(6, np.float32)

    def read(self, steps: np.ndarray) -> dict[str, Any]:
        found = super().read(steps)
        found["observation"]["end_effector_wrench"][:] = self.wrench
        return found


def test_a_robot_without_a_sensor_learns_from_its_mean_and_does_not_open_it(arms):
    plan = FleetPlan.of(fleet(arms, [{"robots": 2}, BLIND]))
    opened: list[tuple[str, ...]] = []

    def opens(folders: tuple[str, ...], names: tuple[str, ...]) -> Samples:
        opened.append(names)
        return open_samples(folders, names)

    asked, blind = request(plan, epochs=2), plan.assignments[2]
    found = [answered(FleetClient(each, opens).answer(asked)) for each in plan.assignments]
    assert opened == [tuple(SENSORS), tuple(SENSORS), ("object_keypoints",)]
    samples = _MeanWrench(plan.config.data, observations=[*SENSORS])
    samples.wrench = np.array(plan.blueprint.scaling.mean["end_effector_wrench"], np.float32)
    trajectories = Trajectories(samples.subset(blind.episodes), plan.blueprint)
    start = TrainingState.initial(plan.blueprint.create(3).state_dict())
    state = train(plan.blueprint, trajectories, blind.training, start, epochs=2)
    assert same(found[2].weights, state.policy_weights)
    (result, *_) = run_rounds(plan, count=1)
    assert all(torch.isfinite(each).all() for each in result.weights.values())


@pytest.mark.parametrize(
    ("groups", "changes", "error", "message"),
    [
        ([{"robot": "pandas"}], {}, UnknownNameError, "Unknown robot: 'pandas'. Did you mean 'pan"),
        ([{"robot": "no/arm.yaml"}], {}, UnknownNameError, "given by the path of its YAML file"),
        ([{"robot": "iiwa14"}], {}, ConfigError, "data are of panda, ur5e. .*--robot iiwa14"),
        ([{"observations": ["wrench"]}], {}, UnknownNameError, "observation of the robot panda"),
        (
            [BLIND],
            {"policy": {"reads": [*SENSORS]}},
            ConfigError,
            "ur5e lacks end_effector_wrench.*`policy: {opt",
        ),
        ([BLIND], {"robots": 2}, ConfigError, "have 1 robots together.*give `robots: 1`"),
        ([{"robot": "ur5e"}], {"episodes": 16}, ConfigError, "16 of an arm, exceed the 1"),
        (
            [DEAF],
            {"policy": {"reads": [*SENSORS], "optional": [*SENSORS]}},
            ConfigError,
            "has none of end_effector_wr",
        ),
        ([{}], {"policy": {"reads": [WRENCH], "optional": [WRENCH]}}, LayoutError, "nothing else"),
        ([{}], {"policy": {"optional": ["wrench"]}}, UnknownNameError, "that the policy reads"),
    ],
)
def test_what_cannot_work_is_refused(arms, groups, changes, error, message):
    with pytest.raises(error, match=message):
        FleetPlan.of(fleet(arms, groups, **changes))


def test_raw_data_of_robots_without_a_sensor_are_refused(arms, tmp_path):
    plan = FleetPlan.of(fleet(arms, [{}, BLIND]))
    with pytest.raises(ConfigError, match="lack end_effector_wrench, and `raw_data` hold"):
        central.learn(plan, RawDataConfig(), None, tmp_path)


def test_an_arm_without_its_model_is_refused(arms, tmp_path):
    file = tmp_path / "mine.yaml"
    text = Path("task_configs/robots/ur5e.yaml").read_text()
    file.write_text(text.replace("name: ur5e", "name: mine").replace("../../assets", "missing"))
    with pytest.raises(
        ConfigError, match=r"mine\.yaml: the model file .*ur5e\.urdf does not exist"
    ):
        FleetPlan.of(fleet(arms, [{"robot": str(file)}]))


def test_joints_of_six_and_seven_do_not_enter_one_network(tmp_path):
    folders = []
    for joints in (7, 6):
        header = a_header({"joint_position": ((joints,), "float32"), **SENSORS})
        folders.append(str(tmp_path / str(joints)))
        write(Path(folders[-1]), Drawn([3, 3], [True, True], joints), header)
    with pytest.raises(DatasetError, match=r"shape \(7,\), not \(6,\).*policy: {reads:"):
        FleetPlan.of(fleet(folders, [{}], policy={"reads": ["joint_position", *SENSORS]}))


def test_policies_are_judged_on_each_arm_with_and_without_optional_entries():
    header = hammer_header()
    kwargs = {**header.env_spec.kwargs, "robot": "ur5e"}
    ur5e = header.env_spec.model_copy(update={"kwargs": kwargs})
    headers = [header, header.model_copy(update={"env_spec": ur5e})]
    reads = ("end_effector_wrench", "object_keypoints")
    config = PolicyConfig(body=MLPConfig(layers=0), reads=reads, optional=reads[:1])
    blueprint = Blueprint.of(config, header.observation, header.action)
    weights = {name: torch.zeros_like(t) for name, t in blueprint.create().state_dict().items()}
    found = count_successes(headers, 1, Checkpoint(blueprint, weights), worker_count=0)
    assert [*found] == [
        *("hammer", "hammer without end_effector_wrench"),
        *("hammer@ur5e", "hammer@ur5e without end_effector_wrench"),
    ]
    assert all(each["episodes"] == 1 for each in found.values())
    only = count_successes(headers, 1, Checkpoint(blueprint, weights), {"hammer"}, worker_count=0)
    assert [*only] == ["hammer", "hammer without end_effector_wrench"]
