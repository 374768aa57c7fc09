"""Data holders, which keep their data and answer queries about a model's loss, or about moments."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from safetensors.torch import save

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.modules import tensors_of
from fleet_tools.baselines.merging.moments.affine_maps import AffineMap
from fleet_tools.baselines.merging.moments.measurement import (
    Batches,
    Moments,
    combine,
    measure_moments,
    with_noise,
)
from fleet_tools.baselines.merging.moments.mixture import StateMixture, measure_mixture
from fleet_tools.baselines.merging.queries import wire
from fleet_tools.baselines.merging.queries.query import (
    DataAnswer,
    DataQuery,
    LossAnswer,
    LossQuery,
    MixtureQuery,
    MomentQuery,
    checked_loss,
    checked_mixture,
    checked_moments,
    in_single_precision,
)
from fleet_tools.baselines.merging.symmetry.table import State

Policy = Callable[..., Any]
"""A model with the weights of a query; it is called as the module is."""

Loss = Callable[[Policy, int | None], torch.Tensor]
"""loss(policy, seed): a differentiable scalar, on a draw from the data, or on all data if None."""


AT_ONCE = 16
"""Number of data holders that are asked at the same time: their answers are in memory."""


class DataHolder(Protocol):
    """Holder of data that answers queries about models, in this process or another one."""

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
        noise: Standard deviation of the Gaussian noise that is added to each entry of moments,
            relative to the root mean square of the matrix's entries. The same query gets the same
            noise, and noise is no guarantee: other queries get other noise.
        noise_seed: Seed of the noise, the holder's secret. A holder with noise refuses queries
            about mixtures, to which none could be added.
        resized: Returns an architecture with the sizes of a model of other sizes, about whose
            inputs moments are asked; None if there is none.
        episodes: Returns the states that models read in each episode, (steps, n), for queries about
            mixtures; of models with encoders, these are the features that a given one computes.
            None refuses these.
    """

    model: torch.nn.Module
    loss: Loss
    batches: Batches | None = None
    noise: float = 0.0
    noise_seed: int = 0
    resized: Callable[[State], torch.nn.Module | None] = lambda state: None
    episodes: Callable[[State | None], Sequence[torch.Tensor]] | None = None

    def answer(self, query: DataQuery) -> DataAnswer:
        """Returns the answer to a query, whose tensors it does not change; see `DataHolder`.

        Raises:
            MessageError: This is no query, or is one about another architecture, or for moments
                that this holder does not give.
            MergeError: The moments do not exist, see `measure_moments`.
        """
        if isinstance(query, LossQuery):
            return self._loss(query)
        if isinstance(query, MomentQuery):
            return self._moments(query)
        if isinstance(query, MixtureQuery):
            return self._mixture(query)
        raise MessageError(
            f"A data holder is asked with a {type(query).__name__}; it answers a LossQuery, a "
            "MomentQuery or a MixtureQuery."
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
                "This data holder gives no moments: it has no `batches`. Give them, or use a "
                "method that asks for losses and gradients only."
            )
        query.require_possible()
        model = self.model
        if _layouts(query.model) != _layouts(tensors_of(model)):
            model = self.resized(query.model) or model
        for state in filter(None, (query.model, query.teacher, *query.beside)):
            _require_known(state, model)
        moments = measure_moments(
            model,
            self.batches(),
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
                f"This data holder gives no mixture of its states: {lacks}. Use a method that asks "
                "for moments, such as compress."
            )
        query.require_possible()
        if query.model is not None:
            _require_known(query.model, self.model)
        states = self.episodes(query.model)
        return measure_mixture(states, query.components, query.seed, query.rank)


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
            "The query is about another architecture than the data holder's: "
            f"{', '.join(differing)} {complaint}. Give each data holder its model's architecture, "
            "and as `resized` those of other sizes."
        )


def _layouts(state: State) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}


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


class DataHolderError(MessageError):
    """A data holder gives no valid answer.

    Attributes:
        holder: The data holder.
    """

    def __init__(self, holder: DataHolder, reason: str) -> None:
        super().__init__(reason)
        self.holder = holder


class DataHolderGroup(Protocol):
    """Data holders that answer at the same time, such as the robots of a fleet."""

    def answer_all(
        self, queries: Sequence[tuple[DataHolder, DataQuery]]
    ) -> tuple[list[DataAnswer], Traffic]:
        """Returns the answers in the order of the queries, and what was sent.

        Raises:
            DataHolderError: A data holder does not answer.
        """
        ...


