"""Training programs of other libraries imitate what `train` imitates, from the same episodes."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from support.exported import MODES, record_of
from support.processes import python_of, run_foreign
from support.rendering import needs_gl

from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.dataset import Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.export.exporting import export_dataset
from fleet_tools.dataset.header import describe
from fleet_tools.dataset.samples import Samples
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.experts.demonstrators import DAggerPolicy, NoisyExpert
from fleet_tools.policies.lerobot_features import FeatureNames
from fleet_tools.policies.policy import Policy
from fleet_tools.rollouts.rollout import rollout

torch = pytest.importorskip("torch")

from support.policy_cases import BODIES  # noqa: E402

from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of  # noqa: E402


class Straying:
    """A learner that drifts sideways."""

    def reset(self) -> None:
        """Has nothing to forget."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns always the same action."""
        return np.array([0.1, 0.1, 0.0, 0.0, 0.0, 0.0], np.float32)


POLICIES: dict[str, Callable[[gymnasium.Env], Policy]] = {
    "noisy": NoisyExpert,
    "dagger": lambda env: DAggerPolicy(env, Straying()),
}


def write_episodes(folder: Path, mode: str, kind: str) -> Dataset:
    """Writes a dataset of two episodes of the expert with noise, or in turns with a learner."""
    spec = EnvSpec.of("hammer", **MODES[mode])
    env = spec.make()
    header = describe(env, spec, policy=kind, seed=0, keep_failures=True)
    policy = POLICIES[kind](env)
    with DatasetWriter(folder, header) as writer:
        for attempt in (0, 1):
            episode = rollout(env, policy, seed=attempt)
            record = record_of(episode, attempt, info=dict(episode.info))
            writer.add(record, episode_file.to_bytes(episode, attempt, header.images))
    env.close()
    return Dataset(folder)


def imitated_by_train(
    samples: Samples, chunk: int, observed: Callable[[dict[str, np.ndarray]], np.ndarray]
) -> Counter[tuple[bytes, int, bytes]]:
    """Returns the pairs that `train` imitates: observation, steps ahead, action."""
    config = PolicyConfig(body=BODIES["mlp"], chunk=chunk)
    trajectories = Trajectories(samples, blueprint_of(config, samples))
    (items,) = trajectories.order(10**6, np.random.default_rng(0))
    batch = trajectories.batch(items)
    arrays = {name: each[:, 0].numpy() for name, each in batch.observations.items()}
    return pairs(observed(arrays), batch.actions[:, 0].numpy(), batch.imitated[:, 0].numpy())


def pairs(
    observations: np.ndarray, actions: np.ndarray, counts: np.ndarray
) -> Counter[tuple[bytes, int, bytes]]:
    """Returns what is imitated: observation, steps ahead, action.

    Args:
        observations: (n, k).
        actions: (n, T, 6).
        counts: (n, T) bool, whether an action is imitated.
    """
    rows, ahead = counts.nonzero()
    return Counter(
        (observations[row].tobytes(), int(k), actions[row, k].tobytes())
        for row, k in zip(rows, ahead, strict=True)
    )


def learned(library: str, learner: str, export: Path) -> Counter[tuple[bytes, int, bytes]]:
    """Returns the pairs that a program of another library imitates."""
    folder = export.parent / f"by_{learner}_of_{export.name}"
    folder.mkdir()
    found = folder / "pairs.npz"
    script = "foreign_learner.py"
    run_foreign(library, script, learner, export, folder / "run", found, folder=folder)
    with np.load(found) as content:
        return pairs(content["observations"], content["actions"], content["counts"])


@pytest.mark.parametrize("kind", POLICIES)
def test_behaviour_cloning_of_robomimic_imitates_what_train_does(kind, tmp_path):
    python_of("robomimic")
    dataset = write_episodes(tmp_path / "set", "state", kind)
    export = export_dataset(dataset, "robomimic", tmp_path / "out.hdf5", failures=True)
    assert export.imitation
    samples = Samples(tmp_path / "set", failures=True)
    names = sorted(samples.observation)
    expected = imitated_by_train(
        samples, 1, lambda rows: np.hstack([rows[n].reshape(len(rows[n]), -1) for n in names])
    )
    assert learned("robomimic", "robomimic", tmp_path / "out.hdf5") == expected
    if kind == "noisy":  # left whole, it is what nobody should imitate
        export_dataset(dataset, "robomimic", tmp_path / "whole.hdf5", failures=True, whole=True)
        more = learned("robomimic", "robomimic", tmp_path / "whole.hdf5")
        assert expected < more and sum(more.values()) == len(samples)


@needs_gl
@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize(("learner", "chunk"), [("act", 5), ("diffusion", 8)])
def test_lerobot_imitates_nothing_that_train_does_not(learner, chunk, kind, tmp_path):
    python_of("lerobot")
    dataset = write_episodes(tmp_path / "set", "rgbd", kind)
    export_dataset(dataset, "lerobot", tmp_path / "out", failures=True)
    features = FeatureNames.of(dataset.header.observation)
    samples = Samples(tmp_path / "set", observations=features.state, failures=True)

    def state(rows: dict[str, np.ndarray]) -> np.ndarray:
        return FeatureNames.of(samples.observation).features(rows)["observation.state"]

    allowed = imitated_by_train(samples, chunk, state)
    found = learned("lerobot", learner, tmp_path / "out")
    assert found <= allowed
    # Of the next action, it is the same; further ahead, LeRobot's episodes end at cuts.
    at_once = [
        Counter({pair: n for pair, n in each.items() if not pair[1]}) for each in (found, allowed)
    ]
    assert at_once[0] == at_once[1]
    assert sum(found.values()) > sum(at_once[0].values())
    if learner == "act":  # left whole, and with the mask, it imitates all that `train` does
        export_dataset(dataset, "lerobot", tmp_path / "whole", failures=True, whole=True)
        assert learned("lerobot", "masked_act", tmp_path / "whole") == allowed
