"""What a program cannot do is refused at once: exit code 2, words that help, nothing written."""

import sys

import pytest
import trimesh
from support.processes import ROOT
from support.small_datasets import Drawn, write

from fleet_tools.__main__ import load
from fleet_tools.utils.libraries import install_command

HAMMER = (
    "import {mesh} --kind tool --family hammer --mass 0.5 --output out --keypoint head=0.1,0,0.05 "
    "--keypoint tail=-0.06,0,0 --keypoint side=0.1,0,-0.05"
)
TOOL = "import {mesh} --kind tool --family hammer --output out"
CHEST = (
    "import {mesh} --kind object --family chest --keypoint base=0,0,0.05 --scale mm --output out "
    "--moving {mesh} --limits 0,1"
)
MOVING = f"{HAMMER} --moving {{mesh}}"
EVALUATE = "--tool hammer --split train --scenes 1 --output out --workers 0"
VIDEO = "--tool hammer --output r.mp4"

REFUSED: dict[str, list[tuple[str, str]]] = {
    "collect": [
        *(
            (arguments, "python -m fleet_tools.collect --help")
            for arguments in (
                "--episodes 1", "--tool hammer --task hammer --episodes 1", "--tool hammer",
                "--tool hammer --episodes 0", "--tool hammer --episodes some",
                "--tool hammer --episodes 1 --seed -1", "--tool hammer --episodes 1 --workers -1",
                "--tool hammer --episodes 1 --env split", "--tool hammer --episodes 1 --timeout 0",
                "--tool hammer --episodes 1 --timeout nan",
            )
        ),
        ("--tool hammer --episodes 1 --output out --env tol=claw", "Did you mean 'tool'?"),
        ("--tool hammer --episodes 1 --output out --env task=knife", "Give --tool or --task"),
        # Collections do not know the person.
        ("--tool hammer --episodes 1 --policy teleoperation", "Unknown policy"),
    ],
    "teleop": [
        *(
            (arguments, "python -m fleet_tools.teleop --help")
            for arguments in ("", "--tool hammer --port 65536", "--tool hammer --episodes 0")
        ),
        ("--tool hamer --output out", "Did you mean 'hammer'?"),
        ("--tool hammer --env tol=claw --output out", "Did you mean 'tool'?"),
        ("--tool hammer --env task=knife --output out", "Give --tool or --task"),
        ("--tool hammer --obs-mode stat --output out", "Did you mean 'state'?"),
    ],
    "evaluate": [
        (f"{EVALUATE} --policy exprt", "Did you mean 'expert'"),
        (f"{EVALUATE} --policy expert --tool hamer", "Did you mean 'hammer'"),
        (f"{EVALUATE} --policy expert --split all", "Unknown split of the protocol"),
        (f"{EVALUATE} --policy expert --protocol v0", "protocol: 'v0'"),
        (f"{EVALUATE} --policy expert --against nowhere", "nowhere is not an evaluation"),
        (f"{EVALUATE} --policy expert --obs-mode sonar", "Unknown obs_mode: 'sonar'"),
    ],
    "leaderboard": [
        ("page nowhere", "nowhere has no folder named entries"),
        ("page . --protocol v9", "Unknown protocol: 'v9'"),
        ("page . --output page.pdf", "ends with .html"),
        ("page . --output nowhere/page.html", "no folder nowhere"),
    ],
    "replay": [(". --workers 0", "has no dataset.json")],
    "dataset": [
        ("export {data} --to tfds", "tfds"),
        ("export {data}", "--to"),
        ("export . --to lerobot", "is not a dataset"),
        ("export {data} --to robomimic --output {mesh}", "exists already"),
    ],
    "view": [
        ("--tool hammer --output rollout.gif", "writes .html or .mp4"),
        ("--tool hammer --output nowhere/rollout.html", "no folder"),
        ("--tool hammer --output r.html --episodes 2", "holds one episode"),
        (f"{VIDEO} --fps 0", "--fps"),
        (f"{VIDEO} --fps 251", "--fps"),
        (f"{VIDEO} --size 65x64", "even width and height"),
        (f"{VIDEO} --size 64", "WIDTHxHEIGHT"),
        (f"{VIDEO} --size 8192x64", "from 16 to 4096"),
        (f"{VIDEO} --camera wist", "Did you mean 'wrist'"),
        ("--tool hammer --output r.html --fps 30", "--fps is for videos"),
        ("--tool hammer --camera wrist", "--camera is for videos"),
        ("--tool hamer", "Did you mean 'hammer'"),
        ("--tool hammer --split unseen_tool", "Did you mean 'unseen_tools'"),
        ("--dataset nowhere", "not a dataset"),
        ("--dataset data --tool hammer", "give one of"),
        ("", "give one of"),
    ],
    "photograph": [
        (f". --output new --size {size}", "size") for size in ("64", "0x48", "64x48x3", "ax48")
    ],
    "new-task": [
        ("", "Name of the task .. required"),
        ("hammer", "hammer is a task of the package"),
        ("../up", "letters, digits and underscores"),
        ("a\tb", "letters, digits and underscores"),
        ("\t", "letters, digits and underscores"),
        ("press --tool-family wrench", "wrench is a family of the package"),
        ("press --object-family nail", "nail is a family of the package"),
        ("press --object-family ../nail", "letters, digits and underscores"),
    ],
    "label": [
        ("{mesh}", "a mesh needs --family and --output"),
        ("{folder} --family hammer", "the folder of a model has these already"),
        ("{mesh} --family hamer --output {folder}", "Did you mean 'hammer'"),
        ("{folder}/none.stl --family hammer --output {folder}", "There is no file"),
        ("{folder}", "has no keypoints.yaml"),
        ("{mesh} --family spoon --output {folder}", "--keypoint-names NAME,NAME"),
        ("{mesh} --task hammer --family nail", "the task has these already: --family"),
        ("{mesh} --task hammer", "Give --output for a mesh"),
        ("{mesh} --task hamer", "Unknown task: 'hamer'"),
        ("{mesh} --family a --keypoint-names bowl,no\tname", "letters, digits"),
        ("{mesh} --family a --keypoint-names tip,hand --output {folder}",
         "The name hand is reserved"),
    ],
    "assets": [
        ("check .", "has no keypoints.yaml"),
        ("check {nut} --task hammer", "is for a"),
        (f"{TOOL} --mass 1", "--keypoint head=X,Y,Z .. side"),
        (HAMMER.replace("--mass 0.5", ""), "--mass KG, --density .. steel"),
        (f"{HAMMER} --density 1", "contradict"),
        (f"{HAMMER} --keypoint head=1,2", "expected X,Y,Z"),
        (f"{HAMMER} --keypoint head", "NAME=X,Y,Z"),
        (f"{HAMMER} --keypoint head=1,2,3", "twice for head"),
        (f"{HAMMER} --grasp 1,2,nan", "not finite"),
        (f"{HAMMER} --scale furlong", "auto, m, mm, cm, inch"),
        (f"{HAMMER} --mass nan", "--mass:  .. finite"),
        (f"{HAMMER} --length 900", "side is 900 m .. --scale mm would make it"),
        (f"{HAMMER} --mass 900", "more than any metal .. --mass, in kg"),
        (f"{HAMMER} --name ../x", "letters, digits"),
        (f"{HAMMER} --limits 0,1", "without --moving: give the mesh"),
        (MOVING, "give --limits LOW,HIGH"),
        (f"{MOVING} --limits 1,0", "LOW below HIGH"),
        (f"{MOVING} --limits 0,1 --axis 0,0,0", "expected a direction as --axis"),
        (f"{MOVING} --limits 0,1", "only for objects"),
        (f"{CHEST} --material pine --moving-keypoint base=0,0,0",
         "base: given both by --keypoint and by --moving-keypoint"),
        (f"{CHEST} --mass 1", "Give --moving-mass, too"),
        (CHEST.replace("--moving {mesh}", "--moving absent.stl --material pine"), "absent.stl"),
    ],
}  # fmt: skip
"""By program, its arguments, in which a tab is a space, and parts of the message.

Files of theirs: {mesh}, a mesh alone in a {folder}; {data}, a dataset; {nut}, a model.
"""
LIBRARIES = {"label": ("viser",), "assets": ("coacd", "manifold3d", "fast_simplification")}


