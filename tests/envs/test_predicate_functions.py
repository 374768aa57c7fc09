"""Predicates that are functions of a user's own: found early, judged, run for nobody else."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools import collect, replay
from fleet_tools.config.tasks import load_task, task_path
from fleet_tools.dataset import Dataset
from fleet_tools.envs.predicate_functions import load_bound_task
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.success import Verdict, judge
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ConfigError, DatasetError, PredicateError
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.robot.arm import load_robot
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.storage.provenance import read_task_file
from fleet_tools.utils.imports import TRUSTED_MODULES, is_trusted

MODULE = "predicates_of_a_test"
CODE = """
from pathlib import Path
from fleet_tools.envs.success import Verdict

Path(__file__).with_name("ran").touch()

def nail_in(initial, now, depth_m):
    depth = now.object_joints["slide"] - initial.object_joints["slide"]
    return Verdict(bool(depth >= depth_m), float(min(max(depth / depth_m, 0), 1)))

def deep(initial, now):
    return now.object_joints["slide"] - initial.object_joints["slide"] >= 0.02

def returned(initial, now, value=None):
    return eval(value)

number = 3
"""

WriteTask = Callable[..., Path]


@pytest.fixture(name="module")
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that appears when a user's own module is imported."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{MODULE}.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.delenv(TRUSTED_MODULES, raising=False)
    return tmp_path / "modules" / "ran"


@pytest.fixture(name="write")
def _write(tmp_path: Path, module: Path) -> WriteTask:
    """Writes a task file, the hammer's with one more predicate, a function."""

    def write(function: str, where: str = "success", **kwargs: Any) -> Path:
        task = yaml.safe_load(task_path("hammer").read_text())
        del task["held_out"]
        predicate = {"type": "function", "function": f"{MODULE}:{function}", "kwargs": kwargs}
        if where == "success":
            task["success"].append(predicate)
        else:
            task["expert"]["after"][0]["expect"] = [predicate]
        file = tmp_path / "own.yaml"
        file.write_text(yaml.safe_dump(task | {"name": "own"}))
        return file

    return write


def line_of(file: Path, part: str) -> int:
    (line,) = [i for i, text in enumerate(file.read_text().splitlines(), 1) if part in text]
    return line


# --- Judging --------------------------------------------------------------------------------


def test_a_function_judges_as_the_predicate_that_it_restates(write):
    env = EnvSpec.of(
        task=str(write("nail_in", depth_m=0.02)), tool="claw", object="round_nail"
    ).make_tool_use()
    verdicts = []
    expert = ExpertPolicy(env)
    observation, info = env.reset(seed=0)
    expert.reset()
    while info["outcome"] == "running":
        observation, *_, info = env.step(expert.act(observation))
        verdicts.append(env.verdicts())
    assert info["outcome"] == "success"
    own = [next(v for k, v in each.items() if k.endswith("function")) for each in verdicts]
    assert own == [each["success[0] joint_displacement"] for each in verdicts]
    assert own[-1].progress == 1.0


RETURNED = {
    "True": Verdict(True, 1.0),
    "__import__('numpy').False_": Verdict(False, 0.0),
    "Verdict(False, 0.25)": Verdict(False, 0.25),
}


@pytest.mark.parametrize("value", RETURNED)
def test_what_a_function_may_return(write, value):
    env = EnvSpec.of(task=str(write("returned", value=value))).make_tool_use()
    env.reset(seed=0)
    (verdict,) = [each for name, each in env.verdicts().items() if name.endswith("function")]
    assert verdict == RETURNED[value]
    assert type(verdict.holds) is bool and type(verdict.progress) is float


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("None", "returned None; expected a bool"),
        ("0.7", "returned 0.7; expected a bool"),
        ("Verdict(False, 1.5)", "returned Verdict.* progress in"),
        ("Verdict(False, float('nan'))", "returned Verdict.* progress in"),
        ("Verdict(False, 'half')", "returned Verdict.* progress in"),
        ("Verdict(1, 1.0)", "returned Verdict.* progress in"),
        ("1 / 0", r"raised at <string>:1: ZeroDivisionError: division by zero"),
        ("exit()", "raised at .*: SystemExit"),
        ("now.object_joints['slid']", "raised at <string>:1: KeyError: 'slid'"),
    ],
)
def test_an_error_of_a_function_names_its_place(write, value, reason):
    file = write("returned", value=value)
    env = EnvSpec.of(task=str(file)).make_tool_use()
    line = line_of(file, "function:")
    place = rf"own\.yaml, line {line}: success\.\d: {MODULE}:returned "
    with pytest.raises(PredicateError, match=place + reason):
        env.reset(seed=0)


def test_an_error_of_a_function_is_no_failure_of_the_policy(write):
    late = "now.time < 0.3 and 1 / 0 if now.time else False"
    env = EnvSpec.of(task=str(write("returned", value=late))).make_tool_use()
    with pytest.raises(PredicateError):
        rollout(env, ExpertPolicy(env), seed=0)


