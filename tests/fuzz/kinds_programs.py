"""Answers of confined policies, and command lines of programs."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools import __main__ as programs
from fleet_tools.errors import FleetToolsError
from fleet_tools.policies.confined_replies import plain, read_action, read_reply
from fuzz.kernel import Subject, require
from fuzz.mutations import (
    changed_json,
    pick,
)


def answers(folder: Path) -> Subject:
    """Answers of confined policies."""
    actions = [np.zeros(6, np.float32), np.arange(6.0), np.zeros((2, 3), np.int64), np.zeros(0)]

    def make(generator: np.random.Generator) -> bytes:
        answer = plain(pick(generator, actions))
        error = pick(generator, (None, None, None, "it failed"))
        return changed_json(json.dumps({"error": error, "answer": answer}), generator)

    def read(content: bytes) -> np.ndarray:
        return read_action(read_reply(content))

    def check(content: bytes, action: np.ndarray) -> None:
        require(action.dtype.kind in "biuf", f"an array of {action.dtype}")
        answer = json.loads(content)["answer"]
        if isinstance(answer["shape"], list) and all(n >= 0 for n in answer["shape"]):
            require(list(action.shape) == answer["shape"], "another shape")
        require(np.dtype(answer["dtype"]) == action.dtype, "another dtype")
        again = plain(action)
        require(again["data"] == answer["data"], "other numbers")

    return Subject(make, read, check)


_LINES = (
    "collect --task absent.yaml --episodes 3 --output out --workers 0",
    "replay absent --episodes 3 --seed 1 --within 0.1 --workers 0 --json",
    "dataset info absent --output a.png",
    "dataset export absent --to minari --output out",
    "photograph absent --output out",
    "train --dataset absent --output out --epochs 2 --architecture gru --set body.width=8",
    "evaluate --policy absent:policy --output out --protocol absent.yaml --scenes 2 --workers 0",
    "leaderboard absent --verify 3 --seed 4",
    "merge absent.safetensors other.safetensors --method naive_average --output out",
    "fleet absent.yaml --output out --workers 0",
    "sweep absent.yaml --output out",
    "barriers absent.yaml --output out",
    "assets import absent.obj --kind tool --family hammer --mass 0.5 --keypoint head=1,2,3",
    "assets check absent --scenes 0 --seed 3",
    "new-task hammer --output out --tool-family presser --object-family button",
)
_WORDS = (
    *(
        "--json",
        "--quiet",
        "--seed",
        "--episodes",
        "-h",
        "--",
        "-",
        "--no-check",
        "--set",
        "a=b",
        "=",
    ),
    *(
        "--workers",
        "-1",
        "0",
        "nan",
        "1e999",
        "99999999999999999999",
        "None",
        "True",
        "--split",
        "all",
    ),
    *(
        "--grasp=-0.1,0,0",
        "--scale",
        "1,2",
        "--keypoint",
        "--env",
        "obs_mode=x",
        "\0",
        "\n",
        "é",
        "\udcff",
    ),
    *("/dev/null", "/", ".", "..", "~", "*", "--output=", "--x" * 100, "@file", "{", "[1,2]", "'"),
)


def command_lines(folder: Path) -> Subject:
    """Command lines of programs, about files that do not exist."""

    def make(generator: np.random.Generator) -> list[str]:
        words = pick(generator, _LINES).split()
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

    def read(words: list[str]) -> tuple[Any, str]:
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

    def check(words: list[str], result: tuple[Any, str]) -> None:
        code, printed = result
        require(code == 0, f"the exit code is {code}")
        require({"-h", "--help", "--version"} & set(words), "it succeeds without its files")
        require(printed, "it prints nothing")

    return Subject(make, read, check)
