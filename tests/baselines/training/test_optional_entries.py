"""Entries that a robot may lack: what stands for them, and how a policy learns to do without."""

from itertools import chain, combinations

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import torch
from gymnasium.wrappers import FilterObservation
from hypothesis import given
from hypothesis import strategies as st
from support.policy_cases import ACTION, BLUEPRINTS, observations, single_network, step
from support.training_cases import same

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.layout import LayoutError
from fleet_tools.baselines.policies.part_configs import MLPConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.training.augmentation import some_hidden
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.demonstrations import Batch
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.envs.array_spec import ArraySpec, describe_action, describe_observation

FULL = BLUEPRINTS["gru on all"]
OPTIONAL = ("joint_position", "point_cloud", "wrist_rgb")
CONFIG = FULL.config.model_copy(update={"optional": OPTIONAL})
SPARSE = FULL.model_copy(update={"config": CONFIG})
EACH_SET = [*chain.from_iterable(combinations(OPTIONAL, count) for count in range(4))]


def policy_of(blueprint: Blueprint) -> NetworkPolicy:
    """Returns a policy with the same weights for each blueprint."""
    return NetworkPolicy(Checkpoint(blueprint, FULL.create(1).state_dict()))


@pytest.mark.parametrize("lacks", EACH_SET, ids=" ".join)
def test_a_mean_no_points_and_black_stand_for_what_a_robot_lacks(lacks):
    full, sparse = policy_of(FULL), policy_of(SPARSE)
    stand_ins = {
        "joint_position": np.full(7, 0.3, np.float32),
        "point_cloud": np.zeros((20, 4), np.float32),
        "wrist_rgb": np.zeros((40, 33, 3), np.uint8),
    }
    trajectories = observations(FULL, 1, 3)
    for number in range(3):  # with the memory of the steps before
        seen = step(trajectories, 0, number)
        filled = seen | {name: stand_ins[name] for name in lacks}
        left = {name: each for name, each in seen.items() if name not in lacks}
        np.testing.assert_array_equal(sparse.act(left), full.act(filled))


def test_the_mean_is_read_as_zero():
    observed = {"joint_position": torch.tensor(SPARSE.absent("joint_position"))[None, None]}
    scaled = single_network(SPARSE).scaled_state(
        {**observed, "object_keypoints": torch.full((1, 1, 2, 3), 0.8)}
    )
    np.testing.assert_array_equal(scaled[0, 0, :7], np.zeros(7))
    np.testing.assert_allclose(scaled[0, 0, 7:], 1.0, rtol=1e-6)


def test_without_an_entry_that_is_not_optional_nothing_acts():
    seen = step(observations(FULL, 1, 1), 0, 0)
    del seen["object_keypoints"]
    with pytest.raises(LayoutError, match="'object_keypoints' is missing"):
        policy_of(SPARSE).act(seen)


def test_without_any_entry_that_shows_the_object_nothing_acts():
    config = CONFIG.model_copy(update={"optional": ("object_keypoints", *OPTIONAL, "table_rgb")})
    seen = step(observations(FULL, 1, 1), 0, 0)
    blind = {"joint_position": seen["joint_position"]}
    policy = policy_of(FULL.model_copy(update={"config": config}))
    with pytest.raises(LayoutError, match=r"none of .*, by which the policy sees the object"):
        policy.act(blind)
    assert policy.act(blind | {"table_rgb": seen["table_rgb"]}).shape == (6,)


def test_a_policy_acts_where_a_wrapper_hides_what_it_can_do_without(hammer):
    reads, body = ("end_effector_wrench", "object_keypoints"), MLPConfig(layers=0)
    layout, action = describe_observation(hammer), describe_action(hammer)
    config = PolicyConfig(body=body, reads=reads, optional=reads[:1])
    blueprint = Blueprint.of(config, layout, action)
    env = FilterObservation(hammer, ["object_keypoints"])
    policy = NetworkPolicy(Checkpoint(blueprint, blueprint.create().state_dict()), env=env)
    observation, _ = env.reset(seed=0)
    assert policy.act(observation).shape == (6,)


