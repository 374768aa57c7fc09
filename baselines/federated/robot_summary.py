"""What a report says of a robot in a round."""

from fleet_tools.config.values import Value


class RobotSummary(Value):
    """Summary of a robot in a round.

    Attributes:
        robot: Number of the robot.
        steps: Number of steps that it learned from; None if it was lost before it replied.
        loss: Mean loss over them; None likewise.
        left_out: Why it was left out of the merge; None if it was merged.
        messages: Number of messages that it was sent.
        bytes_to_robot, bytes_from_robot: Size of the messages.
    """

    robot: int
    steps: int | None
    loss: float | None
    left_out: str | None
    messages: int
    bytes_to_robot: int
    bytes_from_robot: int


class Tally(Value):
    """Numbers of robots in a streaming round.

    Attributes:
        asked: Robots that were asked.
        merged: Robots whose changes were merged.
        failed: Robots that were lost, or whose answers were invalid.
        not_awaited: Robots that had not answered when the round closed.
        came_late: Answers that came, meanwhile, from robots of former rounds.
        steps: Number of steps that the merged robots learned from; with masks, their number.
        loss: Mean of their losses; None with masks.
        messages: Number of messages to robots.
        bytes_to_robots, bytes_from_robots: Size of messages and answers.
    """

    asked: int
    merged: int
    failed: int
    not_awaited: int
    came_late: int
    steps: int
    loss: float | None
    messages: int
    bytes_to_robots: int
    bytes_from_robots: int
