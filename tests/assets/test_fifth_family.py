"""A family more is files more: none of the package's own is edited.

The families are those of `fifth_family/`, a tool and an object whose joint is a screw, and their
task is that of `new-task`, in a copy of the package.
"""

import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydrake.math import RigidTransform, RotationMatrix
from support.bench import Bench
from support.processes import ROOT, run_python

from fleet_tools.assets import families
from fleet_tools.assets.model_folder import write_model
from fleet_tools.assets.task_scaffold import TASK
from fleet_tools.errors import ConfigError
from fleet_tools.studio.checking.program import load

FILES = Path(__file__).parent / "fifth_family"


def task() -> str:
    """Returns the task file of `new-task` for the fifth family."""
    text = TASK.format(name="push_screw", tool_family="push_rod", object_family="steep_screw")
    changes = {
        "assets: .": "#",
        "press: {uniform: [10, 30]}": "drive: {uniform: [0.05, 0.1]}",
        "joint: press": "joint: drive",
        "at_least: 0.020": "at_least: 2.1",
        "at_least: 0.018": "at_least: 1.9",
        "at_least: 0.005": "at_least: 0.5",
        "[cap, base]": "[head, base]",
        "object: cap": "object: head",
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


USE = """
import contextlib, io, json
import gymnasium
import fleet_tools
from cheats import CHEATS, LOOSENED
from fleet_tools.assets.__main__ import main
from fleet_tools.assets.families import family_names, meanings_of
from fleet_tools.sim.catalog import model_names

def report(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*arguments, "--json"])
    return {"code": code, **json.loads(out.getvalue())}

families = ("push_rod", "steep_screw")
generated = [report("generate", "--family", family) for family in families]
folders = [model["folder"] for each in generated for model in each["models"]]
checks = [report("check", folder, "--scenes", "1") for folder in folders]
env = gymnasium.make("FleetTools/PushScrew-v0")
outcome = fleet_tools.rollout(env, fleet_tools.ExpertPolicy(env), seed=0).outcome
print(json.dumps({
    "families": [*family_names()],
    "root": fleet_tools.__file__,
    "states": [model["state"] for each in generated for model in each["models"]],
    "fine": [each["fine"] for each in checks],
    "names": [[measured["name"] for measured in each["measurements"]] for each in checks],
    "tools": model_names("tool", "push_rod"),
    "outcome": outcome,
    "derived": meanings_of("push_rod", ["foot", "back"])["back"].derived.words,
    "cheats": [*CHEATS["push_screw"]],
    "loosened": LOOSENED["push_screw"],
}))
"""


@pytest.mark.slow  # of a family among those of the package: below
def test_a_family_is_added_by_adding_files(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("baselines", "__main__.pyc")
    shutil.copytree(ROOT / "fleet_tools", tmp_path / "fleet_tools", ignore=ignored)
    shutil.copytree(ROOT / "benchmarks" / "cheats", tmp_path / "cheats")
    package = tmp_path / "fleet_tools"
    before = {path for path in package.rglob("*") if path.is_file()}
    shutil.copytree(FILES / "cheats", tmp_path / "cheats", dirs_exist_ok=True)
    shutil.copytree(FILES / "assets", package / "assets", dirs_exist_ok=True)
    (package / "task_configs" / "push_screw.yaml").write_text(task())
    added = {path.name for path in package.rglob("*") if path.is_file() and path not in before}
    assert {name for name in added if not name.endswith(".pyc")} == {
        "push_rod.py", "steep_screw.py", "push_screw.yaml"
    }  # fmt: skip

    found = run_python(USE, PYTHONPATH=str(tmp_path), PYTHONSAFEPATH="1")
    assert Path(found["root"]).is_relative_to(tmp_path)
    assert {"push_rod", "steep_screw", "hammer"} <= {*found["families"]}
    assert set(found["states"]) == {"written"}
    assert found["fine"] == [True] * 3
    assert "distance from the surface" in found["names"][0]
    assert found["tools"] == ["long", "short"]
    assert found["outcome"] == "success"
    assert found["derived"] == "straight behind foot"
    assert (found["cheats"], found["loosened"]) == (["rest"], 1.0)


def test_a_module_that_declares_no_family_is_named(tmp_path, monkeypatch):
    (tmp_path / "forgotten.py").touch()
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    assert "forgotten" in families.family_names()
    with pytest.raises(ConfigError, match=r"forgotten\.py has no FAMILY"):
        families.find_family("forgotten")


def test_a_screw_advances_by_its_lead_within_its_limits_and_its_brake_holds(tmp_path):
    screw = runpy.run_path(str(FILES / "assets/families/steep_screw.py"))
    model = screw["FAMILY"].member("plain")
    bench, (drive,) = Bench(model), model.joints
    context = bench.plant.CreateDefaultContext()
    bench.plant.SetPositions(context, [np.pi])
    X_WS = bench.plant.GetBodyByName("screw", bench.instance).EvalPoseInWorld(context)
    expected = RigidTransform(
        RotationMatrix.MakeZRotation(-np.pi), [0, 0, screw["HEIGHT"] - drive.lead / 2]
    )
    assert X_WS.IsNearlyEqualTo(expected, 1e-9)
    assert abs(bench.press(0.9 * drive.resistance, 0.2)) < 1e-2
    assert bench.press(2 * drive.resistance, 0.2) > 0.5

    write_model(model, tmp_path / "plain")
    plant, _ = load(tmp_path / "plain")  # as a world does
    limits = plant.GetJointByName("drive").position_upper_limits()
    assert limits == pytest.approx([drive.limits[1]])
    text = (tmp_path / "plain/model.sdf").read_text()
    (tmp_path / "plain/model.sdf").write_text(text.replace("<lower>0<", "<lower>9<"))
    with pytest.raises(ConfigError, match="screw joint drive has the limits 9, 2"):
        load(tmp_path / "plain")
    for change in ({"lead": 0.0}, {"kind": "revolute"}):
        with pytest.raises(ValueError, match="a lead for screw joints only"):
            replace(drive, **change)
