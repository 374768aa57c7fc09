"""Data holders, which keep their data and answer queries about a model's loss, or about moments."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.modules import tensors_of
from fleet_tools.baselines.merging.moments.affine_maps import AffineMap
from fleet_tools.baselines.merging.moments.measurement import (
    Batches,
    Moments,
    measure_moments,
    with_noise,
)
from fleet_tools.baselines.merging.queries.moment_wire import (
    MomentQuery,
    decode_moment_query,
    decode_moments,
    encode_moment_query,
    encode_moments,
    is_moment_query,
)
from fleet_tools.baselines.merging.queries.wire import (
    Answer,
    Query,
    decode_answer,
    decode_query,
    encode_answer,
    encode_query,
)
from fleet_tools.baselines.merging.symmetry.table import State

Policy = Callable[..., Any]
"""A model with the weights of a query; it is called as the module is."""

Loss = Callable[[Policy, int | None], torch.Tensor]
"""loss(policy, seed): a differentiable scalar, on a draw from the data, or on all data if None."""


class DataHolder(Protocol):
    """Holder of data that answers queries about models, in this process or another one."""

    def answer(self, message: bytes) -> bytes:
        """Returns the answer to a query, both as messages of `wire`."""
        ...


@dataclass(frozen=True)
class LocalDataHolder:
    """A data holder in this process. Its loss closes over its data; only bytes go in and out.

        LocalDataHolder(model, lambda policy, seed: mse_loss(policy(observations), actions))

    Attributes:
        model: The architecture, in the mode (`train` or `eval`) in which the loss is defined. Its
            own weights are neither used nor changed.
        loss: Loss of a policy on the holder's data.
        batches: The data, for queries about moments; None refuses these.
        noise: Standard deviation of the Gaussian noise that is added to each entry of moments,
            relative to the root mean square of the matrix's entries. The same query gets the same
            noise, and noise is no guarantee: other queries get other noise.
        noise_seed: Seed of the noise, the holder's secret.
    """

    model: torch.nn.Module
    loss: Loss
    batches: Batches | None = None
    noise: float = 0.0
    noise_seed: int = 0

    def answer(self, message: bytes) -> bytes:
        """Returns the answer to a query; see `DataHolder`.

        Raises:
            MessageError: The message is no query, is about another architecture, or asks for
                moments that this holder does not give.
            MergeError: The moments do not exist, see `measure_moments`.
        """
        if is_moment_query(message):
            return self._answer_moments(message)
        query = decode_query(message)
        # Tied weights have several names in a state dict, and one here.
        names = [name for name, _ in self.model.named_parameters()]
        known = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        self._require_known(query.model)
        state = {
            name: query.model[name].to(tensor.device)
            for name, tensor in known.items()
            if name in query.model
        }
        with torch.set_grad_enabled(query.gradient):
            leaves = {name: state[name].requires_grad_(query.gradient) for name in names}
            policy = partial(torch.func.functional_call, self.model, state)
            loss = self.loss(lambda *args, **kwargs: policy(args, kwargs), query.seed)
            if not query.gradient:
                return encode_answer(Answer(float(loss), {}))
            gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        used = {
            name: gradient
            for name, gradient in zip(leaves, gradients, strict=True)
            if gradient is not None
        }
        return encode_answer(Answer(float(loss.detach()), used))

    def _answer_moments(self, message: bytes) -> bytes:
        query = decode_moment_query(message)
        if self.batches is None:
            raise MessageError(
                "This data holder gives no moments: it has no `batches`. Give them, or use a "
                "method that asks for losses and gradients only."
            )
        for state in filter(None, (query.model, query.teacher, *query.beside)):
            self._require_known(state)
        moments = measure_moments(
            self.model,
            self.batches(),
            query.model,
            query.maps,
            query.target,
            query.teacher,
            query.beside,
            query.gate,
        )
        if self.noise > 0:
            digest = hashlib.blake2b(message, digest_size=6).digest()
            seed = (self.noise_seed, int.from_bytes(digest, "big"))
            moments = with_noise(moments, self.noise, seed)
        return encode_moments(moments)

    def _require_known(self, model: State) -> None:
        own = tensors_of(self.model)
        differing = sorted(set(model) ^ set(own))
        complaint = "are parameters of only one of them"
        if not differing:
            differing = [name for name in own if _layout(model[name]) != _layout(own[name])]
            complaint = "have other shapes or dtypes"
        if differing:
            raise MessageError(
                "The query is about another architecture than the data holder's: "
                f"{', '.join(differing)} {complaint}. Give each data holder its model's "
                "architecture."
            )


def _layout(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


@dataclass(frozen=True)
class Traffic:
    """Traffic between merging and data holders.

    Attributes:
        calls: Number of queries.
        bytes_to_robots: Total size of the queries.
        bytes_from_robots: Total size of the answers.
    """

    calls: int = 0
    bytes_to_robots: int = 0
    bytes_from_robots: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        """Returns the sum of two traffics."""
        return Traffic(
            self.calls + other.calls,
            self.bytes_to_robots + other.bytes_to_robots,
            self.bytes_from_robots + other.bytes_from_robots,
        )


def ask(
    data_holder: DataHolder, model: State, seed: int | None, gradient: bool = True
) -> tuple[Answer, Traffic]:
    """Asks a data holder for the loss of a model on its data, and for the gradient.

    Args:
        data_holder: The data holder.
        model: The model.
        seed: Seed of the data holder's draw; None requests all its data.
        gradient: Whether to request the gradient.

    Returns:
        The answer, and the traffic of this query.

    Raises:
        MessageError: The data holder answers something else.
    """
    query = Query(model, seed, gradient)
    sent = encode_query(query)
    received = data_holder.answer(sent)
    return decode_answer(received, query), Traffic(1, len(sent), len(received))


def ask_moments(
    data_holder: DataHolder, query: MomentQuery, maps: Sequence[AffineMap]
) -> tuple[dict[str, Moments], Traffic]:
    """Asks a data holder for moments.

    Args:
        data_holder: The data holder.
        query: The query.
        maps: The affine maps of the model.

    Returns:
        The moments by map, and the traffic of this query.

    Raises:
        MessageError: The data holder answers something else.
    """
    sent = encode_moment_query(query)
    received = data_holder.answer(sent)
    return decode_moments(received, query, maps), Traffic(1, len(sent), len(received))


def require_answer(message: bytes, answer: bytes, maps: Sequence[AffineMap]) -> None:
    """Raises an error unless an answer is one to a message, whatever that asks for.

    Args:
        message: A query for a loss or for moments.
        answer: A data holder's answer.
        maps: The affine maps of the model.

    Raises:
        MessageError: It holds something else.
    """
    if is_moment_query(message):
        decode_moments(answer, decode_moment_query(message), maps)
    else:
        decode_answer(answer, decode_query(message))


class TrafficMeter:
    """Asks data holders, and adds up the traffic.

    Attributes:
        traffic: Traffic so far.
    """

    def __init__(self) -> None:
        self.traffic = Traffic()

    def ask(
        self, data_holder: DataHolder, model: State, seed: int | None, gradient: bool = True
    ) -> Answer:
        """Asks a data holder; see the function `ask`."""
        answer, traffic = ask(data_holder, model, seed, gradient)
        self.traffic += traffic
        return answer

    def ask_moments(
        self, data_holder: DataHolder, query: MomentQuery, maps: Sequence[AffineMap]
    ) -> dict[str, Moments]:
        """Asks a data holder; see the function `ask_moments`."""
        moments, traffic = ask_moments(data_holder, query, maps)
        self.traffic += traffic
        return moments
