"""Recording what units answer, for matching by activations."""

from collections.abc import Mapping
from typing import Any

import torch

from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.symmetry.table import State


@torch.no_grad()
def record(
    model: torch.nn.Module,
    state: State,
    inputs: Any,
    modules: Mapping[str, str],
    dims: Mapping[str, int] | None = None,
) -> dict[str, torch.Tensor]:
    """What some modules of a model return for some inputs; the model itself stays as it is.

    Args:
        model: Any module, put into evaluation mode meanwhile.
        state: Its weights.
        inputs: Its argument, or a tuple of its arguments.
        modules: By free name, the module whose outputs have those units; a recurrent module's
            outputs are its sequence, of its last layer.
        dims: The dimension of the units in an output, where it is not the last: 1 for a
            convolution's channels.

    Returns:
        By free name, shape (samples, n): every other dimension is one of samples.

    Raises:
        FleetError: There is no such module.
    """
    known = dict(model.named_modules())
    outputs: dict[str, torch.Tensor] = {}
    handles = []

    def keep(name):
        def hook(module, arguments, output):
            value = output[0] if isinstance(output, tuple) else output
            units = value.detach().movedim((dims or {}).get(name, -1), -1)
            outputs[name] = units.reshape(-1, units.shape[-1]).clone()

        return hook

    for name, module in modules.items():
        if module not in known:
            raise FleetError(
                f"The model has no module {module!r} to record {name!r} from. It has "
                f"{', '.join(filter(None, known)) or 'none'}."
            )
    was_training = model.training
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    try:
        model.eval()
        handles += [
            known[module].register_forward_hook(keep(name)) for name, module in modules.items()
        ]
        copies = {name: tensor.clone() for name, tensor in state.items()}
        torch.func.functional_call(model, copies, arguments)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return outputs
