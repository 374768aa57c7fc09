"""Programs that refuse their arguments before anything is done."""

from collections.abc import Callable
from pathlib import Path

import pytest

Main = Callable[[list[str]], int]


def require_refusal(
    main: Main,
    arguments: list[str],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Asserts that a program ends with 2 and a message, and writes nothing to its folder.

    Args:
        main: The program, which returns 2; see `exit_code` for one that may exit.
        arguments: Its arguments.
        message: Part of what it reports on stderr.
        folder: An empty folder, in which it runs.
        monkeypatch: Fixture of pytest.
        capsys: Fixture of pytest.
    """
    monkeypatch.chdir(folder)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not list(folder.iterdir())


def exit_code(main: Main) -> Main:
    """Makes a program return its exit code, also if it does not accept its arguments."""

    def returning(arguments: list[str]) -> int:
        try:
            return main(arguments)
        except SystemExit as ended:
            return int(ended.code or 0)

    return returning
