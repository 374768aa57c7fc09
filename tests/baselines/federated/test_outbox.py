"""Which robot is next for a host."""

from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.baselines.federated.ray_host import Outbox

HOSTS = st.sampled_from("xyz")
ROBOTS = st.lists(st.none() | HOSTS, max_size=30)
"""The host that has each robot open."""


def filled(robots: list[str | None]) -> Outbox:
    outbox = Outbox()
    for robot, host in enumerate(robots):
        outbox.put(robot, host)
    return outbox


@given(ROBOTS, st.lists(st.tuples(HOSTS, st.booleans(), st.booleans())))
def test_each_robot_is_taken_once(robots: list[str | None], steps: list[tuple[str, bool, bool]]):
    outbox, taken = filled(robots), []
    for host, of_others, gone in steps:
        if gone:
            outbox.release(host)
        if (robot := outbox.take(host, of_others=of_others)) is not None:
            taken.append(robot)
    assert outbox.count() == len(robots) - len(taken)
    while (robot := outbox.take("x", of_others=True)) is not None:
        taken.append(robot)
    assert sorted(taken) == list(range(len(robots))) and outbox.count() == 0


@given(ROBOTS, HOSTS)
def test_a_host_takes_its_own_robots_then_those_of_none_then_others(
    robots: list[str | None], host: str
):
    outbox, taken = filled(robots), []
    while (robot := outbox.take(host, of_others=False)) is not None:
        taken.append(robots[robot])
    own, free = robots.count(host), robots.count(None)
    assert taken == [host] * own + [None] * free
    while (robot := outbox.take(host, of_others=True)) is not None:
        taken.append(robots[robot])
    assert len(taken) == len(robots) and outbox.count() == 0


@given(ROBOTS, HOSTS)
def test_any_host_takes_the_robots_of_one_that_is_gone(robots: list[str | None], gone: str):
    outbox = filled(robots)
    outbox.release(gone)
    taken = []
    while (robot := outbox.take("another", of_others=False)) is not None:
        taken.append(robot)
    assert sorted(taken) == [k for k, host in enumerate(robots) if host in (None, gone)]
