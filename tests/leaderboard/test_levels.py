"""Levels and tracks on the leaderboard: both follow from results, and neither can be claimed."""

import json
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from support.evaluated import FIRST
from support.submitted import (
    SMALL,
    evaluation_with,
    overall,
    random_evaluation,
    renamed,
    submission,
    write,
)

from fleet_tools.config.distributions import Uniform
from fleet_tools.config.values import parse
from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT
from fleet_tools.evaluation.level_scenes import Changes, SecondObject
from fleet_tools.evaluation.protocol import Protocol, Scenes
from fleet_tools.evaluation.result import Evaluation
from fleet_tools.evaluation.result_folder import RESULT
from fleet_tools.leaderboard.board import Board, RankedLevel, across_levels, make_rankings
from fleet_tools.leaderboard.page import as_html, as_markdown
from fleet_tools.leaderboard.standings import make_standings
from fleet_tools.leaderboard.submissions import Submission, read_submissions
from fleet_tools.leaderboard.tables import policies_text
from fleet_tools.leaderboard.texts import as_text, summary

PUSHES = {"hand_pushes": [{"start_s": 1, "duration_s": 0.2, "horizontal_N": 20}]}


def a_level(level: str, first_seed: int, **changes: Any) -> Protocol:
    splits = {"train": Scenes(scenes=2, first_seed=first_seed)}
    return SMALL.model_copy(update={"version": 2, "level": level, "splits": splits, **changes})


SHAKEN = a_level("shaken", FIRST + 1000, hand_pushes=parse(Changes, PUSHES, "it").hand_pushes)
NOISY = a_level("noisy", FIRST + 2000, sensors="active_stereo")
LEVELS = [SMALL, SHAKEN, NOISY]
CLOUDS: dict[str, Any] = {"obs_mode": "point_cloud", "cloud_source": "rays"}


def board(submissions: Sequence[Submission], **others: Any) -> Board:
    return Board([*map(RankedLevel.of, LEVELS)], make_rankings(submissions, LEVELS), **others)


def always(
    outcome: str, name: str = "somebody", protocol: Protocol = SMALL, **others: Any
) -> Evaluation:
    return evaluation_with(lambda trial: outcome, name, protocol, **others)


# --- Levels ---------------------------------------------------------------------------------


def test_results_are_read_by_the_level_that_they_follow(tmp_path):
    for folder, evaluation in {
        "it/nominal": always(SUCCESS, name="it", **CLOUDS),
        "it/shaken": always(TIME_LIMIT, name="it", protocol=SHAKEN, **CLOUDS),
        "it/noisy": always(TIME_LIMIT, "it", NOISY, sensors="active_stereo", **CLOUDS),
    }.items():
        write(evaluation, tmp_path / folder)
    accepted, rejections = read_submissions(tmp_path, LEVELS)
    assert not rejections
    levels = {each.folder: each.evaluation.result.protocol.level_name for each in accepted}
    assert levels == {"it/nominal": "nominal", "it/shaken": "shaken", "it/noisy": "noisy"}
    (only,), rejections = read_submissions(tmp_path, [SMALL])
    assert only.folder == "it/nominal"
    assert {(each.folder, each.kind) for each in rejections} == {
        ("it/shaken", "protocol"),
        ("it/noisy", "protocol"),
    }


def claim(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / RESULT).read_text())
    for key, value in changes.items():
        if value is None:
            content["protocol"].pop(key)
        else:
            content["protocol"][key] = value
    (folder / RESULT).write_text(json.dumps(content) + "\n")


def test_a_result_cannot_claim_a_harder_level(tmp_path):
    """Neither by its words, nor with the harder level's words and the easier one's scenes."""
    claim(write(always(SUCCESS, name="a"), tmp_path / "a"), level="shaken")
    claim(write(always(SUCCESS, "b", SHAKEN), tmp_path / "b"), hand_pushes=None)
    easy = SHAKEN.model_copy(update={"hand_pushes": (), "level": ""})
    undisturbed = always(SUCCESS, "c", easy)
    hard = always(SUCCESS, "c", SHAKEN)
    write(Evaluation(hard.result, undisturbed.episodes), tmp_path / "c")
    _, rejections = read_submissions(tmp_path, LEVELS)
    assert [(each.folder, each.kind) for each in rejections] == [
        ("a", "damaged"),
        ("b", "damaged"),
        ("c", "scenes"),
    ]


def test_a_level_of_two_objects_may_have_some_of_the_tasks_and_not_the_scenes_of_one(tmp_path):
    beside = SecondObject(least_distance_m=0.2, y_m=Uniform(uniform=(-0.3, 0.3)))
    long = a_level("long", FIRST + 3000, tasks=("knife",), second_object=beside)
    write(always(SUCCESS, "two", long), tmp_path / "two")
    single = always(SUCCESS, "one", long.model_copy(update={"second_object": None, "level": ""}))
    write(Evaluation(always(SUCCESS, "one", long).result, single.episodes), tmp_path / "one")
    write(always(SUCCESS, "plain"), tmp_path / "plain")
    levels = [SMALL, long]
    accepted, rejections = read_submissions(tmp_path, levels)
    assert {each.folder for each in accepted} == {"two", "plain"}
    assert [(each.folder, each.kind) for each in rejections] == [("one", "scenes")]
    shown = Board([*map(RankedLevel.of, levels)], make_rankings(accepted, levels))
    assert "long" in as_markdown(shown)
    assert "Level: long" in as_html(shown)


