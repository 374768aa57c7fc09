"""Datasets for PyTorch.

    from torch.utils.data import DataLoader
    from fleet_tools.dataset.learning import FleetDataset, collate

    dataset = FleetDataset("data/hammer", observations=["point_cloud"], sequence_length=16)
    for batch in DataLoader(dataset, batch_size=64, shuffle=True, collate_fn=collate):
        batch["observation"]["point_cloud"], batch["action"], batch["imitate"]

Importing this module raises a `MissingLibraryError` with the installation command if PyTorch is
absent.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fleet_tools.dataset.samples import Samples
from fleet_tools.utils.libraries import require

require("torch", "give samples as tensors", "`fleet_tools.dataset.samples` gives arrays.")

import torch  # noqa: E402
from torch.utils.data import Dataset, default_collate  # noqa: E402


class FleetDataset(Samples, Dataset[dict[str, Any]]):
    """`Samples` as tensors, one by one or in batches."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Returns one sample, as `gather` does, without the batch axis."""
        return Gathered(self.gather([index]))[0]

    def __getitems__(self, indices: Sequence[int]) -> "Gathered":
        """Returns a batch of samples; a `DataLoader` calls it."""
        return Gathered(self.gather(indices))


class Gathered:
    """Samples that already form one batch.

    Args:
        arrays: Arrays, as `Samples.gather` returns them.

    Attributes:
        batch: The same as tensors, which share the memory of the arrays.
    """

    def __init__(self, arrays: dict[str, Any]) -> None:
        self.batch = _mapped(torch.from_numpy, arrays)

    def __len__(self) -> int:
        """Returns the number of samples."""
        return len(self.batch["action"])

    def __getitem__(self, row: int) -> dict[str, Any]:
        """Returns one sample."""
        return _mapped(lambda tensor: tensor[row], self.batch)


def collate(samples: Gathered | list[dict[str, Any]]) -> dict[str, Any]:
    """Returns samples as a batch, without a copy if they already form one."""
    return samples.batch if isinstance(samples, Gathered) else default_collate(samples)


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _mapped(function, branch) for name, branch in tree.items()}
    return function(tree)
