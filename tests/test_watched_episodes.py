"""Labels of who watched against the verdicts, by another count; and what the numbers tell."""

import json
from pathlib import Path

import numpy as np
import pytest
import watched_episodes
from hypothesis import given
from hypothesis import strategies as st
from watched_episodes import FRAMES, SIZE, WATCHED, WatchJob, agreement_rows, episodes, film

from fleet_tools.config.tasks import task_names

VERDICTS = st.lists(st.tuples(st.sampled_from(["hammer", "knife"]), st.booleans()), max_size=12)


@given(VERDICTS, st.data())
def test_every_labelled_episode_is_counted_once(verdicts, data: st.DataObject):
    given = [{"number": n, "task": t, "success": s} for n, (t, s) in enumerate(verdicts)]
    drawn = st.sampled_from([*watched_episodes.LABELS, None])
    labels = {n: label for n in range(len(given)) if (label := data.draw(drawn)) is not None}
    rows = {row["task"]: row for row in agreement_rows(given, labels)}
    whole = rows["all"]
    counts = ["unsure", "both yes", "both no", "seen, refused", "not seen, accepted"]
    assert whole["labelled"] == len(labels) == sum(whole[name] for name in counts)
    for name in ("labelled", *counts):
        assert whole[name] == sum(row[name] for task, row in rows.items() if task != "all")
    agreed = [
        n for n, label in labels.items() if {"yes": True, "no": False}.get(label) == verdicts[n][1]
    ]
    assert whole["both yes"] + whole["both no"] == len(agreed)


def test_numbers_tell_nothing_of_what_was_done():
    jobs = episodes(task_names(), 0)
    assert [job.number for job in jobs] == list(range(len(jobs)))
    assert len({job.seed for job in jobs}) == len({(j.task, j.kind, j.way, j.seed) for j in jobs})
    kinds = np.array([job.kind == "honest" for job in jobs], float)
    assert abs(np.corrcoef(kinds, np.arange(len(kinds)))[0, 1]) < 0.2


def test_labels_of_no_episode_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "verdicts.json").write_text(
        json.dumps([{"number": 0, "task": "a", "success": True}])
    )
    for labels, wrong in (({"1": "yes"}, "1"), ({"0": "perhaps"}, "0")):
        (tmp_path / "labels.json").write_text(json.dumps({"labels": labels}))
        assert watched_episodes.main(["agreement", "--folder", str(tmp_path)]) == 2
        assert f"Correct or remove {wrong} in" in capsys.readouterr().err


def test_the_stored_labels_agree_with_the_verdicts(capsys: pytest.CaptureFixture[str]):
    assert watched_episodes.main(["agreement", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    whole = report["rows"][-1]
    verdicts = json.loads((WATCHED / "verdicts.json").read_text())
    assert whole["labelled"] == len(verdicts) >= 190
    agreed = whole["both yes"] + whole["both no"]
    assert agreed >= 0.98 * (whole["labelled"] - whole["unsure"])
    assert len(report["differing"]) == whole["seen, refused"] + whole["not seen, accepted"]
    sheets = list(WATCHED.glob("sheet_*.webp"))
    assert len(sheets) == -(-len(verdicts) // watched_episodes.STRIPS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["honest", "cheat", "noisy"])
def test_a_stored_verdict_comes_again(make, kind: str):
    verdicts = json.loads((WATCHED / "verdicts.json").read_text())
    stored = next(row for row in verdicts if (row["task"], row["kind"]) == ("hammer", kind))
    job = WatchJob(*(stored.pop(name) for name in ("number", "task", "kind", "way", "seed")))
    strip, verdict = film(make(split="all", render_mode="rgb_array"), job)
    assert verdict == stored
    assert strip.shape == (SIZE[1], FRAMES * SIZE[0], 3) and strip.dtype == np.uint8
