"""Robots apart come to what training comes to; who is lost is left out, and comes back."""

import shutil
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import h5py
import numpy as np
from fleet_cases import Tapped, config_of, local, plan_of, played, same, write_data
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.baselines.federated.config import REFERENCES, Split, reference
from fleet_tools.baselines.federated.plan import Plan, deal
from fleet_tools.baselines.federated.run import fine_tune, run
from fleet_tools.baselines.merging.symmetry.check import check
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.errors import TrainingError
from fleet_tools.baselines.training.experiment import blueprint_of, split
from fleet_tools.baselines.training.loop import train, validate
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError, UnknownNameError


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("fleet") / "data")


def by_hand(plan, robot, weights=None, epochs=4, epoch=0):
    """What a robot comes to when it is trained as any policy is."""
    told = plan.homes[robot].assignment
    own = Samples(told.data).subset(told.episodes)
    weights = weights or told.blueprint.create(told.initialization).state_dict()
    state = replace(TrainingState.initial(weights), epoch=epoch)
    return train(
        told.blueprint, Trajectories(own, told.blueprint), told.training, state, epochs=epochs
    )


def test_a_robot_that_has_all_data_and_merges_once_is_plain_training(data):
    plan = plan_of(data, robots=1, merge_every=None)
    (only,) = played(plan)
    learned, held = split(Samples(data), 0.2, seed=5)
    blueprint = blueprint_of(plan.config.policy, held)
    told = plan.homes[0].assignment
    config = TrainingConfig(epochs=4, batch_size=8, seed=told.training.seed)
    begin = TrainingState.initial(blueprint.create(told.initialization).state_dict())
    state = train(blueprint, Trajectories(learned, blueprint), config, begin)
    assert same(only.weights, state.weights) and only.parts[0].reply.loss == state.loss
    assert only.parts[0].reply.steps == sum(each.record.steps for each in learned.episodes)
    assert only.loss == validate(blueprint, Trajectories(held, blueprint), config, state.weights)


def test_with_more_rounds_only_its_moments_begin_anew(data):
    plan = plan_of(data, robots=1)
    first, second = played(plan)
    state = by_hand(plan, 0, epochs=2)
    assert same(first.weights, state.weights)
    state = by_hand(plan, 0, state.weights, epochs=2, epoch=2)
    assert same(second.weights, state.weights)


@pytest.mark.parametrize("initialization", ["own", "common"])
def test_the_naive_average_is_the_mean_weighted_by_steps(data, initialization):
    plan = plan_of(data, initialization=initialization)
    states = [by_hand(plan, robot, epochs=2) for robot in range(3)]
    begins = [home.assignment.initialization for home in plan.homes]
    assert len(set(begins)) == (1 if initialization == "common" else 3)
    for result in played(plan):
        for robot, state in enumerate(states):
            assert same(result.parts[robot].reply.weights, state.weights)
        steps = np.array([state.steps for state in states])
        for name, tensor in result.weights.items():
            stacked = np.stack([state.weights[name].double().numpy() for state in states])
            mean = np.tensordot(steps / steps.sum(), stacked, 1)
            np.testing.assert_allclose(tensor.numpy(), mean, rtol=1e-5, atol=1e-6)
        states = [by_hand(plan, k, result.weights, epochs=2, epoch=2) for k in range(3)]


def test_fleets_of_every_kind_of_method_agree_with_their_symmetry(data):
    plan = plan_of(data, robots=2, merge_every=None)
    network = plan.blueprint.create()
    example = {
        name: torch.randn(2, 3, *array.shape) for name, array in plan.blueprint.observation.items()
    }
    check(network.symmetry(), network, (example,), output=lambda outputs: outputs[0])
    for method, options in (
        ("git_rebasin", {"rounds": 2}),
        ("sinkhorn_data", {"steps": 2}),
        ("fleet_merge", {"epochs": 1, "steps": 2}),
    ):
        one, other = (
            played(plan_of(data, robots=2, merge_every=None, method=method, options=options))[0]
            for _ in range(2)
        )
        assert same(one.weights, other.weights)
        asked = one.parts[0].traffic
        assert (asked.calls > 1) == (method == "fleet_merge")


@given(
    robots=st.integers(1, 7),
    share=st.floats(0.01, 1),
    seed=st.integers(0, 99),
    number=st.integers(1, 9),
)
def test_who_takes_part_is_drawn_anew_in_each_round(data, robots, share, seed, number):
    config = config_of(data, participation=share)
    plan = Plan(
        config.model_copy(update={"training": TrainingConfig(seed=seed)}),
        "", None, (None,) * robots, None, 0,
    )  # fmt: skip
    drawn = plan.participants(number)
    assert drawn == sorted(set(drawn)) == plan.participants(number)
    assert set(drawn) <= set(range(robots)) and abs(len(drawn) - share * robots) <= max(
        0.5, 1 - share
    )
    assert share < 1 or drawn == list(range(robots))


def test_all_take_part_about_equally_often(data):
    plan = Plan(config_of(data, participation=0.4), "", None, (None,) * 5, None, 0)
    counts = np.bincount([k for number in range(1, 501) for k in plan.participants(number)])
    assert counts.sum() == 1000 and np.abs(counts - 200).max() < 45  # four standard deviations


def test_those_who_stay_away_cost_nothing_and_begin_with_the_others_later(data):
    plan = plan_of(data, participation=0.4, merge_every=1)
    tapped = Tapped(local(plan))
    rounds = played(plan, tapped)
    for number, result in enumerate(rounds, 1):
        assert list(result.parts) == plan.participants(number) and len(result.parts) == 1
        (robot,) = result.parts
        weights = rounds[number - 2].weights if number > 1 else None
        state = by_hand(plan, robot, weights, epochs=1, epoch=number - 1)
        assert same(result.weights, state.weights)
    assert [line[0] for line in tapped.lines] == [k for each in rounds for k in each.parts]


