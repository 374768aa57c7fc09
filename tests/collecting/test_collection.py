"""Which attempts are made: the same for every number of workers and every order of ending."""

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_tools.dataset import Dataset, DatasetWriter, Record
from fleet_tools.dataset.attempts import scene_seed
from fleet_tools.dataset.collection import attempt_limit, fill
from fleet_tools.dataset.header import describe
from fleet_tools.parallel.workers import Lost
from fleet_tools.registration import make_environment

ENV = make_environment(task="hammer")
HEADER = describe(ENV, "hammer", policy="expert", seed=11, keep_failures=False)


def record(attempt, success):
    outcome = "success" if success else "time_limit"
    seed = scene_seed(HEADER.seed, attempt)
    return Record(
        attempt=attempt, seed=seed, outcome=outcome, success=success, steps=1, seconds=0.0
    )


def worker_pool(fates, count, draw, most=10**6):
    """Begins jobs as `workers.run` does; which ends first is drawn, and after `most` it is killed.

    A fate is whether an attempt succeeds; None loses it.
    """

    def run(next_job):
        at_work, ended = [], 0
        while ended < most:
            while len(at_work) < count and (job := next_job()) is not None:
                at_work.append(job)
            if not at_work:
                return
            job = at_work.pop(draw(st.integers(0, len(at_work) - 1)))
            ended += 1
            fate = fates[job]
            yield job, Lost("it hung") if fate is None else (record(job, fate), None)

    return run


def collected(folder, run, episodes):
    with DatasetWriter(folder, HEADER) as writer:
        fill(writer, run, episodes)
    return Dataset(folder).manifest()


FATES = st.lists(st.sampled_from([True, True, False, None]), min_size=60, max_size=60)


@settings(max_examples=25)
@given(FATES, st.integers(1, 5), st.integers(1, 9), st.integers(0, 20), st.data())
def test_attempts_are_the_fewest_from_the_first_on(fates, episodes, count, killed_after, data):
    limit = attempt_limit(episodes)
    needed = [k for k in range(limit) if sum(fate is True for fate in fates[:k]) < episodes]
    with tempfile.TemporaryDirectory() as folder:
        collected(folder, worker_pool(fates, count, data.draw, killed_after), episodes)
        records = collected(folder, worker_pool(fates, count, data.draw), episodes)
    assert [r.attempt for r in records] == needed
    for r in records:
        assert r.success is (fates[r.attempt] is True)
        assert r.seed == scene_seed(HEADER.seed, r.attempt)
        assert (r.outcome == "worker_error") is (fates[r.attempt] is None)


def test_what_a_crash_left_out_is_made_up_for(tmp_path):
    with DatasetWriter(tmp_path, HEADER) as writer:
        for attempt in (0, 1, 3):
            writer.add(record(attempt, True))
    begun = [r.attempt for r in collected(tmp_path, worker_pool([True] * 9, 1, lambda s: 0), 2)]
    assert begun == [0, 1, 2, 3]


def test_nothing_is_begun_once_it_is_to_stop(tmp_path):
    with DatasetWriter(tmp_path, HEADER) as writer:
        fill(
            writer, worker_pool([True] * 9, 2, lambda s: 0), 5, stop=lambda: len(writer.records) > 1
        )
        assert len(writer.records) == 3  # one was at work already
