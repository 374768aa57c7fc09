"""Options that select the tasks of a benchmark."""

from collections.abc import Sequence
from typing import Self

import pydantic

from fleet_tools.config.options import OptionGroup, TaskOptions
from fleet_tools.config.tasks import task_names

_ALL = "all"


class TaskSelection(OptionGroup):
    """The tasks that are measured."""

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
