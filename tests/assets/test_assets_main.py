"""The program: python -m fleet_tools.assets."""

import json
import re
import subprocess
import sys

import pytest

from fleet_tools.assets.__main__ import main, random_members
from fleet_tools.assets.families import FAMILIES, family_module


def test_regeneration_equals_what_ships(capsys):
    assert main(["--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == sum(len(family_module(family).CATALOGUE) for family in FAMILIES)
    assert all(line.startswith("unchanged") for line in lines)


def test_write_then_check_then_damage(tmp_path, capsys):
    arguments = ["--family", "nail", "--output", str(tmp_path), "--json"]
    assert main([*arguments, "--check"]) == 1
    assert not list(tmp_path.iterdir())  # --check writes nothing
    assert main(arguments) == 0
    capsys.readouterr()
    assert main(arguments) == 0
    assert {report["state"] for report in json.loads(capsys.readouterr().out)} == {"unchanged"}

    (tmp_path / "objects/nail/round_nail/meshes/head.obj").write_text("")
    (tmp_path / "objects/nail/round_nail/meshes/left_over.obj").write_text("")
    assert main([*arguments, "--check"]) == 1
    reports = {report["name"]: report for report in json.loads(capsys.readouterr().out)}
    assert reports["round_nail"]["changed"] == ["meshes/head.obj", "meshes/left_over.obj"]
    assert reports["dowel_pin"]["state"] == "unchanged"


def test_random_members_depend_on_seed_and_number_alone(tmp_path):
    assert main(["--count", "2", "--seed", "7", "--output", str(tmp_path)]) == 0
    assert sorted(p.name for p in (tmp_path / "tools/hammer").iterdir()) == [
        "hammer_000",
        "hammer_001",
    ]
    few, many = (random_members("hammer", count, 7) for count in (2, 3))
    assert few == {name: many[name] for name in few}
    assert random_members("hammer", 1, 7) != random_members("hammer", 1, 8)


def test_a_folder_made_by_hand_is_left_alone(tmp_path, capsys):
    mine = tmp_path / "tools/hammer/claw/model.sdf"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert main(["--family", "hammer", "--output", str(tmp_path)]) == 1
    assert mine.read_text() == "mine" and "claw" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--family", "hamer"], "'hamer'.*'hammer'"),
        (["--count", "3"], "--output"),
        (["--count", "0", "--output", "x"], "--count 0"),
        (["--seed", "3"], "--seed 3.*--count"),
        (["--count", "1", "--seed", "-1", "--output", "x"], "--seed -1"),
        (["--output", __file__], "is a file"),
    ],
)
def test_bad_usage_is_named(arguments, named, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    error = capsys.readouterr().err.replace("\n", " ")
    assert re.search(named, error), error


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from fleet_tools.assets.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print({'pydrake', 'trimesh', 'scipy', 'torch'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "set()" and "--family" in out.stdout
