"""Data holders, which keep their data and answer queries about losses, gradients or moments."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from safetensors.torch import save

from fleet_merging.errors import MessageError
from fleet_merging.modules import tensors_of
from fleet_merging.moments.measurement import Batches, Moments, measure_moments, with_noise
from fleet_merging.moments.mixture import StateMixture, measure_mixture
from fleet_merging.queries import wire
from fleet_merging.queries.query import (
    DataAnswer,
    DataQuery,
    LossAnswer,
    LossQuery,
    MixtureQuery,
    MomentQuery,
    in_single_precision,
)
from fleet_merging.queries.validity import Limits
from fleet_merging.symmetry.table import State

Policy = Callable[..., Any]
"""A model with the weights of a query; it is called like the module."""

Loss = Callable[[Policy, int | None], torch.Tensor]
"""loss(policy, seed): a differentiable scalar, on a draw from the data, or on all data if None."""


class DataHolder(Protocol):
    """Holder of data that answers queries about models, in this process or another one.

    If it adds noise to its answers, it has an attribute `limits`, see `validity.Limits`.
    """

    def answer(self, query: DataQuery) -> DataAnswer:
        """Returns the answer: a `LossAnswer`, moments by the name of the map, or a mixture."""
        ...


@dataclass(frozen=True)
class LocalDataHolder:
    """A data holder in this process. Its loss closes over its data; nothing is serialized.

        LocalDataHolder(model, lambda policy, seed: mse_loss(policy(observations), actions))

    Attributes:
        model: The architecture, in the mode (`train` or `eval`) in which the loss is defined. Its
            own weights are neither used nor changed.
        loss: Loss of a policy on the holder's data.
        batches: The data, for queries about moments; None refuses these.
        unlabelled: The data for moments without labels, such as with fewer draws of noise; None for
            `batches`.
        noise: Standard deviation of the Gaussian noise added to each entry of moments, relative to
            the root mean square of the matrix's entries. The same query gets the same noise. It is
            no privacy guarantee: other queries get other noise.
        noise_seed: Seed of the noise, the holder's secret. A holder with noise refuses queries
            about mixtures, which cannot get noise.
        resized: Returns the architecture for a model of other sizes, for queries for moments; None
            if there is none.
        episodes: Returns the models' states in each episode, (steps, n), for queries about
            mixtures; with encoders, the features of a given model. None refuses these.
    """

    model: torch.nn.Module
    loss: Loss
    batches: Batches | None = None
    unlabelled: Batches | None = None
    noise: float = 0.0
    noise_seed: int = 0
    resized: Callable[[State], torch.nn.Module | None] = lambda state: None
    episodes: Callable[[State | None], Sequence[torch.Tensor]] | None = None

    @property
    def limits(self) -> Limits:
        """Limits of its answers, see `DataHolder`."""
        return Limits(noise=self.noise)

    def answer(self, query: DataQuery) -> DataAnswer:
        """Returns the answer to a query, without changes of its tensors; see `DataHolder`.

        Raises:
            MessageError: This is no query, has another architecture, or asks for moments that this
                holder does not give.
            MergeError: The moments do not exist, see `measure_moments`.
        """
        if isinstance(query, LossQuery):
            return self._loss(query)
        if isinstance(query, MomentQuery):
            return self._moments(query)
        if isinstance(query, MixtureQuery):
            return self._mixture(query)
        raise MessageError(
            f"A data holder got a {type(query).__name__}; expected a LossQuery, a MomentQuery or a "
            "MixtureQuery."
        )

    def _loss(self, query: LossQuery) -> LossAnswer:
        # Tied weights have several names in a state dict, and one here.
        names = [name for name, _ in self.model.named_parameters()]
        known = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        _require_known(query.model, self.model)
        state = {
            name: query.model[name].detach().to(tensor.device).contiguous()
            for name, tensor in known.items()
            if name in query.model
        }
        for name in set(state).difference(names):  # a module may write to its buffers
            state[name] = state[name].clone()
        with torch.set_grad_enabled(query.gradient):
            leaves = {name: state[name].requires_grad_(query.gradient) for name in names}
            policy = partial(torch.func.functional_call, self.model, state)
            loss = self.loss(lambda *args, **kwargs: policy(args, kwargs), query.seed)
            if not query.gradient:
                return LossAnswer(float(loss), {})
            gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        used = {
            name: gradient.contiguous()
            for name, gradient in zip(leaves, gradients, strict=True)
            if gradient is not None
        }
        return LossAnswer(float(loss.detach()), used)

    def _moments(self, query: MomentQuery) -> dict[str, Moments]:
        if self.batches is None:
            raise MessageError(
                "This data holder cannot measure moments: it has no `batches`. Give them, or use a "
                "method that needs only losses and gradients."
            )
        query.require_possible()
        model = self.model
        if _layouts(query.model) != _layouts(tensors_of(model)):
            model = self.resized(query.model) or model
        for state in filter(None, (query.model, query.teacher, *query.beside)):
            _require_known(state, model)
        batches = self.batches if query.target == "labels" else self.unlabelled or self.batches
        moments = measure_moments(
            model,
            batches(),
            query.model,
            query.maps,
            query.target,
            query.teacher,
            query.beside,
            query.gate,
        )
        if self.noise > 0:
            content = {name: wire.packed(t) for name, t in wire.pack_moment_query(query).items()}
            digest = hashlib.blake2b(save(content), digest_size=6).digest()
            seed = (self.noise_seed, int.from_bytes(digest, "big"))
            moments = with_noise(moments, self.noise, seed)
        return {name: in_single_precision(each) for name, each in moments.items()}

    def _mixture(self, query: MixtureQuery) -> StateMixture:
        if self.episodes is None or self.noise > 0:
            lacks = "it adds noise to moments" if self.noise > 0 else "it has no `episodes`"
            raise MessageError(
                f"This data holder cannot fit a mixture of its states: {lacks}. Use a method that "
                "needs only moments, such as structured_compression."
            )
        query.require_possible()
        if query.model is not None:
            _require_known(query.model, self.model)
        states = self.episodes(query.model)
        return measure_mixture(
            states, query.components, query.seed, query.rank, consecutive=query.consecutive
        )


def _require_known(state: State, model: torch.nn.Module) -> None:
    own = tensors_of(model)
    differing = sorted(set(state) ^ set(own))
    complaint = "are parameters of only one of them"
    if not differing:
        found, expected = _layouts(state), _layouts(own)
        differing = [name for name in own if found[name] != expected[name]]
        complaint = "have other shapes or dtypes"
    if differing:
        raise MessageError(
            f"The query has another architecture than the data holder: {', '.join(differing)} "
            f"{complaint}. Give each data holder its model's architecture, and models of other "
            "sizes as `resized`."
        )


def _layouts(state: State) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