# --- Finding --------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["success", "expert"])
@pytest.mark.parametrize(
    ("function", "kwargs", "key", "reason"),
    [
        ("nail_inn", {}, "function", "Did you mean 'nail_in'"),
        ("number", {}, "function", "Unknown predicate in predicates_of_a_test: 'number'"),
        ("nail_in", {}, "kwargs", "missing a required argument: 'depth_m'"),
        ("nail_in", {"depth": 1}, "kwargs", "depth_m"),
        ("deep", {"depth_m": 1}, "kwargs", "unexpected keyword argument 'depth_m'"),
    ],
)
def test_a_wrong_function_is_refused_when_the_environment_is_made(
    write, where, function, kwargs, key, reason
):
    file = write(function, where, **kwargs)
    load_task(str(file))  # the file is well-formed
    place = r"success\.\d" if where == "success" else r"expert\.after\.0\.expect\.0"
    line = line_of(file, f"{key}:")
    with pytest.raises(ConfigError, match=rf"own\.yaml, line {line}: {place}\.{key}: .*{reason}"):
        EnvSpec.of(task=str(file)).make_tool_use()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, "ModuleNotFoundError"),
        ("import no_such_library", "no_such_library"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def deep(:", "SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused(write, module, code, reason):
    file = write("deep")
    if code is None:
        (module.parent / f"{MODULE}.py").unlink()
    else:
        (module.parent / f"{MODULE}.py").write_text(code)
    with pytest.raises(ConfigError, match=rf"own\.yaml, line \d+: .*cannot be imported.*{reason}"):
        EnvSpec.of(task=str(file)).make_tool_use()


def test_reading_a_task_file_runs_no_code(write, module):
    task = load_task(str(write("deep")))
    spec = EnvSpec.of(str(write("deep")))
    assert not module.exists()
    with pytest.raises(PredicateError, match="has not been imported"):
        state: Any = None
        judge(task.success[-1], state, state)
    spec.make()
    assert module.exists()


def test_a_bound_task_is_the_same_content(write):
    file = write("nail_in", depth_m=0.02)
    task = load_task(str(file))
    for either in (str(file), read_task_file(str(file))):
        bound = load_bound_task(either)
        assert (bound.to_json(), bound.digest()) == (task.to_json(), task.digest())


# --- Trust ----------------------------------------------------------------------------------


@pytest.fixture(name="collected")
def _collected(write: WriteTask, module: Path, tmp_path: Path) -> Path:
    """A dataset of one's own, as another user finds it, who has such a module, too."""
    task, folder = write("nail_in", depth_m=0.02), tmp_path / "data"
    options = ["--episodes", "1", "--workers", "0", "--quiet", "--output", str(folder)]
    assert collect.main(["--task", str(task), *options]) == 0
    assert module.exists()
    forget(module)
    return folder


def forget(module: Path) -> None:
    """Takes back that the module was imported."""
    module.unlink()
    del sys.modules[MODULE]


@pytest.mark.parametrize("kept", [True, False])
def test_a_datasets_functions_run_only_if_their_module_is_trusted(
    collected, module, tmp_path, monkeypatch, capsys, kept
):
    if not kept:  # then the text in the dataset counts
        (tmp_path / "own.yaml").unlink()
    arguments = [str(collected), "--workers", "0", "--quiet"]
    for trusted in ("", "predicates", f"{MODULE}.inner", "os, sys"):
        monkeypatch.setenv(TRUSTED_MODULES, trusted)
        assert replay.main(arguments) == 2
        message = capsys.readouterr().err
        assert f"names {MODULE}:nail_in, and their code" in message
        assert f"{TRUSTED_MODULES}={MODULE}" in message
        assert not module.exists() and MODULE not in sys.modules
    monkeypatch.setenv(TRUSTED_MODULES, f"another, {MODULE}")
    assert replay.main(arguments) == 0
    assert module.exists()


def test_the_text_in_a_dataset_is_judged_and_used_whatever_file_it_names(collected, module):
    header = Dataset(collected).header
    harmless = header.task.model_copy(update={"text": task_path("hammer").read_text()})
    forged = header.model_copy(update={"task": harmless})
    assert unwrap(forged.make_env()).task == load_robot().fill(load_task("hammer"))
    with pytest.raises(DatasetError, match=f"names {MODULE}:nail_in"):
        header.make_env()
    assert not module.exists()


@given(st.lists(st.sampled_from(["a", "b", "a.b", "ab", "a.b.c"]), max_size=3))
def test_a_trusted_module_stands_for_those_inside_it(trusted):
    names = ["a", "b", "a.b", "ab", "a.b.c", "b.a"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TRUSTED_MODULES, ", ".join(trusted))
        untrusted = [name for name in names if not is_trusted(f"{name}:f")]
    parents = {name: {".".join(name.split(".")[:k]) for k in (1, 2, 3)} for name in names}
    assert untrusted == [name for name in names if not parents[name] & set(trusted)]
