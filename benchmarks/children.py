"""Python processes that answer in lines of JSON: of other processors, and of other environments."""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from fleet_tools.errors import FleetToolsError

_ANSWER, _ERROR = "answer", "error"


class Child:
    """A process of a program, by default one beside this file; it ends with the context.

    Args:
        program: The program's file name, or a path elsewhere.
        arguments: Its arguments.
        interpreter: The interpreter; this one by default.
        launcher: Command before that of the interpreter, such as an emulator's.
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
        """Sends a line, which the process is to answer."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `answer` says that it has ended
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

    Whatever else is printed goes to stderr.
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
