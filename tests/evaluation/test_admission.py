"""What enters the leaderboard: complete tasks of its protocol, by a physics that compares."""

import pytest
from support.evaluated import SMALL, TRIALS, a_result
from support.processes import ROOT

from fleet_tools.errors import ResultError
from fleet_tools.evaluation.admission import admission, missing_scenes, objections
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.scores import require_comparable
from fleet_tools.utils.drake_release import RELEASES

CURRENT = load_protocol(PROTOCOL)


def keys(task: str | None = None, split: str | None = None, scenes: int | None = None):
    return {trial.key for trial in CURRENT.trials(task, split, scenes)}


def test_complete_tasks_can_enter():
    result = a_result(CURRENT)
    whole = admission(result, keys())
    assert whole.can_enter and not whole.absent_tasks
    assert str(whole) == "This result can enter the leaderboard."
    one = admission(result, keys("knife"))
    assert one.can_enter and one.absent_tasks == tuple(t for t in CURRENT.tasks if t != "knife")
    assert "others have to cover hammer" in str(one)


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        (keys(scenes=5), f"5 of 20 scenes of each split of {', '.join(CURRENT.tasks)}"),
        (keys("knife", scenes=1) | keys("hammer"), "1 of 20 scenes of each split of knife"),
        (
            keys("knife", "train"),
            "0 of 20 scenes of unseen_pairs, unseen_tools and unseen_objects of knife",
        ),
        (
            keys("knife", scenes=19) | keys("wrench", scenes=7),
            "19 of 20 scenes of each split of knife; 7 of 20 scenes of each split of wrench",
        ),
    ],
)
def test_parts_of_tasks_cannot_enter(present, missing):
    assert missing_scenes(CURRENT, present) == missing
    entry = admission(a_result(CURRENT), present)
    assert not entry.can_enter
    assert f"cannot enter the leaderboard: it has only {missing}, and" in str(entry)


def test_results_that_depend_on_the_order_of_episodes_cannot_enter():
    result = a_result(CURRENT, order_dependence="It draws.")
    assert not admission(result, keys()).can_enter
    assert "It draws." in [*objections(result, CURRENT)]


def test_results_of_another_robot_cannot_enter_and_do_not_compare():
    result = a_result(CURRENT)
    described = {"robot": "ur5e", **result.policy.env_kwargs}
    policy = result.policy.model_copy(update={"env_kwargs": described})
    other = result.model_copy(update={"policy": policy})
    assert policy.label == f"{policy.name} (ur5e)"
    assert "its robot is 'ur5e', but the leaderboard's" in str(admission(other, keys()))
    (reason,) = objections(other, CURRENT)
    assert "robot is 'ur5e'" in reason
    with pytest.raises(ResultError, match="on different robots"):
        require_comparable(result, other)


@pytest.mark.parametrize("robot", ["ur5", "/etc/passwd", 5])
def test_a_result_names_a_robot_of_the_package(robot):
    facts = a_result(CURRENT).policy.model_dump() | {"env_kwargs": {"robot": robot}}
    with pytest.raises(ValueError, match=r"robot.*panda, ur5e"):
        PolicyProvenance.model_validate(facts)


def test_results_of_another_protocol_cannot_enter():
    entry = admission(a_result(SMALL), {trial.key for trial in TRIALS})
    assert not entry.can_enter
    assert "it follows 'small v1'" in str(entry) and CURRENT.title in str(entry)
    assert missing_scenes(SMALL, {trial.key for trial in TRIALS}) == ""


def test_results_of_a_release_of_drake_that_has_no_row_cannot_enter():
    for packages in ({"drake": "1.50.0"}, {}):
        entry = admission(a_result(CURRENT, packages=packages), keys())
        assert not entry.can_enter
        assert packages.get("drake", "does not name its release") in str(entry)
        assert "1.51.1" in str(entry) and "reproducibility.md" in str(entry)
    for release in RELEASES:
        assert [*objections(a_result(CURRENT, packages={"drake": release}), CURRENT)] == []


def test_releases_compare_as_the_measured_table_says():
    table = ROOT / "docs" / "results" / "tables" / "drake_releases.md"
    _, _, *rows = table.read_text().splitlines()
    measured: dict[str, set[str]] = {}
    for cells in ([cell.strip() for cell in row.strip("|").split("|")] for row in rows):
        release, _, _, episodes, same_bits, same_outcome, *_ = cells
        if episodes == same_bits:
            measured.setdefault(release, set()).add("bits")
        elif episodes == same_outcome:
            measured.setdefault(release, set()).add("ends")
    assert {release: {same} for release, same in RELEASES.items()} == measured
