"""Common parts of benchmarks: options, tables in Markdown, times, episodes and processes."""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pydantic

from fleet_tools.config.options import OptionGroup, TaskOptions
from fleet_tools.config.tasks import task_names
from fleet_tools.errors import FleetToolsError
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    import numpy as np

    from fleet_tools.envs.tool_use_env import ToolUseEnv
    from fleet_tools.experts.policy import ExpertPolicy

ROOT = Path(__file__).resolve().parents[1]

_ALL = "all"


def main_of(file: str, options: type, work: Callable[[Any], int]) -> Callable[..., int]:
    """Returns the main function of a script of this folder.

    Args:
        file: Path of the script.
        options: Class of its options.
        work: Does the work, and returns the exit code.
    """
    command = cli.Command(options, work)
    return cli.Program(Path(file).name, command, launcher="python benchmarks/").main


class TaskSelection(OptionGroup):
    """The measured tasks."""

    tool: str = _ALL
    """Task of the package, by its tool, such as hammer; or all."""
    task: str | None = None
    """Task of the package by name, or your own by the path of its YAML file."""

    @pydantic.model_validator(mode="after")
    def _one_selection(self) -> Self:
        if self.tool != _ALL and self.task is not None:
            raise ValueError("give either --tool or --task")
        return self

    def names_or_paths(self) -> Sequence[str]:
        """Returns the names of the tasks, or the path of the only one.

        Raises:
            UnknownNameError: There is no such tool.
        """
        if self.task is not None:
            return [self.task]
        if self.tool == _ALL:
            return task_names()
        return [TaskOptions(tool=self.tool).name_or_path()]


# --- Output ---------------------------------------------------------------------------------


def print_now(options: cli.Options, text: str) -> None:
    """Prints text at once, unless the options ask for JSON or for no output."""
    if not (options.quiet or options.json_output):
        print(text, flush=True)


def table_head(columns: Sequence[str]) -> str:
    """Returns the first two lines of a table."""
    return f"{table_row(columns)}\n|{'---|' * len(columns)}"


def table_row(cells: Iterable[str]) -> str:
    """Returns a line of a table."""
    return f"| {' | '.join(cells)} |"


def _cells(row: Mapping[str, Any]) -> list[str]:
    return ["" if each is None else str(each) for each in row.values()]


def report_rows(
    options: cli.Options,
    columns: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    cells: Callable[[Any], Iterable[str]] = _cells,
    **more: Any,
) -> list[Mapping[str, Any]]:
    """Prints a table, each row as soon as it is measured; or all of them as JSON at the end.

    Args:
        options: Options of the program.
        columns: Names of the columns.
        rows: The rows, by name.
        cells: Returns the cells of a row; by default its values, with None as an empty cell.
        more: Other entries of the JSON.

    Returns:
        The rows.
    """
    print_now(options, table_head(columns))
    measured = []
    for row in rows:
        measured.append(row)
        print_now(options, table_row(cells(row)))
    if options.json_output:
        options.report({"rows": measured, **more}, str)
    return measured


# --- Measurements ---------------------------------------------------------------------------


def cpu_seconds(work: Callable[[], object]) -> float:
    """Returns the processor time of this process for a piece of work, s."""
    started = time.process_time()
    work()
    return time.process_time() - started


def expert_steps(
    env: "ToolUseEnv", seeds: Iterable[int]
) -> Iterator[tuple["ExpertPolicy", "np.ndarray"]]:
    """Runs the expert's episodes, and yields it with its next action before each step.

    Args:
        env: The environment; the caller steps it with the action.
        seeds: Seeds of the episodes' scenes.
    """
    from fleet_tools.envs.outcomes import RUNNING
    from fleet_tools.experts.policy import ExpertPolicy

    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        expert = ExpertPolicy(env)
        expert.reset()
        while env.get_state().outcome == RUNNING:
            yield expert, expert.act(observation)  # the expert reads the env, not an observation


# --- Processes that answer in lines of JSON -------------------------------------------------

_ANSWER, _ERROR = "answer", "error"


class Child:
    """A process of a program, by default one beside this file; it ends with the context.

    Args:
        program: The program's file name, or a path elsewhere.
        arguments: Its arguments.
        interpreter: The interpreter; this one by default.
        launcher: Command before the interpreter's, such as an emulator's.
        variables: Environment variables in addition to the present ones.
    """

    def __init__(
        self,
        program: str,
        arguments: Sequence[str] = (),
        *,
        interpreter: str | Path = sys.executable,
        launcher: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        path = str(Path(__file__).parent / program)
        try:
            self._process = subprocess.Popen(
                [*launcher, str(interpreter), path, *arguments],
                env=os.environ | (variables or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise FleetToolsError(f"{interpreter} cannot be run: {error.strerror}.") from error

    @property
    def pid(self) -> int:
        """Process identifier."""
        return self._process.pid

    def __enter__(self) -> Self:
        """Returns it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def ask(self, question: str) -> None:
        """Sends a line, to be answered by the process."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `answer` raises the error of an ended process
            print(question, file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """Returns the next answer, as soon as it is there.

        Raises:
            FleetToolsError: The process has ended, or failed.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise FleetToolsError(f"the process ended with {_ending(self._process.wait())}")
        answer = json.loads(line)
        if _ERROR in answer:
            raise FleetToolsError(answer[_ERROR])
        return answer[_ANSWER]


@contextmanager
def answering() -> Iterator[Callable[[Any], None]]:
    """Yields the function that answers, in the child; errors are answers, too.

    All other output goes to stderr.
    """
    answers = sys.stdout

    def send(name: str, value: Any) -> None:
        print(json.dumps({name: value}), file=answers, flush=True)

    with redirect_stdout(sys.stderr):
        try:
            yield partial(send, _ANSWER)
        except Exception as error:
            traceback.print_exc()
            send(_ERROR, f"{type(error).__name__}: {error}")
            sys.exit(1)


def _ending(code: int) -> str:
    if code < 0:
        return f"signal {-code} ({signal.strsignal(-code)})"
    return f"exit code {code}"
