"""Protocols over task files: known by what the files say, and hostile where others wrote them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.evaluated import FIRST, SMALL, a_result, an_episode
from support.processes import ROOT
from support.submitted import write_entry

from fleet_tools.config.tasks import load_task, task_path
from fleet_tools.config.yaml_text import MAX_CHARACTERS
from fleet_tools.envs.contact_metrics import ContactMetrics, Load
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.errors import ConfigError, FleetToolsError, ResultError, UnknownNameError
from fleet_tools.evaluation.admission import admission
from fleet_tools.evaluation.config import PROTOCOL, EvaluationConfig
from fleet_tools.evaluation.protocol import (
    Protocol,
    protocol_digest,
    task_digests,
)
from fleet_tools.evaluation.protocol_file import load_levels, load_protocol, with_task
from fleet_tools.evaluation.result import Result
from fleet_tools.evaluation.result_folder import RESULT, EvaluationWriter, load_evaluation
from fleet_tools.evaluation.run import describe
from fleet_tools.evaluation.scores import score
from fleet_tools.evaluation.trial import make_trials, present_env
from fleet_tools.leaderboard.checks import read_submitted
from fleet_tools.policies.sources import find_policy
from fleet_tools.utils.imports import TRUSTED_MODULES

BASKET = ROOT / "examples" / "basket"
PRESENT = load_protocol(PROTOCOL)
SPLITS = {"train": {"scenes": 3, "first_seed": FIRST}}

Tamper = Callable[[dict[str, Any]], object]


@pytest.fixture(name="own")
def _own(tmp_path: Path) -> Path:
    """A protocol over a hammer's task and a task of one's own, in a folder with both."""
    return write_protocol(tmp_path / "mine")


def write_protocol(folder: Path, tasks: tuple[str, ...] = ("hammer", "basket/task.yaml")) -> Path:
    shutil.copytree(BASKET, folder / "basket")
    content = {"name": "own", "version": 1, "description": "Mine.", "splits": SPLITS}
    path = folder / "protocol.yaml"
    path.write_text(yaml.safe_dump({**content, "tasks": list(tasks)}))
    return path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def digest(protocol: Protocol) -> str:
    return protocol_digest(protocol, task_digests(protocol))


def store(result: Result, folder: Path) -> Path:
    """Stores a result without episodes."""
    with EvaluationWriter(folder, result) as writer:
        writer.finish()
    return folder


def stored(protocol: Protocol, folder: Path) -> Path:
    return store(a_result(protocol), folder)


def test_a_protocol_names_its_tasks_and_holds_the_files_of_ones_own(own):
    protocol = load_protocol(str(own))
    assert protocol.tasks == ("hammer", "basket")
    assert {trial.task for trial in protocol.trials()} == {"hammer", "basket"}
    assert list(protocol.task_files) == ["basket"]
    assert protocol.load_task("basket") == load_task(str(own.parent / "basket" / "task.yaml"))
    assert protocol.load_task("hammer") == load_task("hammer")
    assert Protocol.model_validate_json(protocol.to_json()) == protocol


def test_the_digest_depends_on_what_task_files_say_and_not_on_where_they_lie(own, tmp_path):
    first = digest(load_protocol(str(own)))
    elsewhere = write_protocol(tmp_path / "a" / "b")
    assert digest(load_protocol(str(elsewhere))) == first
    file = elsewhere.parent / "basket" / "task.yaml"
    file.rename(file.with_name("lift.yml"))
    edit(elsewhere, "basket/task.yaml", str(file.with_name("lift.yml")))
    edit(file.with_name("lift.yml"), "name: basket", "# a comment\nname: basket")
    assert digest(load_protocol(str(elsewhere))) == first
    edit(file.with_name("lift.yml"), "success_duration_s: 0.5", "success_duration_s: 0.3")
    assert digest(load_protocol(str(elsewhere))) != first


def test_a_result_is_judged_by_the_limits_of_its_own_task_file(own, tmp_path):
    contact_metrics, found = ContactMetrics(object=Load(peak_N=5, contact_s=1), time_s=1), []
    first = digest(load_protocol(str(own)))
    for limits in (
        "",
        *(f"{{object_peak_N: {n}, table_peak_N: 1, table_work_J: 1}}" for n in "46"),
    ):
        text = (BASKET / "task.yaml").read_text()
        (own.parent / "basket" / "task.yaml").write_text(
            f"{text}\n{limits and 'gentle: ' + limits}"
        )
        # In the same folder: the episodes are the same, and their evaluation may go on.
        result = load_evaluation(stored(load_protocol(str(own)), tmp_path / "result")).result
        assert result.protocol_digest == first
        episodes = [
            an_episode(trial, SUCCESS).model_copy(update={"contact_metrics": contact_metrics})
            for trial in result.protocol.trials("basket")
        ]
        gentle = score(result.protocol, episodes).total.gentle
        found.append(gentle and gentle.rate)
    assert found == [None, 0.0, 1.0]


def test_the_path_of_a_file_of_the_package_is_its_task(tmp_path):
    path = write_protocol(tmp_path / "own", ("hammer",))
    by_name = load_protocol(str(path))
    edit(path, "- hammer", f"- {task_path('hammer')}")
    assert load_protocol(str(path)) == by_name


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (["basket"], "Unknown task of the package: 'basket'.*relative to the protocol's"),
        (["nowhere.yaml"], "relative to the protocol's"),
        (["basket/task.yaml", "basket/task.yaml"], "a task is given twice"),
        (["basket/task.yaml", "./basket/task.yaml"], "a task is given twice"),
        (["claimed.yaml"], "has the name of a task of the package, 'hammer'"),
        (["protocol.yaml"], "not a valid TaskConfig"),
    ],
)
def test_tasks_that_are_none_or_have_the_names_of_others_are_refused(own, tasks, message):
    easier = task_path("hammer").read_text()
    (own.parent / "claimed.yaml").write_text(easier)
    content = yaml.safe_load(own.read_text()) | {"tasks": tasks}
    own.write_text(yaml.safe_dump(content))
    with pytest.raises((UnknownNameError, ConfigError), match=message):
        load_protocol(str(own))


def test_the_file_of_a_protocol_holds_no_task_files(own):
    content = load_protocol(str(own)).model_dump(mode="json")
    own.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match="task_files"):
        load_protocol(str(own))


# --- evaluate --task ------------------------------------------------------------------------


def test_a_task_file_alone_has_the_scenes_of_the_present_protocol():
    file = str(BASKET / "task.yaml")
    protocol, name = with_task(PRESENT, file)
    assert (name, protocol.title, protocol.tasks) == ("basket", "basket v1", ("basket",))
    assert protocol.splits == {"train": PRESENT.splits["train"]}  # it holds nothing out
    assert load_protocol(file) == protocol
    with pytest.raises(ConfigError, match="none of the splits of 'small v1'"):
        only = SMALL.splits["unseen_tools"]
        with_task(SMALL.model_copy(update={"splits": {"unseen_tools": only}}), file)


def test_a_task_file_has_the_levels_of_the_present_protocol():
    own = load_levels(str(BASKET / "task.yaml"))
    assert own.keys() == load_levels(PROTOCOL).keys()
    for level in own.values():  # as the page of a leaderboard of the task counts them
        assert {trial.task for trial in level.trials()} == {"basket"}


def test_a_task_that_holds_models_out_has_splits_for_them(tmp_path):
    file = write_protocol(tmp_path / "own").parent / "basket" / "task.yaml"
    held_out = "held_out: {tools: [crook], pairs: [[gaff, trug]]}"
    edit(file, "assets: .", f"assets: .\n{held_out}")
    assert list(load_protocol(str(file)).splits) == ["train", "unseen_pairs", "unseen_tools"]


def test_task_selects_by_name_or_file_as_tool_does_by_name(own):
    def requested(**options: Any) -> set[tuple[str, str, int]]:
        config = EvaluationConfig(policy="zero", protocol=str(own), **options)
        return {trial.key for trial in describe(config)[2]}

    basket = {("basket", "train", k) for k in range(2)}
    for given in ("basket", str(own.parent / "basket" / "task.yaml"), str(BASKET / "task.yaml")):
        assert requested(task=given, split="train", scenes=2) == basket
    assert requested(task="hammer") == requested(tool="hammer")
    assert requested(task=str(task_path("hammer"))) == requested(tool="hammer")
    with pytest.raises(UnknownNameError, match="of the protocol 'own v1': 'wrench'"):
        requested(task="wrench")
    with pytest.raises(UnknownNameError, match="given by the path"):
        requested(task="nowhere.yaml")
    with pytest.raises(ValueError, match="either --tool or --task"):
        EvaluationConfig(policy="zero", tool="hammer", task="hammer")


# --- Results of others ----------------------------------------------------------------------


def test_a_result_alone_gives_its_protocol(own, tmp_path):
    protocol = load_protocol(str(own))
    folder = stored(protocol, tmp_path / "result")
    own.unlink()
    (own.parent / "basket" / "task.yaml").unlink()
    assert load_protocol(str(folder)) == protocol
    env = load_evaluation(folder).result.protocol.make_env("basket")
    task = load_task(str(BASKET / "task.yaml"))
    assert env.task == env.robot.fill(task).model_copy(
        update={"assets": str(own.parent / "basket")}
    )
    (own.parent / "basket").rename(tmp_path / "moved")
    assert load_evaluation(folder).result.protocol == protocol
    with pytest.raises(ConfigError, match=f"were in {own.parent / 'basket'}, which does not exist"):
        protocol.make_env("basket")


def test_a_result_of_former_task_files_cannot_be_followed(tmp_path):
    digests = {**task_digests(SMALL), "hammer": "0" * 16}
    other = a_result(SMALL, task_digests=digests, protocol_digest=protocol_digest(SMALL, digests))
    store(other, tmp_path / "result")
    with pytest.raises(ResultError, match="the task files here have changed"):
        load_protocol(str(tmp_path / "result"))


def _files(result: dict[str, Any]) -> dict[str, Any]:
    return result["protocol"]["task_files"]


def _basket(result: dict[str, Any]) -> dict[str, Any]:
    return _files(result)["basket"]


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (
            lambda r: _basket(r).update(
                text=_basket(r)["text"].replace("duration_s: 0.5", "duration_s: 0.1")
            ),
            "does not match its text",
        ),
        (lambda r: _basket(r).update(content_digest="0" * 16), "does not match its text"),
        (lambda r: r["task_digests"].update(basket="0" * 16), "is not the hash"),
        (
            lambda r: _files(r).update(hammer=_files(r).pop("basket")),
            "is not one of the protocol's tasks",
        ),
        (lambda r: r["protocol"]["tasks"].remove("basket"), "is not one of the protocol's tasks"),
        (lambda r: _basket(r).update(text="name: [" * 9), "basket"),
        (lambda r: _basket(r).update(text="# " * MAX_CHARACTERS), "at most 500,000"),
        (lambda r: _basket(r).update(text="a: &a [1]\nb: &b [*a, *a]\n"), "basket"),
        (lambda r: r["protocol"].update(task_files=[]), "task_files"),
    ],
)
def test_a_task_file_that_lies_is_refused(own, tmp_path, tamper, message):
    folder = stored(load_protocol(str(own)), tmp_path / "result")
    content = json.loads((folder / RESULT).read_text())
    tamper(content)
    (folder / RESULT).write_text(json.dumps(content))
    for read in (load_evaluation, lambda path: load_protocol(str(path))):
        with pytest.raises(ResultError, match=message):
            read(folder)


def test_a_path_as_the_name_of_a_task_leads_to_no_file(own, tmp_path):
    file = str(own.parent / "basket" / "task.yaml")
    strange = SMALL.model_copy(update={"tasks": (file,)})
    digests = {file: load_task(file).digest()}
    changes = {"protocol_digest": protocol_digest(strange, digests), "task_digests": digests}
    result = a_result().model_copy(update=changes | {"protocol": strange})
    store(result, tmp_path / "result")
    for use in (
        lambda: load_protocol(str(tmp_path / "result")),
        lambda: strange.make_env(file),
        lambda: strange.load_task(file),
        lambda: make_trials(result, find_policy("zero")),
    ):
        with pytest.raises(FleetToolsError, match="Unknown task of the package"):
            use()


def test_functions_of_a_strange_result_run_only_if_their_module_is_trusted(
    own, tmp_path, monkeypatch
):
    module = tmp_path / "modules" / "strange_predicates.py"
    module.parent.mkdir()
    module.write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
        "def lifted(initial, now):\n    return True\n"
    )
    monkeypatch.syspath_prepend(module.parent)
    file = own.parent / "basket" / "task.yaml"
    line = "  - {type: function, function: 'strange_predicates:lifted'}\n"
    edit(file, "success_duration_s:", line + "success_duration_s:")
    protocol = load_protocol(str(own))
    folder = stored(protocol, tmp_path / "result")
    result = load_evaluation(folder).result
    for use in (
        lambda: load_protocol(str(folder)),
        lambda: result.protocol.make_env("basket"),
        lambda: present_env(result.protocol)("basket"),
    ):
        with pytest.raises(ResultError, match=f"{TRUSTED_MODULES}=strange_predicates"):
            use()
    assert not module.with_name("ran").exists()
    monkeypatch.setenv(TRUSTED_MODULES, "strange_predicates")
    load_protocol(str(folder)).make_env("basket")
    assert module.with_name("ran").exists()


# --- Cheats ---------------------------------------------------------------------------------


def test_a_result_of_an_easier_task_under_the_names_of_the_package_cannot_enter(tmp_path):
    """The protocol's name, version and tasks are the leaderboard's, and the task file is not."""
    hammer = task_path("hammer").read_text()
    easy = tmp_path / "easy.yaml"
    easy.write_text(hammer.replace("time_limit_s: 10", "time_limit_s: 100"))
    text, content = easy.read_text(), load_task(str(easy))
    file = {"name": "hammer", "content_digest": content.digest(), "text": text, "folder": None}
    protocol = Protocol(**{**PRESENT.model_dump(), "task_files": {"hammer": file}})
    assert digest(protocol) != digest(PRESENT)
    assert not admission(a_result(protocol), {t.key for t in protocol.trials()}).can_enter
    entry = write_entry(tmp_path, "somebody")
    folder = entry.folder / "results" / "nominal"
    with EvaluationWriter(folder, a_result(protocol)) as writer:
        writer.append(an_episode(protocol.trials()[0]))
        writer.finish()
    with pytest.raises(ResultError, match="with the current task files"):
        read_submitted(entry, folder, [PRESENT])
    true = {**task_digests(protocol), "hammer": task_digests(PRESENT)["hammer"]}
    with pytest.raises(ValueError, match="a hash of 'hammer' that does not match its file"):
        a_result(protocol, task_digests=true, protocol_digest=digest(PRESENT))
