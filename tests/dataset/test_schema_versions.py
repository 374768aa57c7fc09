"""A stored dataset of schema version 1 is read, upgraded and resumed.

`tests/data/dataset_v1` was collected by version 0.1 of the package, with
`--tool hammer --episodes 1 --seed 5 --policy disturbed_expert --workers 0`.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from fleet_tools import collect
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.samples import Samples
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.rollouts.episode import Episode
from fleet_tools.rollouts.imitation import Labels
from fleet_tools.storage.provenance import installed_packages, read_task_file

V1 = Path(__file__).parents[1] / "data" / "dataset_v1"
OPTIONS = ["--tool", "hammer", "--seed", "5", "--workers", "0", "--quiet"]


def stored_header(folder: Path = V1) -> dict[str, Any]:
    """Returns the header as it is on the disk."""
    return json.loads((folder / "dataset.json").read_text())


def stored_lines(folder: Path = V1) -> list[dict[str, Any]]:
    """Returns the lines of the manifest as they are on the disk."""
    return [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]


def expected_arrays(episode: Episode) -> dict[str, np.ndarray]:
    """Returns the arrays of an episode by their paths in its file."""
    observations = {f"observations/{name}": rows for name, rows in episode.observations.items()}
    return {
        "actions": episode.actions,
        "rewards": episode.rewards,
        "terminations": episode.terminated,
        "truncations": episode.truncated,
        "infos/success": episode.success,
        "infos/state_digest": episode.digests,
        **observations,
    }


@pytest.fixture(name="copy")
def _copy(tmp_path: Path) -> Path:
    """A copy, as version 0.1 would have written it with the packages and the task of today."""
    copy = tmp_path / "copy"
    shutil.copytree(V1, copy)
    present = {
        "packages": installed_packages(),
        "task": read_task_file("hammer").model_dump(mode="json"),
    }
    (copy / "dataset.json").write_text(json.dumps(stored_header() | present, indent=2))
    return copy


def test_header_is_upgraded():
    expected = stored_header()
    assert expected["schema_version"] == 1
    expected |= {"schema_version": 3, "policy": "noisy_expert"}
    expected["env_spec"] = expected.pop("environment")
    assert Dataset(V1).header.model_dump(mode="json") == expected


def test_manifest_lists_the_same_attempts():
    records = Dataset(V1).manifest()
    expected = [line | {"file_digest": None} for line in stored_lines()]
    assert [record.model_dump(mode="json") for record in records] == expected
    assert [Labels.of(each.info, each.steps).noise_steps for each in records] == [(2, 4)]


def test_values_are_those_of_the_files():
    dataset = Dataset(V1)
    assert len(dataset) == 1
    for record, episode in zip(dataset.stored(), dataset, strict=True):
        with h5py.File(dataset.path(record)) as file:
            group = file.require_group(f"episode_{record.attempt}")
            expected = expected_arrays(episode)
            for name, array in expected.items():
                stored = group[name]
                assert isinstance(stored, h5py.Dataset)
                assert stored.dtype == array.dtype
                np.testing.assert_array_equal(stored[()], array)
            assert list(group.require_group("observations")) == sorted(episode.observations)
            assert json.loads(str(group.attrs["scene"])) == json.loads(episode.scene.to_json())
            assert group.attrs["seed"] == episode.scene.seed == record.seed
            assert group.attrs["outcome"] == episode.outcome == record.outcome
        assert episode.final_digest == record.state_digest


def test_samples_are_its_steps():
    (episode,) = Dataset(V1)
    samples = Samples(V1)
    batch = samples.gather(range(len(samples)))
    np.testing.assert_array_equal(batch["action"], episode.actions)
    assert samples.env_kwargs == {"obs_mode": "state"}


def test_its_environment_is_made_again():
    header = Dataset(V1).header
    env = unwrap(header.make_env())
    former = yaml.safe_load(header.task.text)
    assert "reach" in former  # a key that task files had then
    assert [p.type for p in env.task.success] == [p["type"] for p in former["success"]]
    assert env.features.keys() == header.observation.keys()


@pytest.mark.parametrize("policy", ["noisy_expert", "disturbed_expert"])
def test_collection_is_resumed(copy: Path, policy: str):
    before = (copy / "manifest.jsonl").read_bytes()
    options = [*OPTIONS, "--policy", policy, "--output", str(copy)]
    assert collect.main([*options, "--episodes", "2"]) == 0
    assert (copy / "manifest.jsonl").read_bytes().startswith(before)
    assert len(Dataset(copy)) == 2
    assert [line["attempt"] for line in stored_lines(copy)][:2] == [0, 1]
    first = stored_lines()[0]["file"]
    assert (copy / first).read_bytes() == (V1 / first).read_bytes()


def test_another_collection_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]):
    options = [*OPTIONS, "--episodes", "2", "--output", str(copy)]
    assert collect.main([*options, "--policy", "expert"]) == 2
    assert "the policy is 'noisy_expert', not 'expert'" in capsys.readouterr().err
    assert stored_lines(copy) == stored_lines()
