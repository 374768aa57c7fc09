"""Programs: options made from config classes, messages, exit codes and reports."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest
from support.processes import run_python
from tyro.conf import Positional

from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import Count, Positive, Seed
from fleet_tools.errors import FleetToolsError, UnknownNameError
from fleet_tools.utils import cli
from fleet_tools.utils.libraries import GLIB_COMMAND, OPTIONAL, install_command
from fleet_tools.utils.option_parser import KeyValue

Capture = pytest.CaptureFixture[str]


class OptimizerConfig(OptionGroup):
    """The optimizer."""

    rate: Positive = 0.001
    """Step size."""
    steps: Count = 100
    """Number of steps."""


class TrainOptions(cli.Options):
    """Trains.

    Exit codes:
    0: it is trained.
    """

    dataset: Annotated[Path, Positional]
    """Folder of the dataset."""
    optimizer: OptimizerConfig = OptimizerConfig(steps=70)
    method: Literal["adam", "sgd"] = "adam"
    seed: Seed | None = None
    env: tuple[KeyValue, ...] = ()
    output: Path | None = None

    @pydantic.model_validator(mode="after")
    def _output_for_seed(self) -> "TrainOptions":
        if self.seed == 13:
            raise ValueError("--seed 13 is not for --method adam")
        return self


class ListOptions(cli.Options):
    """Lists the trained."""


def train(options: TrainOptions) -> int:
    summary = options.model_dump(mode="json", include={"dataset", "optimizer", "seed", "env"})
    options.report(summary | {"command": options.command_line}, lambda: "It is trained.")
    return cli.FAILED if options.method == "sgd" else cli.OK


TRAIN = cli.Program("trial", cli.Command(TrainOptions, train))


def program(work: Callable[[], object]) -> cli.Program:
    """Returns a program without options that does some work."""

    def run(options: cli.Options) -> int:
        work()
        return cli.OK

    return cli.Program("trial", cli.Command(ListOptions, run))


def raising(error: BaseException) -> cli.Program:
    """Returns a program that raises an error."""

    def work() -> None:
        raise error

    return program(work)


def refused(arguments: list[str], capsys: Capture) -> str:
    """Returns the message about arguments that are not valid."""
    with pytest.raises(SystemExit) as stopped:
        TRAIN.main(arguments)
    printed = capsys.readouterr()
    assert (stopped.value.code, printed.out) == (2, "")
    return printed.err


# --- Options --------------------------------------------------------------------------------


def summary_of(arguments: list[str], capsys: Capture) -> dict[str, Any]:
    """Returns what the program reports about its options."""
    assert TRAIN.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_options_of_a_nested_group_have_no_prefix(capsys):
    summary = summary_of(["my data", "--rate", "0.5", "--seed", "4"], capsys)
    assert (summary["dataset"], summary["seed"]) == ("my data", 4)
    assert summary["optimizer"] == {"rate": 0.5, "steps": 70}
    command = "python -m fleet_tools.trial 'my data' --rate 0.5 --seed 4 --json"
    assert summary["command"] == command
    assert "--optimizer.rate" in refused(["data", "--optimizer.rate", "0.5"], capsys)


def test_key_value_arguments_hold_json_or_strings(capsys):
    summary = summary_of(["data", "--env", "size=[8, 6]", "tool=claw", "gains=1=2"], capsys)
    assert summary["env"] == [["size", [8, 6]], ["tool", "claw"], ["gains", "1=2"]]
    assert "KEY=VALUE" in refused(["data", "--env", "tool"], capsys)


def test_the_help_describes_options_and_states_each_default_once(capsys):
    with pytest.raises(SystemExit) as stopped:
        TRAIN.main(["--help"])
    assert stopped.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert "python -m fleet_tools.trial" in text
    assert "Trains. Exit codes: 0: it is trained." in text
    assert "Folder of the dataset. (required)" in text
    assert "Step size. (default: 0.001)" in text  # of the config class
    assert "Number of steps. (default: 70)" in text  # of the program, in its place
    assert text.count("(default: ") == 3
    assert "None" not in text and "False" not in text


# --- Invalid arguments ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "-1"], "--rate: Input should be greater than 0 (given: -1.0)"),
        (["--steps", "0"], "--steps: Input should be greater than or equal to 1 (given: 0)"),
        (["--seed", "-3"], "--seed: Input should be greater than or equal to 0 (given: -3)"),
        (["--seed", "13"], "--seed 13 is not for --method adam"),
    ],
)
def test_a_value_out_of_range_is_refused_in_one_line(arguments, message, capsys):
    line, hint = refused(["data", *arguments], capsys).splitlines()
    assert line == f"python -m fleet_tools.trial: {message}"
    assert hint == "`python -m fleet_tools.trial --help` describes the options."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "PATH"),
        (["data", "--rate", "fast"], "--rate: could not convert string to float: 'fast'"),
        (["data", "--seed", "fast"], "--seed: no type matching INT"),
        (["data", "--seed", "None"], "--seed: no type matching INT"),
        (["data", "--method", "newton"], "adam"),
        (["data", "--stesp", "3"], "--steps"),
        (["data", "more"], "more"),
    ],
)
def test_arguments_that_do_not_parse_are_refused(arguments, message, capsys):
    text = refused(arguments, capsys)
    assert message in text
    assert not any(word in text for word in ("pydantic", "Validator", "Traceback"))


# --- Several commands -----------------------------------------------------------------------

SEVERAL = cli.Program(
    "trials",
    {
        "train": cli.Command(TrainOptions, train),
        "list": cli.Command(ListOptions, lambda options: cli.FAILED),
    },
    "Trains and lists.",
)


def test_the_first_argument_names_the_command(capsys):
    assert SEVERAL.main(["train", "data", "--steps", "5", "--json"], "fleet-tools trials") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["optimizer"]["steps"] == 5
    assert summary["command"] == "python -m fleet_tools.trials train data --steps 5 --json"
    assert SEVERAL.main(["list"]) == 1


def test_the_help_lists_the_commands(capsys):
    for arguments, texts in (
        (["--help"], ["Trains and lists.", "Trains.", "Lists the trained."]),
        (["train", "--help"], ["Number of steps. (default: 70)", "Exit codes:"]),
    ):
        with pytest.raises(SystemExit) as stopped:
            SEVERAL.main(arguments, "fleet-tools trials")
        assert stopped.value.code == 0
        printed = " ".join(capsys.readouterr().out.replace("│", "").split())
        assert "usage: fleet-tools trials" in printed
        assert all(text in printed for text in texts)


@pytest.mark.parametrize("arguments", [[], ["lst"], ["list", "data"], ["train"]])
def test_an_unknown_or_incomplete_command_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        SEVERAL.main(arguments)
    assert stopped.value.code == 2
    assert not capsys.readouterr().out


# --- Exit codes and messages ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (FleetToolsError("There is no plan."), 2, "There is no plan."),
        (UnknownNameError("tool", "hamer", ["hammer"]), 2, "Did you mean 'hammer'? Known: hammer."),
        (OSError(28, "No space left on device"), 1, "run the same command again to continue."),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_expected_error_is_one_line_on_stderr(error, code, message, capsys):
    assert raising(error).main([], "fleet-tools trial") == code
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("fleet-tools trial: ") and line.endswith(message)


def test_a_defect_is_raised_with_its_traceback():
    import pydrake.common  # noqa: F401  # Drake works here, so its name is no excuse

    for error in (
        ZeroDivisionError("a defect"),
        ModuleNotFoundError("a defect", name="fleet"),
        ImportError("a defect", name=OPTIONAL[0].module),  # a wrong name in a library that is there
        ImportError("a defect", name="pydrake.multibody.plant"),
    ):
        with pytest.raises(type(error), match="a defect"):
            raising(error).main([])


def test_an_absent_optional_library_is_named_with_its_installation_command(capsys, monkeypatch):
    library = OPTIONAL[0]
    monkeypatch.setitem(sys.modules, library.module, None)
    assert program(lambda: __import__(f"{library.module}.part")).main([]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"python -m fleet_tools.trial: {library.module} is needed to ")
    assert install_command(library.extra) in message


def test_ctrl_c_interrupts_the_work_and_is_handled_as_before_afterwards(capsys):
    before = signal.getsignal(signal.SIGINT)
    assert program(lambda: os.kill(os.getpid(), signal.SIGINT)).main([]) == 130
    assert capsys.readouterr().err == "python -m fleet_tools.trial: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_stopped_work_can_be_resumed(capsys):
    assert cli.stopped(OSError(28, "No space left on device")) == 1
    assert "no space is left on its disk. The same command resumes it." in capsys.readouterr().err
    for reason in (None, KeyboardInterrupt()):
        assert cli.stopped(reason) == 130
        assert "interrupted. The same command resumes it." in capsys.readouterr().err


# --- Reports --------------------------------------------------------------------------------


def test_stdout_holds_text_or_only_json_or_nothing(capsys):
    assert TRAIN.main(["data"]) == 0
    assert capsys.readouterr().out == "It is trained.\n"
    for more in (["--json"], ["--json", "--quiet"]):
        assert TRAIN.main(["data", *more]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert json.loads(line)["dataset"] == "data"
    for code, more in ((0, []), (1, ["--method", "sgd"])):
        assert TRAIN.main(["data", "--quiet", *more]) == code
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ("view", "--tool", "hammer", "--output", "episode.html"), marks=pytest.mark.slow
        ),
        pytest.param(
            ("evaluate", "--policy", "zero", "--output", "result"), marks=pytest.mark.slow
        ),
        ("collect", "--tool", "hammer", "--episodes", "1", "--workers", "0", "--output", "data"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_program_without_drake_says_what_the_machine_lacks(arguments, tmp_path):
    """Drake is hidden from the process, as where a library that it needs is absent."""
    code, error = run_python(
        "import contextlib, io, json, os, sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'pydrake':\n"
        "            raise ImportError('libglib-2.0.so.0: cannot open', name='pydrake.common')\n"
        "sys.meta_path.insert(0, Hide())\n"
        "from fleet_tools.__main__ import main\n"
        "os.chdir(sys.argv[1])\n"
        "err = io.StringIO()\n"
        "with contextlib.redirect_stderr(err):\n"
        "    code = main(sys.argv[2:])\n"
        "print(json.dumps([code, err.getvalue()]))",
        str(tmp_path),
        *arguments,
    )
    assert code == 2
    assert "libglib-2.0.so.0" in error and GLIB_COMMAND in error
    assert "Traceback" not in error
