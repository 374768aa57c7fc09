"""Answers of confined policies, and command lines of programs."""

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from support.damage import damaged
from support.served_policies import hello

from fleet_tools import __main__ as programs
from fleet_tools.errors import FleetToolsError
from fleet_tools.policies.array_codec import decode, encode
from fleet_tools.policies.policy_client import PolicyChannel, PolicyClient
from fleet_tools.policies.wire_messages import FailureCode, failure
from fleet_tools.studio.checking.program import load, read_model
from fuzz.kernel import Subject, require
from fuzz.mutations import changed_number, changed_text, pick


class _ScriptedChannel(PolicyChannel):
    """Gives a client what a script has."""

    def __init__(self, answers: list[bytes | str]) -> None:
        super().__init__()
        self._answers = iter(answers)

    def send(self, content: bytes) -> None:
        decode(content)

    def receive(self, timeout_s: float | None) -> bytes | str:
        try:
            return next(self._answers)
        except StopIteration:
            raise EOFError from None

    def reason(self, error: Exception) -> str:
        return str(error)

    def told(self, code: FailureCode, why: str) -> str:
        return why


def answers(folder: Path) -> Subject:
    """Answers of confined policies."""
    actions = [np.zeros(6, np.float32), np.arange(6.0), np.zeros((2, 3), np.int64), np.zeros(0)]

    def make(generator: np.random.Generator) -> list[bytes | str]:
        script: list[dict[str, Any]] = [
            hello().model_dump(mode="json"),
            {"number": 0},
            {"number": 1, "actions": pick(generator, actions)[None]},
            {"number": 2, "info": json.dumps({"planning_seconds": 0.5, "words": ["a", None]})},
        ]
        content: list[bytes | str] = [encode(each) for each in script]
        at = int(generator.integers(len(content)))
        content[at] = damaged(encode(script[at]), generator)
        if generator.random() < 0.2:
            text = changed_text(failure("policy", "it failed"), generator, ("full", ": ", "\0"))
            content.insert(int(generator.integers(5)), text)
        return content

    def read(content: list[bytes | str]) -> tuple[np.ndarray, dict]:
        client = PolicyClient(_ScriptedChannel(content), None, confined=True)
        client.reset()
        return client.act({"state": np.zeros(3)}), client.info()

    def check(content: list[bytes | str], found: tuple[np.ndarray, dict]) -> None:
        action, info = found
        require(action.dtype.kind in "biuf", f"an array of {action.dtype}")
        require(json.loads(json.dumps(info, allow_nan=False)) == info, "no plain data")

    return Subject(make, read, check)