def test_a_result_has_the_cameras_of_its_level(tmp_path):
    write(always(SUCCESS, "ideal", NOISY, **CLOUDS), tmp_path / "ideal")
    write(always(SUCCESS, "keypoints", NOISY), tmp_path / "keypoints")
    write(always(SUCCESS, "seen", NOISY, sensors="active_stereo", **CLOUDS), tmp_path / "seen")
    accepted, rejections = read_submissions(tmp_path, LEVELS)
    assert [each.folder for each in accepted] == ["seen"]
    for each in rejections:
        assert each.kind == "protocol" and "its cameras are 'ideal'" in each.reason


def test_every_level_has_ranks_of_its_own_and_the_pages_show_all():
    good = [
        random_evaluation(1.0, name="good"),
        random_evaluation(0.0, 1, name="good", protocol=SHAKEN),
    ]
    poor = [
        random_evaluation(0.0, name="poor"),
        random_evaluation(1.0, 1, name="poor", protocol=SHAKEN),
    ]
    only = random_evaluation(1.0, name="hammers", protocol=SHAKEN, tasks=["hammer"])
    submissions = [submission(each, f"{k}") for k, each in enumerate([*good, *poor, only])]
    shown = board(submissions)
    totals = {
        (ranking.protocol.level_name, each.name): overall(each).total.rate
        for ranking in shown.rankings
        for each in ranking.standings
        if each.overall
    }
    assert totals == {
        ("nominal", "good"): 1, ("nominal", "poor"): 0,
        ("shaken", "good"): 0, ("shaken", "poor"): 1,
    }  # fmt: skip
    rows = {
        row.name: [each and each.overall for each in row.standings] for row in across_levels(shown)
    }
    assert [*rows] == ["good", "poor", "hammers"]
    assert [*map(bool, rows["good"])] == [True, True, False] and not any(rows["hammers"])
    for text in (as_html(shown), as_markdown(shown)):
        plain = unescape(text.replace("\\", ""))
        for expected in (
            "Level: ",
            "small v2, shaken",
            "No results yet",
            "hammer 100.0%",
            "good, shaken",
        ):
            assert expected in plain
    assert as_html(board(submissions[::-1])) == as_html(shown)
    assert "small v2, shaken" in as_text(shown, None)
    methods = summary(shown, None)["methods"]
    assert {(each["name"], each["level"]) for each in methods} == {
        *totals_swapped(totals), ("hammers", "shaken"),
    }  # fmt: skip


def totals_swapped(totals: dict[tuple[str, str], Any]) -> list[tuple[str, str]]:
    return [(name, level) for level, name in totals]


def test_a_result_that_is_not_verified_at_one_level_keeps_its_rank_at_another():
    nominal = submission(random_evaluation(0.9, name="it"), "it")
    shaken = submission(random_evaluation(0.9, name="it", protocol=SHAKEN), "s", same_outcome=None)
    kinds = [
        (each.protocol.level_name, each.kind) for each in make_rankings([nominal, shaken], LEVELS)
    ]
    assert kinds == [("nominal", "keypoints"), ("shaken", "unverified")]


# --- Tracks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_kwargs", "track"),
    [
        ({"obs_mode": "state"}, "keypoints"),
        ({"obs_mode": "multitask_state"}, "keypoints"),
        (CLOUDS, "clouds"),
        ({"obs_mode": "rgbd", "camera_size": [96, 72]}, "images"),
    ],
)
def test_the_track_is_what_the_observations_have(env_kwargs, track):
    evaluation = always(SUCCESS, **env_kwargs)
    (standing,) = make_standings([submission(evaluation)], SMALL)
    assert standing.track == track
    given = renamed(evaluation, track="privileged")
    (standing,) = make_standings([submission(given)], SMALL)
    assert standing.track == "privileged"


def test_a_method_is_in_the_track_of_its_result_that_is_told_most():
    clouds = submission(always(SUCCESS, "it", tasks=["hammer"], **CLOUDS), "it/hammer")
    keypoints = submission(always(SUCCESS, "it", tasks=["knife"]), "it/knife")
    (standing,) = make_standings([clouds, keypoints], SMALL)
    assert standing.track == "keypoints"


def test_an_observation_mode_that_is_not_the_packages_is_rejected(tmp_path):
    write(always(SUCCESS, "it", obs_mode="oracle"), tmp_path / "it")
    accepted, (rejection,) = read_submissions(tmp_path, LEVELS)
    assert not accepted and rejection.kind == "protocol" and "state" in rejection.reason


def test_whether_one_policy_serves_all_tools_follows_from_their_hashes():
    both = always(SUCCESS, "both")
    parts = [always(SUCCESS, "parts", tasks=[task]) for task in SMALL.tasks]
    same = [submission(each, f"same{k}") for k, each in enumerate(parts)]
    other = [
        submission(renamed(each, content_digest=f"{k:032x}"), f"other{k}")
        for k, each in enumerate(parts)
    ]
    for submissions, count, text in (
        ([submission(both)], 1, "one for all tools"),
        (same, 1, "one for all tools"),
        (other, 2, "2 for 2 tools"),
        (same[:1], 1, "one for hammer"),
    ):
        (standing,) = make_standings(submissions, SMALL)
        assert (standing.policies, policies_text(standing)) == (count, text)
