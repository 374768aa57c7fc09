"""Minari's own reader gives the episodes, and their environment."""

import pytest
from exported import each_mode, load_minari, same

from fleet_tools.dataset import Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.export import export_dataset


@each_mode
def test_minari_gives_the_episodes_bit_for_bit(mode, collected, tmp_path, monkeypatch):
    dataset = collected(mode)
    export_dataset(dataset, "minari", tmp_path, failures=True)
    loaded = load_minari(monkeypatch, tmp_path, mode)
    assert (loaded.total_episodes, loaded.total_steps) == (3, sum(len(e) for e in dataset))
    loaded.set_seed(0)
    sampled = sorted(loaded.sample_episodes(3), key=lambda episode: episode.id)
    for read in (list(loaded.iterate_episodes()), sampled):
        assert [episode.id for episode in read] == [0, 1, 2]
        for theirs, attempt in zip(read, (0, 1, 4), strict=True):
            ours = dataset.episode(attempt)
            assert theirs.observations.keys() == ours.observations.keys()
            for name, rows in ours.observations.items():
                assert same(theirs.observations[name], rows), name
            assert same(theirs.actions, ours.actions)
            assert same(theirs.rewards, ours.rewards)
            assert same(theirs.terminations, ours.terminated)
            assert same(theirs.truncations, ours.truncated)
            assert same(theirs.infos["success"], ours.success)
            assert same(theirs.infos["state_digest"], ours.digests)


@each_mode
def test_minari_recovers_the_environment_and_its_spaces(mode, collected, tmp_path, monkeypatch):
    export_dataset(collected(mode), "minari", tmp_path)
    loaded = load_minari(monkeypatch, tmp_path, mode)
    env = loaded.recover_environment()
    assert env.observation_space == loaded.observation_space
    assert env.action_space == loaded.action_space
    ours = collected(mode).episode(0)
    observation, _ = env.reset(seed=0)
    assert all(same(observation[name], ours.observations[name][0]) for name in observation)
    env.close()


def test_minari_keeps_attempts_outcomes_and_scenes(collected, tmp_path, monkeypatch):
    dataset = collected("state")
    export_dataset(dataset, "minari", tmp_path, failures=True)
    told = list(load_minari(monkeypatch, tmp_path, "state").storage.get_episode_metadata(range(3)))
    assert [(episode["id"], episode["seed"]) for episode in told] == [(0, 0), (1, 1), (4, 4)]
    assert [episode["outcome"] for episode in told] == ["success", "policy_error", "success"]
    assert told[2]["scene"] == dataset.episode(4).scene.to_json()


def test_minari_root_holds_several_data_sets(collected, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    first = collected("state")
    other = first.header.model_copy(update={"policy": "m y/policy"})
    with DatasetWriter(tmp_path / "set", other) as writer:
        writer.add(first.manifest()[0], episode_file.to_bytes(first.episode(0), 0))
    for dataset in (first, Dataset(tmp_path / "set")):
        export_dataset(dataset, "minari", tmp_path / "root")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    assert set(minari.list_local_datasets()) == {
        "fleet_tools/hammer/expert-state-v0",
        "fleet_tools/hammer/m_y_policy-state-v0",
    }
