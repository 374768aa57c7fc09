"""Labels by a teacher: those that it would have acted by, at every step of stored episodes."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.policy_cases import BODIES
from support.training_cases import small_data, train_options

from fleet_tools.baselines import train
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.distillation import teacher_actions


@pytest.fixture(scope="module", name="samples")
def _samples(tmp_path_factory):
    return small_data(tmp_path_factory.mktemp("distillation") / "data")


def teacher_of(samples, body, chunk=1):
    config = PolicyConfig(body=BODIES[body], chunk=chunk)
    blueprint = blueprint_of(config, samples)
    return Checkpoint(blueprint, blueprint.create(7).state_dict())


@pytest.mark.parametrize("body", ["mlp", "elman", "transformer"])
def test_labels_are_what_the_teacher_does_step_by_step(samples, body):
    teacher = teacher_of(samples, body)
    labels = teacher_actions(teacher, samples)
    policy, expected = NetworkPolicy(teacher), []
    for episode in samples.episodes:
        policy.reset()
        names = teacher.blueprint.observation
        rows = {name: episode.rows(f"observations/{name}") for name in names}
        for t in range(episode.record.steps):
            seen = {name: rows[name][t] for name in names}
            expected.append(policy.act(seen))
    np.testing.assert_allclose(labels, np.stack(expected), rtol=1e-5, atol=1e-6)


def test_a_student_is_given_the_labels_and_nothing_of_the_recorded_actions(samples):
    teacher = teacher_of(samples, "elman", chunk=3)
    labels = teacher_actions(teacher, samples)
    taught = Trajectories(samples, teacher.blueprint, taught=labels)
    items = taught.order(1000, None)[0]
    batch = taught.batch(items)
    rows, within = taught.rows(items)
    first = batch.actions[:, :, 0].numpy()
    assert np.array_equal(first[within], labels[rows[within]])
    recorded = Trajectories(samples, teacher.blueprint).batch(items).actions
    assert not np.isin(recorded.numpy(), batch.actions.numpy()).any()


def test_the_program_imitates_the_teacher_and_says_whom(samples, tmp_path, capsys):
    data = samples.episodes[0].folder
    path = tmp_path / "teacher.safetensors"
    save_checkpoint(path, teacher_of(samples, "mlp"))
    losses = {}
    for name, more in {"taught": ["--teacher", str(path)], "recorded": []}.items():
        options = ["--epochs", "60", "--learning-rate", "0.01", "--json", "--quiet", *more]
        assert train.main(train_options(data, tmp_path / name, *options)) == 0
        losses[name] = json.loads(capsys.readouterr().out)["loss"]
    # A network can be imitated, random numbers cannot.
    assert losses["taught"] < 0.3 * losses["recorded"]
    config = json.loads((tmp_path / "taught" / "config.json").read_text())
    assert len(config["teacher"]) == 16
    resumed = train_options(data, tmp_path / "taught", "--epochs", "60", "--quiet")
    assert train.main(resumed) == 2  # another run: its labels are others
