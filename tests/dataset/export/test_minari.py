"""Minari's own reader gives the episodes and their environment."""

from pathlib import Path

import pytest
from support.exported import Collected, each_mode, load_minari, same

from fleet_tools.dataset import Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.export.exporting import export_dataset


@each_mode
def test_minari_reads_the_episodes_bit_for_bit(
    mode: str, collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = collected(mode)
    export_dataset(dataset, "minari", tmp_path, failures=True)
    loaded = load_minari(monkeypatch, tmp_path, mode)
    assert (loaded.total_episodes, loaded.total_steps) == (3, sum(len(e) for e in dataset))
    loaded.set_seed(0)
    sampled = sorted(loaded.sample_episodes(3), key=lambda episode: episode.id)
    for read in (list(loaded.iterate_episodes()), sampled):
        assert [episode.id for episode in read] == [0, 1, 2]
        for exported, attempt in zip(read, (0, 1, 4), strict=True):
            stored = dataset.episode(attempt)
            assert exported.observations.keys() == stored.observations.keys()
            for name, rows in stored.observations.items():
                assert same(exported.observations[name], rows), name
            assert same(exported.actions, stored.actions)
            assert same(exported.rewards, stored.rewards)
            assert same(exported.terminations, stored.terminated)
            assert same(exported.truncations, stored.truncated)
            assert same(exported.infos["success"], stored.success)
            assert same(exported.infos["state_digest"], stored.digests)


@each_mode
def test_minari_recovers_the_environment_and_its_spaces(
    mode: str, collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_dataset(collected(mode), "minari", tmp_path)
    loaded = load_minari(monkeypatch, tmp_path, mode)
    env = loaded.recover_environment()
    assert env.observation_space == loaded.observation_space
    assert env.action_space == loaded.action_space
    stored = collected(mode).episode(0)
    observation, _ = env.reset(seed=0)
    assert all(same(observation[name], stored.observations[name][0]) for name in observation)
    env.close()


def test_minari_keeps_attempts_outcomes_and_scenes(
    collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = collected("state")
    export_dataset(dataset, "minari", tmp_path, failures=True)
    loaded = load_minari(monkeypatch, tmp_path, "state")
    metadata = list(loaded.storage.get_episode_metadata(range(3)))
    assert [(episode["id"], episode["seed"]) for episode in metadata] == [(0, 0), (1, 1), (4, 4)]
    assert [each["outcome"] for each in metadata] == ["success", "policy_error", "success"]
    assert metadata[2]["scene"] == dataset.episode(4).scene.to_json()


def test_minari_root_holds_several_datasets(
    collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
