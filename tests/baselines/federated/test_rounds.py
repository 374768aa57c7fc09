"""A fleet's training is training; a robot that is lost is left out, and returns."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import h5py
import numpy as np
import torch
from support.damage import relist
from support.fleet_cases import (
    RecordingTransport,
    config_of,
    local,
    plan_of,
    run_rounds,
    same,
)

from fleet_merging.average import average
from fleet_merging.symmetry.check import check
from fleet_tools.baselines.federated.messages import Answer
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.rounds import run_round
from fleet_tools.baselines.federated.run import fine_tune, run
from fleet_tools.baselines.federated.transport import LostClient
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of, split
from fleet_tools.baselines.training.loop import train, validate
from fleet_tools.baselines.training.state import Tensors, TrainingError, TrainingState
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.stored_episode import StoredEpisode
from fleet_tools.errors import FleetToolsError


def trained(
    plan: FleetPlan, robot: int, weights: Tensors | None = None, epochs: int = 4, epoch: int = 0
) -> TrainingState:
    """Trains a robot's policy like any other policy."""
    assignment = plan.assignments[robot]
    own = Samples(assignment.data).subset(assignment.episodes)
    weights = weights or assignment.blueprint.create(assignment.initialization).state_dict()
    return train(
        assignment.blueprint,
        Trajectories(own, assignment.blueprint),
        assignment.training,
        TrainingState(weights, epoch=epoch),
        epochs=epochs,
    )


def test_a_robot_with_all_data_that_merges_once_is_plain_training(data: Path) -> None:
    plan = plan_of(data, robots=1, merge_every=None)
    (result,) = run_rounds(plan)
    learned, held_out = split(Samples(data), 0.2, seed=5)
    blueprint = blueprint_of(plan.config.policy, held_out)
    assignment = plan.assignments[0]
    config = TrainingConfig(epochs=4, batch_size=8, seed=assignment.training.seed)
    begin = TrainingState.initial(blueprint.create(assignment.initialization).state_dict())
    state = train(blueprint, Trajectories(learned, blueprint), config, begin)
    update = result.robots[0]
    assert same(result.weights, state.weights) and update.loss == state.loss
    assert update.steps == sum(each.record.steps for each in learned.episodes)
    trajectories = Trajectories(held_out, blueprint)
    assert result.loss == validate(blueprint, trajectories, config, state.weights)


def test_with_more_rounds_only_moments_begin_anew(data: Path) -> None:
    plan = plan_of(data, robots=1)
    first, second = run_rounds(plan)
    state = trained(plan, 0, epochs=2)
    assert same(first.weights, state.weights)
    state = trained(plan, 0, state.weights, epochs=2, epoch=2)
    assert same(second.weights, state.weights)


@pytest.mark.parametrize("initialization", ["own", "common"])
def test_the_naive_average_is_the_mean_weighted_by_steps(data: Path, initialization: str) -> None:
    plan = plan_of(data, initialization=initialization)
    states = [trained(plan, robot, epochs=2) for robot in range(3)]
    seeds = {assignment.initialization for assignment in plan.assignments}
    assert len(seeds) == (1 if initialization == "common" else 3)
    for result in run_rounds(plan):
        for robot, state in enumerate(states):
            assert same(result.robot_weights[robot], state.weights)
        steps = np.array([state.steps for state in states])
        for name, tensor in result.weights.items():
            stacked = np.stack([state.weights[name].double().numpy() for state in states])
            mean = np.tensordot(steps / steps.sum(), stacked, 1)
            np.testing.assert_allclose(tensor.numpy(), mean, rtol=1e-5, atol=1e-6)
        states = [trained(plan, robot, result.weights, epochs=2, epoch=2) for robot in range(3)]


def test_every_kind_of_method_respects_the_symmetry_and_repeats_its_bits(data: Path) -> None:
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
        ("fisher", {"samples": 2, "align": "weights"}),
        ("fed_sgd", {"steps": 2}),
    ):
        one, other = (
            run_rounds(plan_of(data, robots=2, merge_every=None, method=method, options=options))[0]
            for _ in range(2)
        )
        assert same(one.weights, other.weights)
        asks = method in ("fleet_merge", "fisher", "fed_sgd")
        assert (one.robots[0].messages > 1) == asks


def test_task_vectors_begin_where_each_round_began(data: Path) -> None:
    """The base is the common initialization, then the last merge."""
    options = {"scale": 2.0}
    plan = plan_of(data, method="task_arithmetic", options=options, initialization="common")
    base = plan.blueprint.create(plan.assignments[0].initialization).state_dict()
    for result in run_rounds(plan):
        steps = [each.steps or 0 for each in result.robots.values()]
        mean = average(list(result.robot_weights.values()), steps)
        for name, tensor in result.weights.items():
            torch.testing.assert_close(tensor, 2 * mean[name] - base[name], rtol=1e-4, atol=1e-5)
        base = result.weights


def test_a_later_method_merges_all_rounds_but_the_first(data: Path) -> None:
    aligned, mixed, averaged = (
        plan_of(data, robots=2, method=method, later_method=later)
        for method, later in (
            ("git_rebasin", None),
            ("git_rebasin", "naive_average"),
            ("naive_average", None),
        )
    )
    first, second = run_rounds(mixed)
    assert same(first.weights, run_rounds(aligned, count=1)[0].weights)
    assert same(second.weights, run_round(averaged, local(averaged), 2, first.weights).weights)
    assert first.moved_fraction and second.moved_fraction == 0
    for changes, words in (
        ({"later_method": "git_rebasn"}, "Did you mean 'git_rebasin'"),
        ({"later_method": "git_rebasin", "streaming": {}}, "one `method` for all rounds"),
    ):
        with pytest.raises(FleetToolsError, match=words):
            config_of(data, **changes)