@given(
    kinds=st.lists(st.sampled_from("abcd"), min_size=4, max_size=30),
    robots=st.integers(1, 4),
    alpha=st.sampled_from([None, 0.1, 10.0]),
)
def test_every_episode_goes_to_one_robot(kinds, robots, alpha):
    how = Split(by="tool", alpha=alpha)
    if alpha is None and robots > len(set(kinds)):
        with pytest.raises(ConfigError, match="Give fewer robots, or an alpha"):
            deal(kinds, robots, how, 0)
        return
    parts = deal(kinds, robots, how, 0)
    assert len(parts) == robots and sorted(place for part in parts for place in part) == list(
        range(len(kinds))
    )
    if alpha is None:
        owners = {(kinds[place], robot) for robot, part in enumerate(parts) for place in part}
        assert len(owners) == len(set(kinds))


def test_a_robot_needs_no_file_but_its_own_and_the_driver_none_of_theirs(data, tmp_path):
    expected = plan_of(data)
    everyones = {robot: by_hand(expected, robot, epochs=2) for robot in range(3)}
    samples = Samples(data)
    for robot in (None, 0, 1, 2):
        kept = expected.held if robot is None else samples.subset(
            expected.homes[robot].assignment.episodes
        )  # fmt: skip
        files = {episode.path.name for episode in kept.episodes}
        folder = tmp_path / str(robot)
        shutil.copytree(data, folder)
        for path in (folder / "episodes").iterdir():
            if path.name not in files:
                path.unlink()
        if robot is None:
            plan = plan_of(folder)
            assert plan.blueprint == expected.blueprint and plan.held_bytes == expected.held_bytes
            with pytest.raises(TrainingError, match=r"no robot is left.*robot 0: DatasetError"):
                played(plan)
        else:
            told = expected.homes[robot].assignment
            told = told.model_copy(update={"data": (str(folder),)})
            own = Samples(told.data).subset(told.episodes)
            begin = TrainingState.initial(told.blueprint.create(told.initialization).state_dict())
            trajectories = Trajectories(own, told.blueprint)
            state = train(told.blueprint, trajectories, told.training, begin, epochs=2)
            assert same(state.weights, everyones[robot].weights)


def overwrite(episode, number):
    with h5py.File(episode.path, "r+") as file:
        group = next(iter(file.values()))
        group["observations/joint_position"][:] = number


def test_a_robot_whose_loss_is_nan_is_left_out_by_name_and_comes_back(data, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    plan = plan_of(folder, merge_every=1)
    spoilt = Samples(folder).episodes[plan.homes[1].assignment.episodes[0]]
    before = spoilt.path.read_bytes()
    overwrite(spoilt, np.nan)

    def mend(robot, count, answer):
        if robot == 1 and count == 1:  # after its second round without it
            spoilt.path.write_bytes(before)
        return answer

    rounds = played(plan, Tapped(local(plan), mend))
    assert [each.parts[1].left_out is None for each in rounds] == [False, False, True, True]
    assert "DivergedError: After 0 epochs" in rounds[0].parts[1].left_out
    others = [rounds[0].parts[k].reply for k in (0, 2)]
    total = sum(reply.steps for reply in others)
    for name, tensor in rounds[0].weights.items():
        mean = sum(reply.steps / total * reply.weights[name] for reply in others)
        torch.testing.assert_close(tensor, mean)
    after = by_hand(plan, 1, rounds[1].weights, epochs=1, epoch=2)
    assert same(rounds[2].parts[1].reply.weights, after.weights)


def test_fine_tuning_is_training_on_the_drivers_own_episodes(data, tmp_path):
    plan = plan_of(data, fine_tuning={"epochs": 3, "learning_rate": 0.01}, merge_every=None)
    record = run(plan, local(plan), tmp_path / "out")
    tuned = fine_tune(plan, record, tmp_path / "out")
    config = TrainingConfig(epochs=3, batch_size=8, learning_rate=0.01, seed=5)
    held = Trajectories(split(Samples(data), 0.2, seed=5)[1], plan.blueprint)
    expected = train(plan.blueprint, held, config, TrainingState.initial(record.weights))
    assert same(tuned.weights, expected.weights) and not same(tuned.weights, record.weights)
    stored = load_checkpoint(tmp_path / "out" / "fine_tuned.safetensors")
    assert same(stored.weights, tuned.weights)


def test_references_are_fleets_too(data):
    config = config_of(data, split={"by": "tool"}, method="git_rebasin", options={"rounds": 3})
    joint, single, specific = (Plan.of(reference(config, name)) for name in REFERENCES)
    pooled = [place for home in single.homes for place in home.assignment.episodes]
    assert list(joint.homes[0].assignment.episodes) == sorted(pooled)
    assert [len(plan.homes) for plan in (joint, single, specific)] == [1, 3, 1]
    assert all(plan.config.rounds == 1 for plan in (joint, single, specific))
    held = [[each.record.seed for each in p.held.episodes] for p in (joint, single, specific)]
    assert held[0] == held[1] == held[2]
    of_fleet = Plan.of(config)
    assert [home.assignment for home in of_fleet.homes] == [
        home.assignment for home in single.homes
    ]
    with pytest.raises(UnknownNameError, match="did you mean 'joint'"):
        reference(config, "jont")
