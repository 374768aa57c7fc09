"""Activations, for activation matching: how they are recorded and permuted."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.symmetry.group import Permutation, PermutationGroup
from fleet_tools.baselines.merging.symmetry.table import State

_Hook = Callable[[torch.nn.Module, Any, Any], None]


@torch.no_grad()
def record(
    model: torch.nn.Module,
    state: State,
    inputs: Any,
    modules: Mapping[str, str],
    dims: Mapping[str, int] | None = None,
) -> dict[str, torch.Tensor]:
    """Records the outputs of modules of a model; the model itself is not changed.

    Args:
        model: Any module; it runs in evaluation mode.
        state: Weights of the model.
        inputs: The model's argument, or a tuple of its arguments.
        modules: By free name, the module whose outputs have those units; the output of a recurrent
            module is the sequence of its last layer.
        dims: By free name, the dimension of the units in the output, if it is not the last one: 1
            for the channels of a convolution.

    Returns:
        The activations by free name, shape (samples, n); all other dimensions count as samples.

    Raises:
        MergeError: The model has no such module.
    """
    known = dict(model.named_modules())
    for name, module in modules.items():
        if module not in known:
            raise MergeError(
                f"The model has no module {module!r} from which to record {name!r}. It has "
                f"{', '.join(filter(None, known)) or 'none'}."
            )
    outputs: dict[str, torch.Tensor] = {}

    def store_as(name: str) -> _Hook:
        def hook(module: torch.nn.Module, arguments: Any, output: Any) -> None:
            value = output[0] if isinstance(output, tuple) else output
            units = value.detach().movedim((dims or {}).get(name, -1), -1)
            outputs[name] = units.reshape(-1, units.shape[-1]).clone()

        return hook

    was_training = model.training
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    handles = []
    try:
        model.eval()
        handles += [
            known[module].register_forward_hook(store_as(name)) for name, module in modules.items()
        ]
        copies = {name: tensor.clone() for name, tensor in state.items()}
        # Tied weights have an entry under each of their names, which need not be one tensor.
        torch.func.functional_call(model, copies, arguments, tie_weights=False)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return outputs


def permute_activations(
    group: PermutationGroup, activations: Mapping[str, torch.Tensor], permutation: Permutation
) -> dict[str, torch.Tensor]:
    """Returns the activations that a model has after its units are reordered.

    Args:
        group: Permutations of the model.
        activations: By free name, shape (samples, n), or (samples, m, n) if it has an owner.
        permutation: A hard element.
    """
    permuted = {}
    for name, values in activations.items():
        index = torch.as_tensor(permutation[name], device=values.device)
        owner = group.owners.get(name)
        if owner is None:
            permuted[name] = values[:, index]
        else:
            groups = values[:, torch.as_tensor(permutation[owner], device=values.device)]
            permuted[name] = groups.gather(2, index.expand(len(groups), *index.shape))
    return permuted
