"""Audits of stored results, from invented episodes: ranks that data prove, and redrawn scenes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.evaluated import FIRST, SMALL, a_result, an_episode
from support.shares import few

from fleet_tools.baselines import audit
from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.audit import load_method, neighbouring_ranks, redrawn
from fleet_tools.evaluation.protocol import Protocol, Scenes
from fleet_tools.evaluation.result import Evaluation
from fleet_tools.evaluation.result_folder import EvaluationWriter

WIDE, FRESH = (
    SMALL.model_copy(update={"splits": {"train": Scenes(scenes=40, first_seed=first)}})
    for first in (FIRST, FIRST + 1000)
)


def made(
    solved: float,
    protocol: Protocol = WIDE,
    name: str = "somebody",
    tasks: Sequence[str] = WIDE.tasks,
) -> Evaluation:
    """Returns a result in which a share of the scenes of each task is solved, the first ones."""
    count = 40 * solved
    return Evaluation(
        a_result(protocol, name),
        [
            an_episode(trial, SUCCESS if trial.index < count else TIME_LIMIT)
            for trial in protocol.trials()
            if trial.task in tasks
        ],
    )


def stored(folder: Path, *args: Any, **kwargs: Any) -> Path:
    """Writes the result of `made`."""
    evaluation = made(*args, **kwargs)
    with EvaluationWriter(folder, evaluation.result) as writer:
        for episode in evaluation.episodes:
            writer.append(episode)
        writer.finish()
    return folder


@contextmanager
def in_memory(results: Mapping[Path, Evaluation]) -> Iterator[None]:
    """Lets folders hold results that are nowhere on the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleet_tools.evaluation.audit.load_method", results.__getitem__)
        yield


SHARES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=2, max_size=5)


@few(8)
@given(SHARES, st.randoms())
def test_ranks_follow_success_whatever_the_order_and_equal_ones_are_never_proven(shares, random):
    results = {Path(f"m{k}"): made(share) for k, share in enumerate(shares)}
    folders = list(results)
    with in_memory(results):
        pairs = neighbouring_ranks(folders)
        random.shuffle(folders)
        assert neighbouring_ranks(folders) == pairs
    assert [pair.rates[0] for pair in pairs] == sorted(shares, reverse=True)[:-1]
    for pair in pairs:
        assert pair.difference == pytest.approx(pair.rates[0] - pair.rates[1])
        assert pair.proven == (pair.difference > 0)  # 20 scenes of 80 are proof enough
        assert pair.low <= pair.difference <= pair.high and pair.scenes == 80


def test_a_method_of_one_policy_for_each_task_is_read_as_one(tmp_path):
    for task in WIDE.tasks:
        stored(tmp_path / "split" / task, 0.5, tasks=[task])
    whole = stored(tmp_path / "whole", 0.5)
    assert load_method(tmp_path / "split").episodes == load_method(whole).episodes
    (pair,) = neighbouring_ranks([whole, tmp_path / "split"])
    assert pair.p_value == 1 and not pair.proven
    stored(tmp_path / "split" / "again", 0.5, tasks=["hammer"])
    with pytest.raises(ResultError, match="same scenes"):
        load_method(tmp_path / "split")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=3))
def test_a_drop_is_the_mean_of_the_learners_and_exchanging_sides_mirrors_it(rates):
    public, fresh = ([Path(f"{side}{k}") for k in range(len(rates))] for side in "pf")
    results = {
        folder: made(pair[side] / 40, protocol, folder.name[1:])
        for side, (protocol, folders) in enumerate(((WIDE, public), (FRESH, fresh)))
        for folder, pair in zip(folders, rates, strict=True)
    }
    with in_memory(results):
        forward, backward = redrawn(public, fresh).pooled, redrawn(fresh, public).pooled
    assert forward.difference == pytest.approx(np.mean([p - f for p, f in rates]) / 40)
    assert forward.low < forward.difference < forward.high  # never of no width
    numbers = [forward.difference, forward.low, forward.high]
    assert numbers == pytest.approx([-backward.difference, -backward.high, -backward.low])


def test_results_that_do_not_fit_together_are_refused(tmp_path, capsys):
    public, fresh = stored(tmp_path / "a", 0.5), stored(tmp_path / "b", 0.5, FRESH)
    other = stored(tmp_path / "other", 0.5, FRESH, name="other")
    few = stored(tmp_path / "few", 0.5, tasks=["hammer"])
    for given_, message in (
        (["ranks", public, few], "different scenes"),
        (["ranks", public], "at least two methods"),
        (["ranks", public, tmp_path / "none"], "holds no result"),
        (["redrawn", "--public", public, "--fresh", public], "share scenes"),
        (["redrawn", "--public", public, "--fresh", other], "different policies"),
        (["redrawn", "--public", public, "--fresh", fresh, fresh], "1 and 2 folders"),
    ):
        assert audit.main([*map(str, given_)]) == 2
        assert message in capsys.readouterr().err
    assert audit.main(["redrawn", "--public", str(public), "--fresh", str(fresh)]) == 0
    assert "cost 0.0 points" in capsys.readouterr().out
