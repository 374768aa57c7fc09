"""Fine-tuning of a trained policy: of all weights, of adapters, or of the head alone.

A training state has the tuned weights besides the policy's own:

    state = train(blueprint, data, config, begun(blueprint, tuning, weights, seed), tuning=tuning)
    weights = merged(state.policy_weights)
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from fleet_merging.modules import keeps_statistics
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.training.config import TuningConfig
from fleet_tools.baselines.training.state import Tensors, TrainingState

_HEAD = "head."
_NETWORK, _A, _B = "network.", "factors.A:", "factors.B:"


class TunedNetwork(nn.Module):
    """A policy's network with a trained part; its state dict has the factors, too.

    Statistics of BatchNorms stay as they are.

    Args:
        network: The network; its weights outside of this part become constant.
        tuning: The part.
    """

    def __init__(self, network: nn.Module, tuning: TuningConfig) -> None:
        super().__init__()
        self.network, self.factors = network, nn.ParameterDict()
        adapted = tuning.tuned == "adapters"
        for name, each in network.named_parameters():
            each.requires_grad_(not adapted and name.startswith(_HEAD))
            if adapted and each.dim() > 1:
                rows, columns = each.flatten(1).shape
                self.factors[_key("A:", name)] = each.new_zeros(tuning.rank, columns)
                self.factors[_key("B:", name)] = each.new_zeros(rows, tuning.rank)

    def forward(self, *arguments: Any) -> Any:
        """Computes the network's outputs with products added to its matrices."""
        if not self.factors:
            return self.network(*arguments)
        own = dict(self.network.named_parameters())
        changed = {
            name: each + (self.factors[key] @ self.factors[_key("A:", name)]).reshape(each.shape)
            for name, each in own.items()
            if (key := _key("B:", name)) in self.factors
        }
        return torch.func.functional_call(self.network, changed, arguments)

    def train(self, mode: bool = True) -> "TunedNetwork":
        """Sets the mode of all parts but BatchNorms, see `nn.Module.train`."""
        super().train(mode)
        for each in filter(keeps_statistics, self.modules()):
            each.eval()
        return self


def tuned_network(network: nn.Module, tuning: TuningConfig | None) -> nn.Module:
    """Returns a network with a trained part, or the network itself."""
    if tuning is None or tuning.tuned == "all":
        return network
    return TunedNetwork(network, tuning)


def begun(
    blueprint: Blueprint, tuning: TuningConfig | None, weights: Tensors, epoch: int, seed: int
) -> TrainingState:
    """Returns the state before the first step, with unchanged actions of the policy.

    B is zero at first, and A is drawn as PyTorch draws a linear layer's weights.

    Args:
        blueprint: Blueprint of the policy.
        tuning: The trained weights.
        weights: Its weights.
        epoch: Number of complete epochs.
        seed: Seed of the adapters.
    """
    network = tuned_network(blueprint.create(), tuning)
    if not isinstance(network, TunedNetwork):
        return TrainingState(weights, epoch=epoch)
    network.network.load_state_dict(weights)
    generator = torch.Generator().manual_seed(seed)
    for name, each in network.factors.items():
        if name.startswith("A:"):
            nn.init.kaiming_uniform_(each, a=5**0.5, generator=generator)
    state = {name: each.detach().clone() for name, each in network.state_dict().items()}
    return TrainingState(state, epoch=epoch)


def merged(weights: Tensors) -> Mapping[str, torch.Tensor]:
    """Returns the weights of a policy, with the products added to its matrices."""
    if not any(name.startswith(_NETWORK) for name in weights):
        return weights
    own = {k.removeprefix(_NETWORK): each for k, each in weights.items() if k.startswith(_NETWORK)}
    for name, each in own.items():
        if (B := weights.get(_B + _key("", name))) is not None:
            own[name] = each + (B @ weights[_A + _key("", name)]).reshape(each.shape)
    return own


def _key(part: str, name: str) -> str:
    return part + name.replace(".", "/")  # names in a ParameterDict have no dots
