"""Pages run as scripts, each in a process of its own that begins with the usual imports."""

import contextlib
import multiprocessing
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from support.page_commands import commands, is_program
from support.pages import Block

_IMPORTS = [
    "gymnasium",
    "fleet_tools.envs.tool_use_env",
    "fleet_tools.experts.policy",
    "torch.utils.data",
    "fleet_tools.dataset.samples",
]


def script(blocks: Iterable[Block]) -> str:
    """Returns the Python script that does what blocks say: code, and the package's programs."""
    parts = ["import subprocess as _subprocess, sys as _sys"]
    for block in blocks:
        if block.language == "python":
            parts.append(block.code)
        else:
            runs = [_call(words) for words in commands(block.code) if is_program(words)]
            parts += [f"_subprocess.run({call}, check=True)" for call in runs]
    return "\n".join(parts) + "\n"


def _call(words: list[str]) -> str:
    if words[0] == "fleet-tools":
        words = ["python", "-m", "fleet_tools", *words[1:]]
    return "[" + ", ".join(["_sys.executable", *map(repr, words[1:])]) + "]"


def run(text: str, folder: Path, timeout_s: float) -> tuple[int | None, str]:
    """Runs a script in a folder; returns its exit code, None if it takes too long, and output."""
    file, log = folder.parent / f"{folder.name}.py", folder.parent / f"{folder.name}.log"
    file.write_text(text, encoding="utf-8")
    log.touch()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTS)
    process = context.Process(target=_execute, args=(file, folder, log))
    process.start()
    process.join(timeout_s)
    code = process.exitcode
    if code is None and process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the programs that it started
        process.kill()
        process.join()
    return code, log.read_text(encoding="utf-8", errors="replace")


def _execute(file: Path, folder: Path, log: Path) -> None:
    os.setsid()
    os.chdir(folder)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.path.insert(0, str(folder))
    sys.argv = [str(file)]
    try:
        runpy.run_path(str(file), run_name="__main__")
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(1)
    sys.stdout.flush()
