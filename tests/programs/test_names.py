"""Files and folders may have any name: programs take it, print it, and write below it."""

import ast
import contextlib
import json
import os
import shlex
import shutil
import unicodedata
from pathlib import Path

import pytest
import trimesh
from support.collected import options, write_quick_task
from support.labelled import of_export, of_samples, random_dataset
from support.processes import ROOT, serving_program

from fleet_tools import collect, evaluate, new_task, replay, view
from fleet_tools.assets.__main__ import main as assets
from fleet_tools.baselines import merge, train
from fleet_tools.dataset.export.exporting import export_dataset
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.sim.catalog import find_model, name_of_own
from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.studio.pictures.filming import write_video
from fleet_tools.utils import libraries
from fleet_tools.utils.drake_release import CONSTRAINTS

NFC, NFD = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
ALL_AT_ONCE = f"-R&D {NFC} {NFD}  #1?%20%d=+,;:[]{{}}()'\"\\$`*<|>~..\t"
"""A name with every character that is something else in a URI, a shell, a pattern or XML."""

EACH = [
    *(NFC, NFD, "a b", "a  b", " a ", "a\tb", "#", "?", "&amp;", "%", "%20", "%d", "=", "+", ","),
    *("a:b", "[ab]", "{0}", "'", '"', "a\\b", "-a", "--x=1", "..a..", "...", "~", "$HOME", "`id`"),
    *(";", "a*", "<b>", "a|b", "null", "1", "日本", "x" * 200),
]  # fmt: skip

Capture = pytest.CaptureFixture[str]


