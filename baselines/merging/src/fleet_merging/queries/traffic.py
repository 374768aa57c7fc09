"""Queries to data holders: each answer is checked, and all bytes are counted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fleet_merging.errors import MessageError
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.measurement import Moments, combine
from fleet_merging.moments.mixture import StateMixture
from fleet_merging.queries import wire
from fleet_merging.queries.data_holder import DataHolder
from fleet_merging.queries.query import (
    DataAnswer,
    DataQuery,
    LossAnswer,
    LossQuery,
    MixtureQuery,
    MomentQuery,
)
from fleet_merging.queries.validity import (
    CHECKS,
    MALFORMED,
    NO_LIMITS,
    NotFiniteError,
    Sizes,
    outlier,
)
from fleet_merging.symmetry.table import State

AT_ONCE = 16
"""Number of data holders that are asked at the same time: memory holds all their answers."""


@dataclass(frozen=True)
class Traffic:
    """Traffic between merging and data holders.

    Attributes:
        calls: Number of queries.
        downloaded_bytes: Total size of the queries.
        uploaded_bytes: Total size of the answers.
    """

    calls: int = 0
    downloaded_bytes: int = 0
    uploaded_bytes: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        """Returns the sum of two traffics."""
        return Traffic(
            self.calls + other.calls,
            self.downloaded_bytes + other.downloaded_bytes,
            self.uploaded_bytes + other.uploaded_bytes,
        )


class DataHolderError(MessageError):
    """A data holder gives no valid answer.

    `query` is the query if an answer is not finite, possibly due to the queried model.
    """

    def __init__(self, holder: DataHolder, reason: str, query: DataQuery | None = None) -> None:
        super().__init__(reason)
        self.holder, self.query = holder, query


class DataHolderGroup(Protocol):
    """Data holders that answer at the same time, such as the robots of a fleet."""

    def answer_all(
        self, queries: Sequence[tuple[DataHolder, DataQuery]]
    ) -> tuple[list[DataAnswer], Traffic]:
        """Returns the answers in the order of the queries, and the traffic.

        Raises:
            DataHolderError: A data holder does not answer.
        """
        ...


class TrafficMeter:
    """Asks data holders, checks each answer, and adds up the traffic.

    Data holders with a `group`, a `DataHolderGroup`, are asked through it, all at once, and their
    answers are compared, see `validity.outlier`.

    Attributes:
        traffic: Traffic so far.
    """

    def __init__(self) -> None:
        self.traffic = Traffic()

    def ask(
        self, data_holder: DataHolder, model: State, seed: int | None, gradient: bool = True
    ) -> LossAnswer:
        """Asks a data holder for the loss of a model on its data, and for the gradient.

        As the others, it raises a `DataHolderError` for an invalid answer.
        """
        return next(self.ask_losses([data_holder], [LossQuery(model, seed, gradient)]))

    def ask_losses(
        self, data_holders: Sequence[DataHolder], queries: Sequence[LossQuery]
    ) -> Iterator[LossAnswer]:
        """Asks data holders, `AT_ONCE` at the same time, one query each; see `ask`."""
        return self._answers(data_holders, queries)

    def ask_mean_loss(
        self, data_holders: Sequence[DataHolder], shares: Sequence[float], model: State
    ) -> float:
        """Returns the weighted mean loss of a model, each on all data of a holder."""
        queries = [LossQuery(model, None, gradient=False)] * len(data_holders)
        answers = self.ask_losses(data_holders, queries)
        return sum(share * answer.loss for share, answer in zip(shares, answers, strict=True))

    def ask_all_moments(
        self,
        data_holders: Sequence[DataHolder],
        queries: Sequence[MomentQuery],
        maps: Sequence[AffineMap],
    ) -> Iterator[dict[str, Moments]]:
        """Asks data holders, `AT_ONCE` at the same time, for moments of maps by one query each."""
        return self._answers(data_holders, queries, maps=maps)

    def ask_pooled(
        self,
        data_holders: Sequence[DataHolder],
        query: MomentQuery,
        maps: Sequence[AffineMap],
        shares: Sequence[float],
    ) -> dict[str, Moments]:
        """Sends one query to all data holders, and returns moments of their pooled data, by map.

        Shares are the weights of data holders' moments, 1 in all.
        """
        pooled: dict[str, Moments] = {}
        queries = [query] * len(data_holders)
        answers = self.ask_all_moments(data_holders, queries, maps)
        for answer, share in zip(answers, shares, strict=True):
            for name, each in answer.items():  # only the sums are in memory
                sums, weights = ([pooled[name]], [1.0]) if name in pooled else ([], [])
                pooled[name] = combine([*sums, each], [*weights, share])
        return pooled

    def ask_mixtures(
        self, data_holders: Sequence[DataHolder], queries: Sequence[MixtureQuery]
    ) -> Iterator[StateMixture]:
        """Asks data holders, `AT_ONCE` at the same time, for mixtures of their states."""
        return self._answers(data_holders, queries)

    def _answers(
        self, data_holders: Sequence[DataHolder], queries: Sequence[Any], **known: Any
    ) -> Iterator[Any]:
        pairs, sizes = list(zip(data_holders, queries, strict=True)), list[Sizes]()
        groups = {getattr(holder, "group", None) for holder in data_holders}
        group = groups.pop() if len(groups) == 1 else None
        for begin in range(0, len(pairs), AT_ONCE):
            asked = pairs[begin : begin + AT_ONCE]
            if group is not None:
                answers, traffic = group.answer_all(asked)
                self.traffic += traffic
                checked = [
                    _checked(answer, *each, **known)
                    for each, answer in zip(asked, answers, strict=True)
                ]
                sizes += [own for _, own in checked]
                if (found := outlier(sizes)) is not None:
                    raise DataHolderError(data_holders[found[0]], found[1])
                yield from (answer for answer, _ in checked)
                continue
            for holder, query in asked:
                answer, _ = _checked(holder.answer(query), holder, query, **known)
                self.traffic += Traffic(1, wire.size(query), wire.size(answer))
                yield answer


def _checked(answer: object, holder: DataHolder, query: Any, **known: Any) -> tuple[Any, Sizes]:
    limits = getattr(holder, "limits", NO_LIMITS)
    try:
        return CHECKS[type(query)](answer, query, limits, **known)
    except NotFiniteError as error:
        raise DataHolderError(holder, str(error), query) from None
    except MessageError as error:
        raise DataHolderError(holder, str(error)) from None
    except MALFORMED as error:
        raise DataHolderError(holder, f"Its answer is malformed: {error!r}.") from None
