"""Several networks as one module: the mean of their outputs, or a mean weighted by a gate.

An ensemble needs the memory and computation of all its members together.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fleet_merging.errors import MergeError
from fleet_merging.modules import copied, load_tensors
from fleet_merging.moments.gate import RowGate
from fleet_merging.moments.rows import reading
from fleet_merging.symmetry.table import State


class Ensemble(nn.Module):
    """Networks of one architecture, with averaged outputs.

    Args:
        module: The architecture; it is copied.
        members: State dicts of the networks.
        gate: The gate of a mixture of experts (Xu et al. 1995, "An Alternative Model for Mixtures
            of Experts"). It weights outputs by powers of Gaussian densities of the inputs of its
            affine map. None for the mean.
        output: Selects the outputs, one tensor (..., k), from a member's result.
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

        Raises a `MergeError` if a member's output is no tensor, or the gate does not fit it.
        """
        outputs, read = [], []
        gate = self._gate
        names = {} if gate is None else {gate.reader: (gate.map,)}
        for index, member in enumerate(self.members):
            with reading(member, names.get(index, ())) as rows:
                answer = self._output(member(*arguments, **named))
            if not isinstance(answer, torch.Tensor):
                raise MergeError(
                    f"A member of the ensemble returned a {type(answer).__name__}. Give the merge "
                    "problem an `output` that selects one tensor."
                )
            outputs.append(answer)
            read += [each for name in rows for each in rows[name]]
        stacked = torch.stack(outputs, -1)
        if gate is None:
            return stacked.mean(-1)
        moved = replace(gate, means=self.means, factors=self.factors)
        weights = moved.weights(torch.cat(read, 1), outputs[0].shape[:-1].numel())
        return (stacked * weights.reshape(*outputs[0].shape[:-1], 1, -1)).sum(-1)

    def description(self) -> dict[str, Any]:
        """Returns the properties that its state dict lacks, as JSON data."""
        gate = self._gate
        if gate is None:
            return {"members": len(self.members)}
        own = {"map": gate.map, "sharpness": gate.sharpness, "reader": gate.reader}
        return {"members": len(self.members), **own}