def _run(words: list[str]) -> tuple[Any, str]:
    """Runs a program; returns its exit code, and what it prints.

    Raises:
        FleetToolsError: It says what is wrong, and its exit code is 1 or 2.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = programs.main(words)
        except SystemExit as end:
            code = end.code
    if code in (1, 2):
        require(err.getvalue().strip(), f"exit code {code} without a message")
        require("Traceback" not in err.getvalue(), "it prints a traceback")
        raise FleetToolsError(err.getvalue())
    return code, out.getvalue()


LINES = (
    "collect --task absent.yaml --episodes 3 --output out --workers 0",
    "replay absent --episodes 3 --seed 1 --within 0.1 --workers 0 --json",
    "dataset info absent --output a.png",
    "dataset export absent --to minari --output out",
    "photograph absent --output out",
    "train --dataset absent --output out --epochs 2 --architecture gru --set body.width=8",
    "train --dataset absent --output out --keypoints --symmetry a.tool=2:b:c --architecture mlp",
    "evaluate --policy absent:policy --output out --protocol absent.yaml --scenes 2 --workers 0",
    "leaderboard absent --verify 3 --seed 4",
    "merge absent.safetensors other.safetensors --method naive_average --output out",
    "attach-reader --policy absent.safetensors --reader other.safetensors --output out",
    "fleet absent.yaml --output out --workers 0",
    "experiment absent.yaml --output out",
    "assets import absent.obj --kind tool --family hammer --mass 0.5 --keypoint head=1,2,3",
    "assets check absent --scenes 0 --seed 3",
    "assets mend absent --json",
    "new-task hammer --output out --tool-family presser --object-family button",
    "view --dataset absent --episodes 1 --output out.mp4 --size 64x48 --camera third",
    "teleop --task absent.yaml --episodes 1 --output out --port 0",
    "serve absent.safetensors --port 0 --token-file absent",
    "label absent.obj --family hammer --output out --port 0",
    "reproduce absent --checkout absent --output out",
    "checkpoints get absent --source absent",
    "metaworld collect --task absent --episodes 1 --output out --workers 0",
)
NOT_TRIED = {
    "doctor": "it reads nothing",
}
"""Programs that command lines are not tried with, and why."""

_IMPORT = (
    "assets import base.obj --kind object --family nail --name mine --mass 0.5 --origin keep "
    "--keypoint tip=0,0,0.01 --moving part.obj --joint prismatic --joint-name slide "
    "--axis 0,0,1 --at 0,0,0 --limits=-0.02,0.01 --resistance 5 --moving-mass 0.1 "
    "--moving-keypoint head=0,0,0.05 --scale 1 --up z --pieces 4 --output out"
)
_WORDS = (
    *("--json", "--quiet", "--seed", "--episodes", "-h", "--", "-", "--no-check", "--set", "a=b"),
    *("=", "--workers", "-1", "0", "nan", "1e999", "99999999999999999999", "None", "True"),
    *("--split", "all", "--grasp=-0.1,0,0", "--scale", "1,2", "--keypoint", "--env", "obs_mode=x"),
    *("\0", "\n", "é", "\udcff", "/dev/null", "/", ".", "..", "~", "*", "--output=", "--x" * 100),
    *("@file", "{", "[1,2]", "'"),
)


def imports(folder: Path) -> Subject:
    """Command lines of imports of an object of two meshes with a joint."""
    trimesh.creation.box((0.04, 0.04, 0.03)).export(folder / "base.obj")
    trimesh.creation.cylinder(0.01, 0.06).export(folder / "part.obj")
    meshes = set(folder.iterdir())
    values = [n for n, word in enumerate(_IMPORT.split()) if n > 4 and not word.startswith("--")]

    def make(generator: np.random.Generator) -> list[str]:
        words: list[str] = [*_IMPORT.split()]
        for _ in range(int(generator.integers(3))):
            at = pick(generator, values)
            words[at] = changed_number(words[at], generator)
        if generator.integers(3) == 0:
            words[pick(generator, values)] = pick(generator, _VALUES)
        if generator.integers(3) == 0:
            words += [pick(generator, _OPTIONS), pick(generator, _VALUES)]
        return words

    def read(words: list[str]) -> Any:
        for made in set(folder.iterdir()) - meshes:
            shutil.rmtree(made)
        code, _ = _run(words)
        require(code == 0, f"the exit code is {code}")
        (labels,) = folder.glob("*/objects/*/*/keypoints.yaml")
        return load(labels.parent)[0], read_model(labels.parent)

    def check(words: list[str], found: Any) -> None:
        plant, model = found
        require(plant.num_positions() in (1, 8), f"{plant.num_positions()} positions")
        mass = plant.CalcTotalMass(plant.CreateDefaultContext())
        require(np.isfinite(mass) and mass > 0, f"the mass is {mass} kg")
        require(len(model.labels.keypoints) == 2, "other keypoints")

    return Subject(make, read, check)


_VALUES = (
    *("prismatic", "revolute", "x", "1,0,0", "0,0,0", "1e-9,0,0", "-90,90", "0,0", "1,-1", "nan"),
    *("auto", "mm", "base.obj", "part.obj", "head=0,0,0.05", "tip=9,9,9", "joint", "nail", "é", ""),
    *("1e-30", "1e30", "0", "-1", "center", "base", "hull", "refuse", "wood", "steel", "../x", "y"),
)
_OPTIONS = (
    *("--density", "--friction", "--modulus", "--colour", "--material", "--grasp", "--crop"),
    *("--keypoint", "--moving-keypoint", "--fidelity", "--concavity", "--tolerance", "--if-open"),
    *("--voxel", "--table", "--kind", "--joint", "--limits", "--axis", "--height", "--size"),
)


def command_lines(folder: Path) -> Subject:
    """Command lines of programs, about files that do not exist."""

    def make(generator: np.random.Generator) -> list[str]:
        words = pick(generator, LINES).split()
        for _ in range(int(generator.integers(1, 4))):
            at = int(generator.integers(len(words) + 1))
            match int(generator.integers(5)):
                case 0 if words:
                    del words[at : at + 1]
                case 1 if at < len(words):
                    words[at] = pick(generator, _WORDS)
                case 2 if words:
                    words.insert(at, pick(generator, words))
                case 3 if at < len(words):
                    words[at] = words[at][: int(generator.integers(len(words[at]) + 1))]
                case _:
                    words.insert(at, pick(generator, _WORDS))
        return words

    def check(words: list[str], result: tuple[Any, str]) -> None:
        code, printed = result
        require(code == 0, f"the exit code is {code}")
        needs_files = words[0] != "new-task" and not {"-h", "--help", "--version"} & set(words)
        require(not needs_files, "it succeeds without its files")
        require(printed, "it prints nothing")

    return Subject(make, _run, check)
