"""A month of a life in which the server keeps the robots' answers of former months.

It keeps each robot's last network (of `frozen` robots, the common initial one) and its answers to
queries, in float32 as they came. The last method merges all of them anew each month. It sums over
robots in float64, and stores no sum. So to forget a robot is to delete its network and its answers:
the policy then has the bits of a merge without the robot. Robots train from their own weights or
not at all, and a server with `server_blind` has none of their data.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleet_merging.queries import wire
from fleet_merging.queries.data_holder import DataHolder
from fleet_merging.queries.query import DataAnswer, DataQuery, MixtureQuery, MomentQuery
from fleet_merging.queries.traffic import DataHolderError, Traffic
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import KEPT, FleetWriter
from fleet_tools.baselines.federated.round_messages import RobotGroup
from fleet_tools.baselines.federated.rounds import RoundResult, combine, messages_of, run_round
from fleet_tools.baselines.federated.transport import Transport, read_reply, store_reply
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.merged_checkpoints import merged_checkpoint
from fleet_tools.baselines.training.loop import validate
from fleet_tools.baselines.training.state import Tensors


def run_month(
    writer: FleetWriter, transport: Transport, number: int, before: FleetProgress | None
) -> tuple[RoundResult, Checkpoint]:
    """Lets robots train, sends queries, and merges all stored networks.

    Args:
        writer: Writer of the fleet; its folder stores the answers.
        transport: Transport to its robots.
        number: Number of the month.
        before: Progress after the month before; None in the first.

    Returns:
        The result of the month, with all stored networks as `robot_weights`, and its policy.

    Raises:
        TrainingError: See `run_round`; or no network is stored.
        FleetToolsError: An error of the last method.
    """
    plan, forgotten = writer.plan, writer.plan.forgotten(number)
    for robot in forgotten:
        for path in (writer.folder / KEPT).glob(f"{robot}-*"):
            path.unlink()
    kept = {} if before is None else dict(before.robot_weights)
    kept = {robot: each for robot, each in kept.items() if robot not in forgotten}
    here = plan.participants(number)
    result = _trained(writer, transport, number, here, kept, before)
    networks = dict(sorted((kept | dict(result.robot_weights)).items()))
    # A robot that sent no new network in time still counts by its last one, and gets queries.
    summaries = {k: each.model_copy(update={"left_out": None}) for k, each in result.robots.items()}
    messages, first = messages_of(plan, transport, summaries), plan.affine_maps[0].name
    group = KeepingGroup(messages, writer.folder / KEPT, number, frozenset(here), first)
    steps = {robot: plan.clients[robot].steps for robot in networks}
    policy = merged_checkpoint(
        plan.blueprint, combine(plan, messages, number, networks, steps, group), plan.notes
    )
    robots = {
        robot: each.model_copy(update={"left_out": each.left_out or late})
        for robot, each in sorted(messages.robots.items())
        for late in [result.robots[robot].left_out if robot in result.robots else None]
    }
    training = plan.config.training
    loss = validate(policy.blueprint, plan.held_out_trajectories, training, policy.weights)
    return replace(result, robots=robots, robot_weights=networks, loss=loss), policy


def _trained(
    writer: FleetWriter,
    transport: Transport,
    number: int,
    here: Sequence[int],
    kept: dict[int, Tensors],
    before: FleetProgress | None,
) -> RoundResult:
    """Returns the networks of robots that answer this month."""
    plan = writer.plan
    if plan.config.frozen or not here:
        base = plan.first_base() if before is None else before.weights
        assert base is not None  # since `frozen` robots have common weights
        networks = dict.fromkeys(here, base) if plan.config.frozen else {}
        return RoundResult(number, base, {}, 0.0, None, {}, networks)
    return run_round(plan, transport, number, None, writer, own=kept)


@dataclass(frozen=True, eq=False)
class KeepingGroup(RobotGroup):
    """Robots with stored answers, which remain after they leave.

    Attributes:
        folder: Folder of the answers.
        month: Number of the present month. Answers of former months are not requested again.
        here: Robots that can answer.
        first: Name of the affine map that reads states.
        counted: Robots and keys of the answers whose bytes are counted. A merge that begins again
            without a robot reads them a second time.
        latest: Keys of the last queries, by robot number.
    """

    folder: Path
    month: int
    here: frozenset[int]
    first: str
    counted: set[tuple[int, str]] = field(default_factory=set)
    latest: dict[int, str] = field(default_factory=dict)

    def answer_all(
        self, queries: Sequence[tuple[DataHolder, DataQuery]]
    ) -> tuple[list[DataAnswer], Traffic]:
        """Returns answers that are kept, asks for the others, and keeps these.

        Raises:
            DataHolderError: A robot is lost, or not here and was never asked.
        """
        pairs: list[tuple[Any, DataQuery]] = list(queries)
        asked, answers, traffic = list[tuple[Any, DataQuery]](), dict[int, DataAnswer](), Traffic()
        for holder, query in pairs:
            robot, key = holder.robot, key_of(query, self.first)
            self.latest[robot] = key
            if (kept := self._kept(robot, key, query)) is not None:
                answers[robot] = kept
            elif robot in self.here:
                asked.append((holder, query))
            else:
                raise DataHolderError(holder, "it is absent, and has no stored answer")
        if asked:
            found, traffic = super().answer_all(asked)
            answers |= {holder.robot: own for (holder, _), own in zip(asked, found, strict=True)}
        return [answers[holder.robot] for holder, _ in pairs], traffic

    def answers_to(self, asked: Sequence[tuple[Any, DataQuery]]) -> dict[int, DataAnswer]:
        """Sends queries, and keeps each answer, even if another robot is lost meanwhile."""
        before = {robot: each.uploaded_bytes for robot, each in self.messages.robots.items()}
        answers = super().answers_to(asked)
        self.folder.mkdir(exist_ok=True)
        for robot, answer in answers.items():
            key = self.latest[robot]
            size = self.messages.robots[robot].uploaded_bytes - before.get(robot, 0)
            store_reply(self.folder / f"{robot}-{self.month}-{size}-{key}.safetensors", answer)
            self.counted.add((robot, key))
        return answers

    def refused(self, robot: int) -> None:
        """Deletes the last answer of a robot, so that it is asked again next month."""
        for path in self.folder.glob(f"{robot}-*-{self.latest.get(robot)}.safetensors"):
            path.unlink()

    def _kept(self, robot: int, key: str, query: DataQuery) -> DataAnswer | None:
        """Returns a stored answer, and counts its bytes if the program was killed since it came."""
        for path in self.folder.glob(f"{robot}-*-{key}.safetensors"):
            if (answer := read_reply(path)) is not None:
                _, month, size, _ = path.name.split("-")
                if int(month) == self.month and (robot, key) not in self.counted:
                    self.messages.record(robot, query, answer, received=int(size))
                    self.counted.add((robot, key))
                return answer
            path.unlink()
        return None


def key_of(query: DataQuery, first: str) -> str:
    """Returns a hash of all inputs to the answer of a query.

    Without encoders, as `FleetConfig.life` demands, states do not depend on the model. Gaussians of
    states depend on the seed of a query; the first answer serves later ones.

    Args:
        query: The query.
        first: Name of the affine map that reads states.
    """
    if isinstance(query, MixtureQuery) and query.model is None:
        query = replace(query, seed=0)
    if isinstance(query, MomentQuery) and (query.maps, query.target) == ((first,), "none"):
        query = replace(query, model={})
    return hashlib.blake2b(wire.encode(query), digest_size=8).hexdigest()