class TrafficMeter:
    """Asks data holders, checks each answer, and adds up the traffic.

    Data holders that have a `group`, a `DataHolderGroup`, are asked through it, all at once.

    Attributes:
        traffic: Traffic so far.
    """

    def __init__(self) -> None:
        self.traffic = Traffic()

    def ask(
        self, data_holder: DataHolder, model: State, seed: int | None, gradient: bool = True
    ) -> LossAnswer:
        """Asks a data holder for the loss of a model on its data, and for the gradient.

        Args:
            data_holder: The data holder.
            model: The model.
            seed: Seed of the data holder's draw; None requests all its data.
            gradient: Whether to request the gradient.

        Raises:
            DataHolderError: It answers something else.
        """
        return next(self.ask_losses([data_holder], [LossQuery(model, seed, gradient)]))

    def ask_losses(
        self, data_holders: Sequence[DataHolder], queries: Sequence[LossQuery]
    ) -> Iterator[LossAnswer]:
        """Asks data holders, `AT_ONCE` at the same time, one query each; see `ask`."""
        return self._answers(data_holders, queries, checked_loss)

    def ask_moments(
        self, data_holder: DataHolder, query: MomentQuery, maps: Sequence[AffineMap]
    ) -> dict[str, Moments]:
        """Asks a data holder for moments.

        Args:
            data_holder: The data holder.
            query: The query.
            maps: The affine maps of the model.

        Raises:
            DataHolderError: It answers something else.
        """
        return next(self.ask_all_moments([data_holder], [query], maps))

    def ask_all_moments(
        self,
        data_holders: Sequence[DataHolder],
        queries: Sequence[MomentQuery],
        maps: Sequence[AffineMap],
    ) -> Iterator[dict[str, Moments]]:
        """Asks data holders, `AT_ONCE` at the same time, one query each; see `ask_moments`."""
        return self._answers(data_holders, queries, partial(checked_moments, maps=maps))

    def ask_pooled(
        self,
        data_holders: Sequence[DataHolder],
        query: MomentQuery,
        maps: Sequence[AffineMap],
        shares: Sequence[float],
    ) -> dict[str, Moments]:
        """Asks all data holders the same, and returns the moments of their pooled data, by map.

        Args:
            data_holders: The data holders.
            query: The query.
            maps: The affine maps of the model.
            shares: Weight of each data holder's moments; 1 in all.

        Raises:
            DataHolderError: One answers something else.
        """
        pooled: dict[str, Moments] = {}
        queries = [query] * len(data_holders)
        answers = self.ask_all_moments(data_holders, queries, maps)
        for answer, share in zip(answers, shares, strict=True):
            for name, each in answer.items():  # the sums alone are in memory
                sums, weights = ([pooled[name]], [1.0]) if name in pooled else ([], [])
                pooled[name] = combine([*sums, each], [*weights, share])
        return pooled

    def ask_mixtures(
        self, data_holders: Sequence[DataHolder], queries: Sequence[MixtureQuery]
    ) -> Iterator[StateMixture]:
        """Asks data holders, `AT_ONCE` at the same time, for mixtures of their states.

        Raises:
            DataHolderError: One answers something else.
        """
        return self._answers(data_holders, queries, checked_mixture)

    def _answers(
        self,
        data_holders: Sequence[DataHolder],
        queries: Sequence[Any],
        check: Callable[[object, Any], Any],
    ) -> Iterator[Any]:
        pairs = list(zip(data_holders, queries, strict=True))
        groups = {getattr(holder, "group", None) for holder in data_holders}
        group = groups.pop() if len(groups) == 1 else None
        for begin in range(0, len(pairs), AT_ONCE):
            asked = pairs[begin : begin + AT_ONCE]
            if group is not None:
                answers, traffic = group.answer_all(asked)
                self.traffic += traffic
                for each, answer in zip(asked, answers, strict=True):
                    yield _checked(check, answer, *each)
                continue
            for holder, query in asked:
                answer = _checked(check, holder.answer(query), holder, query)
                self.traffic += Traffic(1, wire.size(query), wire.size(answer))
                yield answer


def _checked(
    check: Callable[[object, Any], Any], answer: object, holder: DataHolder, query: DataQuery
) -> Any:
    try:
        return check(answer, query)
    except MessageError as error:
        raise DataHolderError(holder, str(error)) from None