def test_robots_that_do_not_take_part_exchange_nothing_and_begin_with_the_merge(data: Path) -> None:
    plan = plan_of(data, participation=0.4, merge_every=1)
    transport = RecordingTransport(local(plan))
    rounds = run_rounds(plan, transport)
    for number, result in enumerate(rounds, 1):
        assert list(result.robots) == plan.participants(number) and len(result.robots) == 1
        (robot,) = result.robots
        weights = rounds[number - 2].weights if number > 1 else None
        state = trained(plan, robot, weights, epochs=1, epoch=number - 1)
        assert same(result.weights, state.weights)
    assert [each[0] for each in transport.exchanges] == [k for each in rounds for k in each.robots]


def test_a_robot_needs_no_file_but_its_own_and_the_driver_none_of_theirs(
    data: Path, tmp_path: Path
) -> None:
    expected = plan_of(data)
    states = {robot: trained(expected, robot, epochs=2) for robot in range(3)}
    samples = Samples(data)
    for robot in (None, 0, 1, 2):
        if robot is None:
            kept = expected.held_out
        else:
            kept = samples.subset(expected.assignments[robot].episodes)
        files = {episode.path.name for episode in kept.episodes}
        folder = tmp_path / str(robot)
        shutil.copytree(data, folder)
        for path in (folder / "episodes").iterdir():
            if path.name not in files:
                path.unlink()
        if robot is None:
            plan = plan_of(folder)
            assert plan.blueprint == expected.blueprint
            assert plan.held_out_bytes == expected.held_out_bytes
            with pytest.raises(
                TrainingError, match=r"every robot was excluded.*robot 0: DatasetError"
            ):
                run_rounds(plan)
        else:
            assignment = expected.assignments[robot]
            assignment = assignment.model_copy(update={"data": (str(folder),)})
            blueprint, own = assignment.blueprint, Samples(assignment.data)
            trajectories = Trajectories(own.subset(assignment.episodes), blueprint)
            begin = TrainingState(blueprint.create(assignment.initialization).state_dict())
            state = train(blueprint, trajectories, assignment.training, begin, epochs=2)
            assert same(state.weights, states[robot].weights)


def overwrite(episode: StoredEpisode, number: float) -> None:
    """Replaces an observation in the file of an episode."""
    with h5py.File(episode.path, "r+") as file:
        group = next(iter(file.values()))
        group["observations/joint_position"][:] = number


def test_a_robot_whose_data_hold_nan_is_left_out_by_name_and_returns(
    data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    plan = plan_of(folder, merge_every=1)
    damaged = Samples(folder).episodes[plan.assignments[1].episodes[0]]
    intact = damaged.path.read_bytes()
    overwrite(damaged, np.nan)
    relist(folder)

    def repair(robot: int, before: int, answer: Answer | LostClient) -> Answer | LostClient:
        if robot == 1 and before == 1:  # after the second round without it
            damaged.path.write_bytes(intact)
            relist(folder)
        return answer

    rounds = run_rounds(plan, RecordingTransport(local(plan), repair))
    assert [each.robots[1].left_out is None for each in rounds] == [False, False, True, True]
    reason = rounds[0].robots[1].left_out
    assert reason is not None and reason.startswith("DatasetError: ")
    assert "joint_position' holds NaN" in reason
    steps = {robot: rounds[0].robots[robot].steps or 0 for robot in (0, 2)}
    own = rounds[0].robot_weights
    for name, tensor in rounds[0].weights.items():
        parts = [count / sum(steps.values()) * own[k][name] for k, count in steps.items()]
        torch.testing.assert_close(tensor, torch.stack(parts).sum(0))
    after = trained(plan, 1, rounds[1].weights, epochs=1, epoch=2)
    assert same(rounds[2].robot_weights[1], after.weights)


@pytest.mark.parametrize(("ema_decay", "start"), [(0.0, "merged"), (0.9, "untrained")])
def test_fine_tuning_is_training_on_the_held_out_episodes(
    data: Path, tmp_path: Path, ema_decay: float, start: str
) -> None:
    training = {"epochs": 4, "batch_size": 8, "seed": 5, "ema_decay": ema_decay}
    tuning = {"epochs": 3, "learning_rate": 0.01}
    chosen = {**tuning, "start": start}
    plan = plan_of(data, training=training, fine_tuning=chosen, merge_every=None)
    with FleetWriter(tmp_path / "out", plan) as writer:
        progress = run(writer, local(plan))
        tuned = fine_tune(writer, progress)
    config = TrainingConfig(**{**training, **tuning})
    held_out = Trajectories(split(Samples(data), 0.2, seed=5)[1], plan.blueprint)
    begin = progress.weights
    if start == "untrained":
        begin = plan.blueprint.create(plan.assignments[0].initialization).state_dict()
    expected = train(plan.blueprint, held_out, config, TrainingState.initial(begin))
    assert tuned is not None
    assert same(tuned.weights, expected.policy_weights)
    assert not same(tuned.weights, progress.weights)
    stored = load_checkpoint(tmp_path / "out" / "fine_tuned.safetensors")
    assert same(stored.weights, tuned.weights)


def test_without_fine_tuning_none_is_stored(data: Path, tmp_path: Path) -> None:
    plan = plan_of(data, robots=1, merge_every=None, training={"epochs": 1, "batch_size": 8})
    assert config_of(data).fine_tuning is None
    with FleetWriter(tmp_path / "out", plan) as writer:
        assert fine_tune(writer, run(writer, local(plan))) is None
    assert not (tmp_path / "out" / "fine_tuned.safetensors").exists()
