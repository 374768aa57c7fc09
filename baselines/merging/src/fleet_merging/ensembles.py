"""Several networks as one module: the mean of their outputs, or weighted by a gate.

In memory and computation an ensemble is as large as all its members together.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from fleet_merging.errors import MergeError
from fleet_merging.modules import copied, load_tensors
from fleet_merging.moments.gate import RowGate
from fleet_merging.moments.rows import reading
from fleet_merging.symmetry.table import State


class Ensemble(nn.Module):
    """Networks of one architecture, whose outputs are averaged.

    Args:
        module: The architecture; it is copied.
        members: State dicts of the networks.
        gate: A mixture of experts with the gate of Xu et al. (1995), "An Alternative Model for
            Mixtures of Experts": outputs are weighted by powers of the Gaussian densities at what
            the gate's affine map reads. None for the mean.
        output: Selects the outputs, one tensor (..., k), from what a member returns.
    """

    means: torch.Tensor
    factors: torch.Tensor

    def __init__(
        self,
        module: nn.Module,
        members: Sequence[State],
        gate: RowGate | None = None,
        output: Callable[[Any], Any] = lambda outputs: outputs,
    ) -> None:
        super().__init__()
        networks = []
        for state in members:
            networks.append(copied(module))
            load_tensors(networks[-1], state)
        self.members = nn.ModuleList(networks)
        self._gate, self._output = gate, output
        if gate is not None:
            self.register_buffer("means", gate.means.clone())
            self.register_buffer("factors", gate.factors.clone())

    def forward(self, *arguments: Any, **named: Any) -> torch.Tensor:
        """Returns the weighted outputs of the members, (..., k).

        Raises:
            MergeError: What a member returns is no tensor, or the gate does not fit it.
        """
        outputs, read = [], []
        gate = self._gate
        for member in self.members:
            with reading(member, () if gate is None else (gate.map,)) as rows:
                answer = self._output(member(*arguments, **named))
            if not isinstance(answer, torch.Tensor):
                raise MergeError(
                    f"A member of the ensemble returned a {type(answer).__name__}. Give the merge "
                    "problem an `output` that selects one tensor."
                )
            outputs.append(answer)
            read += [] if gate is None else [torch.cat(rows[gate.map], 1)]
        stacked = torch.stack(outputs, -1)
        if gate is None:
            return stacked.mean(-1)
        moved = RowGate(gate.map, self.means, self.factors, gate.sharpness)
        weights = moved.weights(read, outputs[0].shape[:-1].numel())
        return (stacked * weights.reshape(*outputs[0].shape[:-1], 1, -1)).sum(-1)

    def description(self) -> dict[str, Any]:
        """Returns what its state dict does not say, as JSON data."""
        gate = self._gate
        own = {} if gate is None else {"map": gate.map, "sharpness": gate.sharpness}
        return {"members": len(self.members), **own}