@given(
    seed=st.integers(0, 99),
    items=st.integers(1, 40),
    sights=st.sets(st.sampled_from([*FULL.observation]), min_size=1),
)
def test_entries_are_hidden_in_whole_items_and_no_item_is_left_blind(seed, items, sights):
    observed = observations(SPARSE, items, 2, seed)
    absent = {name: torch.from_numpy(SPARSE.absent(name)) for name in OPTIONAL}

    def hidden() -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return some_hidden(observed, absent, [*sights], generator)

    found, again = hidden(), hidden()
    seen = torch.zeros(items, dtype=torch.bool)
    for name, given_array in observed.items():
        kept = (found[name] == given_array).flatten(1).all(1)
        seen |= kept & (name in sights)
        if name in OPTIONAL:
            assert torch.equal(found[name], again[name]) and found[name].dtype == given_array.dtype
            assert (found[name] == absent[name]).flatten(1).all(1)[~kept].all()
        else:
            assert kept.all()
    assert seen.all()


def test_about_half_of_the_items_lack_an_entry_one_entry_apart_from_the_other():
    observed = {name: torch.ones(4000, 1, 2) for name in ("one", "other")}
    absent = {name: torch.zeros(1) for name in observed}
    found = some_hidden(observed, absent, ["third"], torch.Generator().manual_seed(0))
    lacks = [1 - found[name][:, 0, 0] for name in observed]
    for each in lacks:
        assert abs(each.mean() - 0.5) < 4 * (0.25 / 4000) ** 0.5
    assert abs((lacks[0] * lacks[1]).mean() - 0.25) < 4 * (0.19 / 4000) ** 0.5


class _Doubled:
    """Steps whose action follows from one entry, and as well from another."""

    device = torch.device("cpu")

    def __init__(self, steps: int = 256) -> None:
        self.numbers = torch.randn(steps, 1, 6, generator=torch.Generator().manual_seed(0))

    def order(self, size: int, generator: np.random.Generator | None) -> list[np.ndarray]:
        assert generator is not None
        return np.array_split(generator.permutation(len(self.numbers)), len(self.numbers) // size)

    def batch(self, items: np.ndarray) -> Batch:
        rows = self.numbers[items]
        observed = {"one": rows, "other": rows}
        return Batch(observed, 0.1 * rows[:, :, None], torch.ones(len(items), 1, 1).bool())


def learned(optional: tuple[str, ...], *epochs: int) -> tuple[Blueprint, TrainingState]:
    """Returns a linear policy on both entries that was trained in several calls."""
    spec = ArraySpec(kind="state", shape=(6,), dtype="float32", unit="1", frame=None)
    config = PolicyConfig(body=MLPConfig(layers=0), optional=optional)
    blueprint = Blueprint.of(config, {"one": spec, "other": spec}, ACTION)
    state = TrainingState.initial(blueprint.create().state_dict())
    training = TrainingConfig(epochs=sum(epochs), batch_size=32, learning_rate=0.01)
    for count in epochs:
        state = train(blueprint, _Doubled(), training, state, epochs=count)
    return blueprint, state


def test_training_teaches_to_do_without_and_goes_on_to_the_same_bits():
    errors = {}
    for optional in ((), ("one",)):
        blueprint, state = learned(optional, 80)
        network = blueprint.create()
        network.load_state_dict(state.weights)
        numbers = _Doubled().numbers
        with torch.no_grad():
            found, _ = network({"one": torch.zeros_like(numbers), "other": numbers})
        errors[optional] = (found - 0.1 * numbers).square().mean().sqrt().item()
    assert errors[("one",)] < 0.02 < 0.03 < errors[()]
    assert same(learned(("one",), 5)[1].weights, learned(("one",), 2, 3)[1].weights)
