"""The program: python -m fleet_tools.assets generate."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.processes import run_python

from fleet_tools.assets.__main__ import main
from fleet_tools.assets.families import family_names, find_family
from fleet_tools.assets.generation import random_members


def reports(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int = 0) -> Any:
    """Returns the report of each model by its name."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    return {report["name"]: report for report in json.loads(capsys.readouterr().out)["models"]}


def test_regeneration_equals_the_shipped_folders(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0  # the command `generate` may be omitted
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == sum(len(find_family(family).catalogue) for family in family_names())
    assert all(line.startswith("unchanged") for line in lines)


def test_write_then_check_then_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "--family", "nail", "--output", str(tmp_path)]
    assert main([*arguments, "--check"]) == 1
    assert "6 of 6 models differ" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # --check writes nothing
    assert {r["state"] for r in reports(capsys, arguments).values()} == {"written"}
    assert {r["state"] for r in reports(capsys, arguments).values()} == {"unchanged"}

    (tmp_path / "objects/nail/round_nail/meshes/head.obj").write_text("")
    (tmp_path / "objects/nail/round_nail/meshes/left_over.obj").write_text("")
    checked = reports(capsys, [*arguments, "--check"], code=1)
    assert checked["round_nail"]["changed"] == ["meshes/head.obj", "meshes/left_over.obj"]
    assert checked["dowel_pin"]["state"] == "unchanged"


def test_random_members_depend_only_on_seed_and_index(tmp_path: Path) -> None:
    assert main(["--count", "2", "--seed", "7", "--output", str(tmp_path)]) == 0
    assert sorted(p.name for p in (tmp_path / "tools/hammer").iterdir()) == [
        "hammer_000",
        "hammer_001",
    ]
    few, many = (random_members("hammer", count, 7) for count in (2, 3))
    assert few == {name: many[name] for name in few}
    assert random_members("hammer", 1, 7) != random_members("hammer", 1, 8)


def test_a_folder_made_by_hand_is_left_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tools/hammer/claw/model.sdf"
    file.parent.mkdir(parents=True)
    file.write_text("by hand")
    assert main(["--family", "hammer", "--output", str(tmp_path)]) == 1
    assert file.read_text() == "by hand" and "claw" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "hamer"], "'hamer'.*'hammer'"),
        (["--count", "3"], "--count 3 needs --output"),
        (["--count", "0", "--output", "x"], "--count: .*greater than or equal to 1"),
        (["--seed", "3"], "--seed 3.*--count"),
        (["--count", "1", "--seed", "-1", "--output", "x"], "--seed: .*greater"),
        (["--output", __file__], "is a file"),
        (["generat"], "generat.*generate, import"),
    ],
)
def test_bad_usage_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert re.search(message, error), error


def test_help_loads_no_heavy_library() -> None:
    code = """
import contextlib, io, json, sys
from fleet_tools.assets.__main__ import main
texts = []
for command in [], ["generate"], ["import"], ["check"]:
    out = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):
        main([*command, "--help"])
    texts.append(out.getvalue())
heavy = {"pydrake", "trimesh", "scipy", "torch", "coacd", "manifold3d"} & set(sys.modules)
print(json.dumps([texts, sorted(heavy)]))
"""
    (program, generate, import_, check), heavy = run_python(code)
    assert "{generate,import,check}" in program
    assert "--family" in generate and "--keypoint" in import_ and "--scenes" in check
    assert heavy == []
