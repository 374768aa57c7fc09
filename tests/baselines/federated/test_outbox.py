"""Which robot is next for a host."""

from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.baselines.federated.placement import Outbox

PLACES = st.sampled_from([None, "a", "b"])
HOSTS = st.sampled_from("xyz")
ROBOTS = st.lists(st.tuples(PLACES, st.none() | HOSTS), max_size=30)
"""Place of each robot, and the host that has it open."""


def filled(robots: list[tuple[str | None, str | None]]) -> Outbox:
    outbox = Outbox()
    for robot, (place, host) in enumerate(robots):
        outbox.put(robot, place, host)
    return outbox


@given(ROBOTS, st.lists(st.tuples(PLACES, HOSTS, st.booleans(), st.booleans())))
def test_each_robot_is_taken_once_at_its_place(
    robots: list[tuple[str | None, str | None]],
    steps: list[tuple[str | None, str, bool, bool]],
):
    outbox, taken = filled(robots), []
    for place, host, of_others, gone in steps:
        if gone:
            outbox.release(place, host)
        robot = outbox.take(place, host, of_others=of_others)
        if robot is not None:
            assert robots[robot][0] == place
            taken.append(robot)
    left = [robot for place in (None, "a", "b") for robot in outbox.drop(place)]
    assert sorted(taken + left) == list(range(len(robots)))
    assert outbox.places() == []


@given(ROBOTS, PLACES, HOSTS)
def test_a_host_takes_its_own_robots_then_those_of_none_then_others(
    robots: list[tuple[str | None, str | None]], place: str | None, host: str
):
    outbox, taken = filled(robots), []
    count = outbox.count(place)
    while (robot := outbox.take(place, host, of_others=False)) is not None:
        taken.append(robots[robot][1])
    own, free = taken.count(host), taken.count(None)
    assert taken == [host] * own + [None] * free
    assert own + free == sum(each in ((place, host), (place, None)) for each in robots)
    while (robot := outbox.take(place, host, of_others=True)) is not None:
        taken.append(robots[robot][1])
    assert len(taken) == count and outbox.count(place) == 0


@given(ROBOTS, HOSTS)
def test_any_host_takes_the_robots_of_one_that_is_gone(
    robots: list[tuple[str | None, str | None]], gone: str
):
    outbox = filled(robots)
    outbox.release(None, gone)
    taken = []
    while (robot := outbox.take(None, "another", of_others=False)) is not None:
        taken.append(robot)
    expected = [
        k for k, (place, host) in enumerate(robots) if place is None and host in (None, gone)
    ]
    assert sorted(taken) == expected
