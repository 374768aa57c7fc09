"""Learned policies: encoders of point clouds and images, a body, and a head that gives actions.

    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
    from fleet_tools.baselines.policies.config import policy_config
    from fleet_tools.baselines.policies.layout import Scaling
    from fleet_tools.baselines.policies.policy import load_checkpoint_policy

    blueprint = Blueprint.of(
        policy_config("pointnet_elman"),
        header.observation,
        header.action,
        Scaling.of(normalization.observation),
        header.env_spec.kwargs,
    )
    network = blueprint.create(seed=0)                      # a torch module
    actions, hidden = network(observations)                 # (B, T, ...) -> (B, T, chunk * 6)
    check(network.symmetry(), network, (observations,), output=lambda outputs: outputs[0])
    save_checkpoint(path, Checkpoint(blueprint, network.state_dict()))
    policy = load_checkpoint_policy(path, env)              # reset() and act(observation)

`config`, `part_configs`, `layout`, `reading` and `blueprint` hold values and are imported without
PyTorch. The PyTorch modules are in `bodies`, `encoders` and `resnet`, `heads`, and `network`, which
joins them. `policy` executes the chunks of a head.

Raises:
    MissingLibraryError: PyTorch or safetensors is absent; the message holds the command that
        installs it.
"""

from importlib.util import find_spec

from fleet_tools.errors import MissingLibraryError
from fleet_tools.utils.libraries import missing_library

for _library in ("torch", "safetensors"):
    if find_spec(_library) is None:
        raise MissingLibraryError(missing_library(_library))
