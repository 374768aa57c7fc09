"""Writes the folder of a new task: `fleet-tools new-task press`.

The folder holds a task file, a tool, and an object with a joint. The expert solves it as it is.
"""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import pydantic
from tyro.conf import Positional

from fleet_tools.config.file_access import assets_root
from fleet_tools.config.tasks import task_names
from fleet_tools.storage.atomic_files import temporary_in
from fleet_tools.studio.importing.settings import ModelName
from fleet_tools.utils import cli


class NewTaskOptions(cli.Options):
    """Writes the folder of a task of your own, which works at once and is yours to change.

    It holds task.yaml, a tool, and an object with a joint that a brake holds. In the task, a
    presser in the hand pushes a button in.

    Exit codes:
    0: the folder is written.
    1: it holds something already, or cannot be written.
    2: a name does not fit.
    """

    name: Annotated[ModelName, Positional]
    """Name of the task, such as press."""
    output: Path | None = None
    """Folder of the task, new or empty (default: NAME)."""
    tool_family: ModelName = "presser"
    """Family of its tools, a folder of OUTPUT/tools."""
    object_family: ModelName = "button"
    """Family of its objects, a folder of OUTPUT/objects."""

    @pydantic.field_validator("name")
    @classmethod
    def _own_name(cls, name: str) -> str:
        if name in task_names():
            raise ValueError(f"{name} is a task of the package; give another name")
        return name

    @pydantic.field_validator("tool_family", "object_family")
    @classmethod
    def _own_family(cls, family: str, info: pydantic.ValidationInfo) -> str:
        kind = (info.field_name or "").removesuffix("_family")
        if (assets_root() / f"{kind}s" / family).is_dir():
            raise ValueError(f"{family} is a family of the package; give another name")
        return family


def _new_task(options: NewTaskOptions) -> int:
    from fleet_tools.assets.task_scaffold import scaffold

    folder = options.output or Path(options.name)
    files = scaffold(options.name, options.tool_family, options.object_family)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"{folder} exists already and was left unchanged. Choose another --output."
        )
    _write(folder, files)
    task = folder / "task.yaml"
    steps = [
        f"{task}: randomization, success predicates, and keyframes of the expert",
        *(f"{path.parent}: a model" for path in sorted(folder.glob("*/*/*/model.sdf"))),
        f"Try it: fleet-tools view --task {shlex.quote(str(task))}",
    ]
    summary = {"task": str(task), "folder": str(folder), "files": sorted(files)}
    options.report(summary, lambda: "\n".join(steps))
    return cli.OK


def _write(folder: Path, files: dict[str, bytes]) -> None:
    """Writes files below a folder, all or none; it may be the working directory.

    Raises:
        OSError: They cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with temporary_in(folder, folder / "task") as aside:
        for path, content in files.items():
            (aside / path).parent.mkdir(parents=True, exist_ok=True)
            (aside / path).write_bytes(content)
        for made in list(aside.iterdir()):
            made.rename(folder / made.name)


PROGRAM = cli.Program("new_task", cli.Command(NewTaskOptions, _new_task))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
