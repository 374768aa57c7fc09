"""A robot as a data holder that merging methods ask."""

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.transport import LostRobot, Transport
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries import wire
from fleet_tools.baselines.merging.queries.data_holder import Traffic
from fleet_tools.baselines.merging.queries.query import (
    DataAnswer,
    DataQuery,
    LossQuery,
    checked_loss,
    checked_moments,
)


class LostRobotError(MessageError):
    """A robot is lost during a merge.

    Attributes:
        robot: Its number.
        reason: Why it is lost.
    """

    def __init__(self, robot: int, reason: str) -> None:
        super().__init__(f"Robot {robot} is lost: {reason}")
        self.robot, self.reason = robot, reason


class CountingDataHolder:
    """A robot as the data holder of one merge: it counts messages, and reports a lost robot.

    Args:
        plan: The fleet.
        transport: Transport to its robots.
        robot: Number of the robot.

    Attributes:
        robot: As given.
        traffic: Messages so far.
    """

    def __init__(self, plan: FleetPlan, transport: Transport, robot: int) -> None:
        self.robot, self.traffic = robot, Traffic()
        self._transport, self._maps = transport, plan.affine_maps

    def answer(self, query: DataQuery) -> DataAnswer:
        """Sends a query, and waits for the answer; see `DataHolder`.

        Raises:
            LostRobotError: The robot does not answer, or with something else.
        """
        message = wire.encode(query)
        ((_, answer),) = self._transport.exchange({self.robot: message})
        if isinstance(answer, LostRobot):
            self.traffic += Traffic(1, len(message), 0)
            raise LostRobotError(self.robot, answer.reason)
        self.traffic += Traffic(1, len(message), len(answer))
        try:
            found = wire.decode(answer)
            if isinstance(query, LossQuery):
                return checked_loss(found, query)
            return checked_moments(found, query, self._maps)
        except MessageError as error:
            self._transport.end(self.robot)
            raise LostRobotError(self.robot, str(error)) from None
