"""Data sets for PyTorch.

    from torch.utils.data import DataLoader
    from fleet_tools.dataset.learning import FleetDataset, collate

    dataset = FleetDataset("data/hammer", observations=["point_cloud"], sequence_length=16)
    for batch in DataLoader(dataset, batch_size=64, shuffle=True, collate_fn=collate):
        batch["observation"]["point_cloud"], batch["action"], batch["mask"]

Raises:
    MissingLibraryError: PyTorch is absent; the message holds the line that installs it.
"""

from collections.abc import Sequence
from typing import Any

from fleet_tools.dataset.samples import Samples
from fleet_tools.utils.libraries import require

torch = require("torch", "give samples as tensors", "`fleet_tools.dataset.samples` gives arrays.")

from torch.utils.data import Dataset, default_collate  # noqa: E402


class FleetDataset(Samples, Dataset):
    """`Samples` as tensors, one by one or a batch at once."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Returns one sample, as `gather` does, without the axis of the batch."""
        return Gathered(self.gather([index]))[0]

    def __getitems__(self, indices: Sequence[int]) -> "Gathered":
        """Returns samples at once; a `DataLoader` calls it."""
        return Gathered(self.gather(indices))


class Gathered(Sequence):
    """Samples that already lie in one batch.

    Args:
        arrays: As `Samples.gather` returns them.

    Attributes:
        batch: The same as tensors, which share the arrays' memory.
    """

    def __init__(self, arrays: dict[str, Any]) -> None:
        self.batch = _mapped(torch.from_numpy, arrays)

    def __len__(self) -> int:
        return len(self.batch["action"])

    def __getitem__(self, row: int) -> dict[str, Any]:
        return _mapped(lambda tensor: tensor[row], self.batch)


def collate(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns samples as a batch, without a copy if they were gathered at once."""
    return samples.batch if isinstance(samples, Gathered) else default_collate(samples)


def _mapped(function, tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _mapped(function, branch) for name, branch in tree.items()}
    return function(tree)
