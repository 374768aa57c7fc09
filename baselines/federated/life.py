"""The life of a fleet: robots arrive with their episodes, miss months, and leave."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import pydantic

from fleet_tools.config.extends import load_layers
from fleet_tools.config.values import STORED_IF_SET, Count, MisfitError, Value
from fleet_tools.config.yaml_text import Location
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.stored_episode import StoredEpisode
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.robot.arm import robot_path


class Event(Value):
    """An event at the beginning of a month.

    Attributes:
        month: Number of the month, from 1.
        robot: Name of the robot.
    """

    month: Count
    robot: str


class Arrival(Event):
    """A robot arrives, with all its episodes until it leaves.

    Attributes:
        task: Task of its episodes.
        tools: Tools of its episodes; empty for all.
        arm: Robot arm of its episodes; None for any.
        episodes: Number of episodes, which no other robot has.
        bytes: Largest number of bytes that it uploads in a month; None for any.
    """

    type: Literal["arrives"]
    task: str
    tools: tuple[str, ...] = ()
    arm: str | None = None
    episodes: Count
    bytes: Count | None = None

    def has(self, task: str, arm: str) -> bool:
        """Returns whether its episodes may be of a task on an arm."""
        return task == self.task and self.arm in (None, arm)

    @pydantic.field_validator("arm")
    @classmethod
    def _has_model(cls, arm: str | None) -> str | None:
        if arm is not None:
            robot_path(arm)
        return arm


class Departure(Event):
    """A robot leaves, and takes part in no round from this month on.

    Attributes:
        forget: Whether the server removes its contribution.
    """

    type: Literal["leaves"]
    forget: bool = False


class Absence(Event):
    """A robot misses the round of this month."""

    type: Literal["is_away"]


@dataclass(frozen=True)
class Stay:
    """A robot from its arrival to its departure, a client of the fleet.

    Attributes:
        robot: Its name.
        arrivals: Numbers of the events that bring its episodes.
        rounds: Rounds in which it takes part.
        forgotten: Month from which its contribution is removed; None if it is not.
        times: Factor of its epochs in a round.
        bytes: Largest number of bytes that it uploads in a round; None for any.
        there: Whether the robot takes part in the last month, for any control.
    """

    robot: str
    arrivals: tuple[int, ...]
    rounds: tuple[int, ...]
    forgotten: int | None = None
    times: int = 1
    bytes: int | None = None
    there: bool = False


Control = Literal["joint", "last_month", "alone", "sequential", "without"]


class Life(Value):
    """Arrivals, absences and departures. A month is a round of `training.epochs` epochs.

    Attributes:
        months: Number of months.
        events: Events in the order of months.
        control: Another life with the same data, for comparison. "joint": one robot has all
            episodes except forgotten robots', and trains for the epochs of all months at once.
            "last_month": the last month alone, from initial weights. "alone": each robot trains for
            the epochs of its months without merging; forgotten robots are left out. "sequential":
            in each month, one policy trains on the new episodes. "without": forgotten robots never
            take part. None for this life.
    """

    months: Count
    events: Annotated[
        tuple[Annotated[Arrival | Departure | Absence, pydantic.Discriminator("type")], ...],
        pydantic.Field(min_length=1),
    ]
    control: Annotated[Control | None, STORED_IF_SET] = None

    @pydantic.model_validator(mode="after")
    def _is_in_order(self) -> Self:
        here: set[str] = set()
        before = 1
        for number, event in enumerate(self.events):
            place, name = f"events.{number}", event.robot
            if not before <= event.month <= self.months:
                raise MisfitError(
                    f"{place}.month",
                    f"month {event.month} does not lie between the month before, {before}, and "
                    f"the last of {self.months}; give events in the order of months",
                )
            if isinstance(event, Arrival) == (name in here):
                known = f"here are {', '.join(sorted(here))}" if here else "nobody is here"
                problem = "arrives, and is here already" if name in here else "is not here yet"
                raise MisfitError(
                    f"{place}.robot", f"in month {event.month}, {name!r} {problem}; {known}"
                )
            if isinstance(event, Arrival):
                here.add(name)
            elif isinstance(event, Departure):
                here.remove(name)
            before = event.month
        if not any(1 in stay.rounds for stay in self.stays()):
            raise MisfitError("events.0", "no robot takes part in the first month; let one arrive")
        return self

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return self.months if self.control in (None, "sequential", "without") else 1

    def arrivals(self) -> Iterator[tuple[int, Arrival]]:
        """Yields the numbers of the events by which robots arrive, and these."""
        for number, event in enumerate(self.events):
            if isinstance(event, Arrival):
                yield number, event

    def stays(self) -> tuple[Stay, ...]:
        """Returns the clients of the fleet; with the control "without", numbers are the same."""
        own = [self._stay(number, event) for number, event in self.arrivals()]
        kept = [stay for stay in own if stay.forgotten is None]
        match self.control:
            case None:
                return tuple(own)
            case "without":
                return tuple(
                    stay if stay.forgotten is None else replace(stay, rounds=()) for stay in own
                )
            case "joint":
                every = tuple(number for stay in kept for number in stay.arrivals)
                return (Stay("joint", every, (1,), times=self.months),)
            case "last_month":
                return tuple(replace(stay, rounds=(1,)) for stay in own if stay.there)
            case "alone":
                alone = [stay for stay in kept if stay.rounds]
                return tuple(replace(s, rounds=(1,), times=len(s.rounds)) for s in alone)
        begun: dict[int, tuple[int, ...]] = {}
        for stay in own:
            for month in stay.rounds[:1]:
                begun[month] = begun.get(month, ()) + stay.arrivals
        return tuple(Stay(f"month {k}", every, (k,)) for k, every in sorted(begun.items()))

    def kept_tasks(self, episodes: Iterable[StoredEpisode]) -> list[str]:
        """Returns the tasks of robots that are never forgotten, for any control.

        Args:
            episodes: Episodes of all tasks and arms.

        Returns:
            Names of tasks on arms, see `Header.setting`.
        """
        kept = [e for n, e in self.arrivals() if self._stay(n, e).forgotten is None]
        return sorted(
            {
                one.header.setting
                for one in episodes
                if any(arrival.has(one.task, one.header.robot) for arrival in kept)
            }
        )

    def _stay(self, number: int, arrival: Arrival) -> Stay:
        months, forgotten = set(range(arrival.month, self.months + 1)), None
        here = True
        for event in self.events[number + 1 :]:
            if event.robot != arrival.robot:
                continue
            if isinstance(event, Absence) and here:
                months.discard(event.month)
            if isinstance(event, Departure):
                months -= set(range(event.month, self.months + 1)) if here else set()
                here = False
                if event.forget and forgotten is None:  # also what it left at an earlier departure
                    forgotten = event.month
        rounds = tuple(sorted(months))
        there = self.months in rounds
        return Stay(arrival.robot, (number,), rounds, forgotten, bytes=arrival.bytes, there=there)

    def parts(self, samples: Samples, free: Sequence[int], seed: int) -> list[list[int]]:
        """Returns the episodes of each stay, ascending.

        Args:
            samples: All episodes.
            free: Indices of the episodes that robots may have.
            seed: Seed of the draws.

        Raises:
            EventError: There are too few episodes of a task, its tools and its arm.
        """
        left, found = list(free), dict[int, list[int]]()
        for number, arrival in self.arrivals():
            fitting = [index for index in left if _fits(arrival, samples.episodes[index])]
            if len(fitting) < arrival.episodes:
                raise EventError(number, _lacking(arrival, samples, len(fitting)))
            draw = np.random.default_rng((seed, number))
            chosen = draw.choice(len(fitting), arrival.episodes, replace=False)
            found[number] = sorted(fitting[index] for index in chosen)
            left = sorted(set(left).difference(found[number]))
        return [sorted(i for each in stay.arrivals for i in found[each]) for stay in self.stays()]


class EventError(ConfigError):
    """An event for which the datasets have no episodes.

    Args:
        event: Number of the event.
        reason: Why there are none.
    """

    def __init__(self, event: int, reason: str) -> None:
        super().__init__(event, reason)
        self.reason = reason
        self.location: Location = ("life", "events", event)

    def __str__(self) -> str:
        """Returns the place and the reason."""
        return f"{'.'.join(map(str, self.location))}: {self.reason}"

    def in_file(self, path: Path) -> ConfigError:
        """Returns the error with the line of a YAML file, or of one that it extends."""
        file = load_layers(path, lambda base, folder: folder / base)
        return ConfigError(
            f"{path} does not fit its data:\n  {file.cite(self.location)}: {self.reason}"
        )


def _fits(arrival: Arrival, episode: StoredEpisode) -> bool:
    has_tool = not arrival.tools or episode.record.tool in arrival.tools
    return has_tool and arrival.has(episode.task, episode.header.robot)


def _lacking(arrival: Arrival, samples: Samples, count: int) -> str:
    """Returns the reason why the datasets lack episodes for an arrival."""
    of_task = [each for each in samples.episodes if each.task == arrival.task]
    if not of_task:
        tasks = {each.task for each in samples.episodes}
        return str(UnknownNameError("task of the data", arrival.task, tasks))
    tools = {each.record.tool for each in of_task if each.record.tool}
    for tool in arrival.tools:
        if tool not in tools:
            return str(UnknownNameError(f"tool in the data of {arrival.task}", tool, tools))
    arms = {each.header.robot for each in of_task}
    if arrival.arm not in (None, *arms):
        return str(UnknownNameError(f"arm in the data of {arrival.task}", arrival.arm, arms))
    return (
        f"{arrival.robot!r} has {arrival.episodes} episodes of {arrival.task}, and {count} that "
        "fit are left, without those held out and of robots before it; give fewer, or collect more"
    )
