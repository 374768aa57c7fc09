"""Option groups: values that programs offer as command-line options."""

from pathlib import Path
from typing import Any, Self

import pydantic

from fleet_tools.config.tasks import task_names
from fleet_tools.config.values import Value
from fleet_tools.errors import UnknownNameError


class OptionGroup(Value):
    """Base of values that are options of programs; an attribute's docstring is its help."""

    model_config = pydantic.ConfigDict(use_attribute_docstrings=True)

    @pydantic.field_validator("*")
    @classmethod
    def _path_of_one_line(cls, value: Any) -> Any:
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Path) and "\n" in str(each):
                raise ValueError(
                    "Drake cannot read a path with a line break; rename the file or folder"
                )
        return value


class TaskOptions(OptionGroup):
    """The task."""

    tool: str | None = None
    """Task of the package, by its tool, such as hammer."""
    task: str | None = None
    """Task of the package by name, or your own by the path of its YAML file."""

    @pydantic.model_validator(mode="after")
    def _one_task(self) -> Self:
        if (self.tool is None) == (self.task is None):
            raise ValueError("give either --tool or --task")
        return self

    def name_or_path(self) -> str:
        """Returns the task's name or path.

        Raises:
            UnknownNameError: There is no such tool.
        """
        if self.tool is None:
            assert self.task is not None
            return self.task
        if self.tool not in task_names():
            remedy = "A task of your own is given by --task and the path of its YAML file."
            raise UnknownNameError("tool", self.tool, task_names(), remedy)
        return self.tool