@pytest.fixture(name="outcome", scope="module")
def _outcome(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the programs give below a folder with a plain name."""
    return through_the_programs(tmp_path_factory.mktemp("names") / "plain")


def through_the_programs(root: Path) -> str:
    """Runs the programs on files and folders that have the name of a folder, below it.

    Returns:
        Everything that they made which does not depend on names.
    """
    name = root.name
    root.mkdir()
    mesh, models, data = root / f"{name}.stl", root / f"models{name}", root / f"data{name}"
    trimesh.creation.box((0.3, 0.03, 0.03)).export(mesh)
    points = ["--keypoint=head=.15,0,.01", "--keypoint=side=.15,0,-.01", "--keypoint=tail=-.1,0,0"]
    kind = ["--kind", "tool", "--family", "hammer", "--name", "mine", "--mass", ".45"]
    assert assets(["import", str(mesh), *kind, *points, f"--output={models}", "--quiet"]) == 0
    tool = models / "tools" / "hammer" / "mine"
    claw = Path(shutil.copytree(ROOT / "assets" / "tools" / "hammer" / "claw", root / f"c{name}"))
    assert assets(["check", str(claw), "--scenes", "0", "--quiet"]) == 0

    task = str(write_quick_task(root))
    alone = ["--workers", "0", "--quiet"]
    random = ["--policy", "random", "--episodes", "2", "--env", f"tool={tool}", *alone]
    assert collect.main(["--task", task, f"--output={data}", *random]) == 0
    report = root / f"{name}.jsonl"
    assert replay.main([str(data), f"--output={report}", *alone]) == 0

    runs = [root / f"{k}{name}" for k in range(2)]
    for seed, run in enumerate(runs):
        small = ["--architecture", "mlp", "--epochs", "1", "--seed", str(seed), "--quiet"]
        assert train.main(["--dataset", str(data), f"--output={run}", *small]) == 0
    merged = root / f"merged{name}.safetensors"
    models_to_merge = [str(run / "best.safetensors") for run in runs]
    method = ["--method", "naive_average", f"--output={merged}", "--quiet"]
    assert merge.main([*models_to_merge, *method]) == 0
    result = root / f"result{name}"
    by = ["--policy", str(merged), "--task", task, "--scenes", "1", "--name", "m"]
    assert evaluate.main([*by, f"--output={result}", *alone]) == 0
    recording = root / f"{name}.html"
    assert view.main(["--dataset", str(data), f"--output={recording}", "--quiet"]) == 0
    assert recording.stat().st_size > 100_000

    lines = [json.loads(line) for line in (data / "manifest.jsonl").read_text().splitlines()]
    digest = name_of_own(find_model("tool", "hammer", str(tool)))
    return json.dumps(
        [
            digest,
            [(line["attempt"], line["steps"], line["state_digest"]) for line in lines],
            [json.loads(line)["identical"] for line in report.read_text().splitlines()],
            [episode.state_digest for episode in load_evaluation(result).episodes],
        ]
    )


@pytest.mark.slow  # runs every program
def test_the_programs_take_a_name_with_all_characters(outcome, tmp_path):
    assert through_the_programs(tmp_path / ALL_AT_ONCE) == outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_the_programs_take_any_name(name, outcome, tmp_path):
    assert through_the_programs(tmp_path / name) == outcome


@pytest.mark.parametrize("name", [ALL_AT_ONCE, "%d", "%s%%", "x" * 255])
@pytest.mark.parametrize("format_name", ["lerobot", "minari", "robomimic"])
def test_exports_are_read_whatever_they_are_called(format_name, name, tmp_path):
    """HDF5 takes a percent sign in the name of a virtual array's file for a series of files."""
    dataset, output = random_dataset(tmp_path / name), tmp_path / f"out{name}"[:255]
    export = export_dataset(dataset, format_name, output)
    read = [step for steps in of_export(format_name, output) for step in steps]
    stored = [step for step in of_samples(tmp_path / name) if step.imitate]
    assert sorted(each.content() for each in read if each.imitate) == sorted(
        each.content() for each in stored
    )
    if format_name == "minari":
        _, root = export.opens.split(" MINARI_DATASETS_PATH=")
        assert shlex.split(root) == [str(output)]
    else:
        line = ast.parse(export.opens.partition(", or ")[0])
        assert str(output) in [n.value for n in ast.walk(line) if isinstance(n, ast.Constant)]


def test_printed_commands_can_be_copied(tmp_path, capsys, monkeypatch):
    folder = tmp_path / ALL_AT_ONCE
    assert new_task.main(["press", f"--output={folder}"]) == 0
    command = capsys.readouterr().out.partition("Try it: ")[2]
    assert shlex.split(command)[-1] == str(folder / "task.yaml")
    task = str(folder / "task.yaml")
    assert collect.main(options(folder / "data", "--quiet", task=task, episodes=1)) == 0
    checkout = tmp_path / f"checkout{ALL_AT_ONCE}"
    (checkout / "fleet_tools" / "utils").mkdir(parents=True)
    for file in CONSTRAINTS:
        shutil.copy(ROOT / file, checkout)
    monkeypatch.setattr(libraries, "_CHECKOUT", checkout)
    assert shlex.split(libraries.install_command("video"))[-1] == f"{checkout}[video]"


@pytest.mark.parametrize("name", ["12:30.mp4", "%d.mp4", f"{'x' * 251}.mp4"])
def test_videos_are_written_below_the_working_folder(name, tmp_path, monkeypatch):
    """FFmpeg takes a relative name with a colon for the address of a server."""
    av, numpy = pytest.importorskip("av"), pytest.importorskip("numpy")
    monkeypatch.chdir(tmp_path)
    write_video(Path(name), [numpy.zeros((32, 32, 3), numpy.uint8)] * 2, 6)
    with av.open(str(tmp_path / name)) as video:
        assert len(list(video.decode(video=0))) == 2
    assert os.listdir() == [name]


def test_the_longest_name_is_written(tmp_path):
    for name in ("x" * 255, "日" * 85):
        with atomic_write(tmp_path / name) as aside:
            aside.write_bytes(b"")
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [("caf\udce9", "'caf\\udce9' is not UTF-8"), ("a\nb", "a path with a line break")],
)
def test_names_that_drake_cannot_read_are_refused(name, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):
        assert new_task.main(["press", "--output", name]) == 2
    assert said in capsys.readouterr().err
    assert os.listdir() == []


@pytest.mark.slow
def test_servers_take_such_names(tmp_path):
    root = tmp_path / ALL_AT_ONCE
    through_the_programs(root)
    merged, task = root / f"merged{root.name}.safetensors", str(root / "quick.yaml")
    folder = str(root / f"models{root.name}" / "tools" / "hammer" / "mine")
    with serving_program("label", folder) as said:
        assert said["folder"] == folder
    with serving_program("serve", str(merged)) as said:
        options = ["--task", task, "--scenes", "1", "--workers", "0", "--name", "m", "--quiet"]
        output = f"--output={root / 'served'}"
        assert evaluate.main(["--policy", said["url"], output, *options]) == 0
    local, served = (
        [episode.state_digest for episode in load_evaluation(folder).episodes]
        for folder in (root / f"result{root.name}", root / "served")
    )
    assert served == local
