"""Policies that learn: an encoder for what cameras see, a body, and a head that gives actions.

    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
    from fleet_tools.baselines.policies.config import policy_config
    from fleet_tools.baselines.policies.policy import load_policy
    from fleet_tools.baselines.policies.scaling import Scaling

    blueprint = Blueprint.of(
        policy_config("pointnet_elman"), header.observation, header.action, Scaling.of(statistics)
    )
    network = blueprint.create(seed=0)                      # a torch module
    actions, hidden = network(observations)                 # (B, T, ...) by name -> (B, T, 6)
    check(network.symmetry(), network, (observations,), output=lambda outputs: outputs[0])
    save_checkpoint(path, Checkpoint(blueprint, network.state_dict()))
    policy = load_policy(path, env)                         # reset() and act(observation)

`config`, `layout`, `scaling` and `blueprint` are values, imported without PyTorch; modules of
PyTorch are `mlp`, `recurrent` and `transformer` (bodies), `pointnet` and `resnet` (encoders), and
`network`, which joins them.

Raises:
    MissingLibraryError: PyTorch or safetensors is absent; the message has the line to install it.
"""

from importlib.util import find_spec

from fleet_tools.errors import MissingLibraryError
from fleet_tools.utils.libraries import install_line

for _library in ("torch", "safetensors"):
    if find_spec(_library) is None:
        raise MissingLibraryError(
            f"Policies need {_library}. Install it with: {install_line('learning')}"
        )
