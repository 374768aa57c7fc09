"""FleetDataset behind PyTorch's DataLoader: the samples, whichever process fetches them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.small_datasets import Drawn, write

torch = pytest.importorskip("torch")

from torch.utils.data import ConcatDataset, DataLoader, Subset, default_collate  # noqa: E402

from fleet_tools.dataset.learning import FleetDataset, collate  # noqa: E402
from fleet_tools.dataset.samples import Samples  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "set", Drawn([4, 0, 7], [True] * 3, 0)).folder


def equal(one: Any, other: Any) -> bool:
    """Whether two trees of tensors are the same."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize("length", [None, 3, "episode"])
def test_samples_are_tensors_of_the_arrays(folder, length):
    dataset = FleetDataset(folder, sequence_length=length)
    arrays = Samples(folder, sequence_length=length).gather(range(len(dataset)))
    assert len(dataset) == len(arrays["action"])
    for k in range(len(dataset)):
        sample = dataset[k]
        np.testing.assert_array_equal(sample["action"], arrays["action"][k])
        for name, tensor in sample["observation"].items():
            np.testing.assert_array_equal(tensor, arrays["observation"][name][k])
    with pytest.raises(IndexError):
        dataset[len(dataset)]  # so that a loop over it ends


@pytest.mark.parametrize(
    ("workers", "start"), [(0, None), (2, "fork"), pytest.param(2, "spawn", marks=pytest.mark.slow)]
)
def test_loader_gives_the_same_as_samples_one_by_one(folder, workers, start):
    dataset = FleetDataset(folder, sequence_length=3)
    dataset[0]  # with something mapped before workers begin
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(5)).tolist()
    loader = DataLoader(
        dataset,
        4,
        sampler=order,
        collate_fn=collate,
        num_workers=workers,
        multiprocessing_context=start,
    )
    batches = list(loader)
    for batch, begin in zip(batches, (0, 4, 8), strict=True):
        samples = [dataset[index] for index in order[begin : begin + 4]]
        assert equal(batch, default_collate(samples))


def test_default_collation_gives_the_same(folder):
    dataset = FleetDataset(folder, sequence_length=3)

    def batches(**options: Any) -> list[Any]:
        generator = torch.Generator().manual_seed(5)
        return list(DataLoader(dataset, 4, shuffle=True, generator=generator, **options))

    for batch, default in zip(batches(collate_fn=collate), batches(), strict=True):
        assert equal(batch, default)


def test_batch_is_gathered_once_and_not_copied(folder):
    dataset = FleetDataset(folder)
    gathered = dataset.__getitems__([1, 2])
    assert collate(gathered) is gathered.batch
    assert gathered[1]["action"].data_ptr() == gathered.batch["action"][1].data_ptr()


def test_subsets_and_unions_of_pytorch_work_with_collate(folder):
    dataset = FleetDataset(folder)
    for other, indices in (
        (Subset(dataset, [5, 1, 3]), [5, 1, 3]),
        (ConcatDataset([dataset, dataset]), [*range(11), *range(11)]),
    ):
        (batch,) = DataLoader(other, len(other), collate_fn=collate)
        assert equal(batch, dataset.__getitems__(indices).batch)


def test_subset_is_a_dataset_too(folder):
    robots = [FleetDataset(folder).subset(part) for part in ([0, 1], [2])]
    assert [(type(robot), len(robot)) for robot in robots] == [(FleetDataset, 4), (FleetDataset, 7)]