@pytest.fixture(name="files", scope="module")
def _files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mesh")
    head = trimesh.creation.box((30, 30, 70)).apply_translation((95, 0, 0))
    overlapping = trimesh.util.concatenate([head, trimesh.creation.box((220, 24, 24))])
    overlapping.export(folder / "stick.stl")
    data = write(tmp_path_factory.mktemp("data") / "data", Drawn([2], [True], 0)).folder
    nut = ROOT / "assets/objects/nut/hex_nut"
    return {"mesh": folder / "stick.stl", "folder": folder, "data": data, "nut": nut}


def require_refusal(program, arguments, message, files, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [word.format(**files).replace("\t", " ") for word in arguments.split(" ") if word]
    try:
        code = load(program).main(given)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    out, err = capsys.readouterr()
    said = " ".join(err.replace("│", " ").split())
    assert all(part.strip() in said for part in message.split(" .. ")), said
    assert (out, "Traceback" in err) == ("", False)
    assert not list(tmp_path.iterdir())
    assert list(files["folder"].iterdir()) == [files["mesh"]]


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [(program, *each) for program, cases in REFUSED.items() for each in cases],
)
def test_what_cannot_be_done_is_refused_before_anything_begins(
    program, arguments, message, files, capsys, tmp_path, monkeypatch
):
    for library in LIBRARIES.get(program, ()):
        pytest.importorskip(library)
    require_refusal(program, arguments, message, files, capsys, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("module", "extra", "program", "arguments"),
    [
        ("av", "video", "view", VIDEO),
        *((module, "video", "leaderboard", "page . --clips") for module in ("av", "PIL")),
        ("manifold3d", "import", "assets", HAMMER),
    ],
)
def test_without_its_library_a_program_names_the_command_that_installs_it(
    module, extra, program, arguments, files, capsys, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)  # which the command says
    message = f"{module} .. {install_command(extra)}"
    require_refusal(program, arguments, message, files, capsys, tmp_path, monkeypatch)
