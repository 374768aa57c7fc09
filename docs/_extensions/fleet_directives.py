"""Sphinx directives whose content is generated from the code: Markdown, parsed where they stand."""

from abc import ABC, abstractmethod

import api_reference
import cli_reference
import reading_order
import task_facts
import yaml_reference
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class GeneratedDirective(SphinxDirective, ABC):
    """A directive that is replaced by Markdown."""

    @abstractmethod
    def markdown(self) -> str:
        """Returns the Markdown."""

    def run(self) -> list[nodes.Node]:
        """Returns the parsed Markdown."""
        return self.parse_text_to_nodes(self.markdown(), allow_section_headings=True)


class Api(GeneratedDirective):
    """The documentation of the names in its content, one a line."""

    has_content = True

    def markdown(self) -> str:
        """Returns the Markdown."""
        return api_reference.entries(line for line in self.content if line.strip())


class ModuleText(GeneratedDirective):
    """The docstring of the module that its argument names."""

    required_arguments = 1

    def markdown(self) -> str:
        """Returns the Markdown."""
        return api_reference.module_text(self.arguments[0])


class CliReference(GeneratedDirective):
    """The reference of the programs."""

    def markdown(self) -> str:
        """Returns the Markdown."""
        return cli_reference.reference(cli_reference.programs())


class YamlReference(GeneratedDirective):
    """The reference of YAML files."""

    def markdown(self) -> str:
        """Returns the Markdown."""
        return yaml_reference.reference()


class TaskFacts(GeneratedDirective):
    """The facts of a task of the package, which its argument names."""

    required_arguments = 1

    def markdown(self) -> str:
        """Returns the Markdown."""
        return task_facts.facts(self.arguments[0])


class TaskTable(GeneratedDirective):
    """The tasks of the package, each with a link to its page beside the one where the table is."""

    def markdown(self) -> str:
        """Returns the Markdown."""
        return task_facts.tasks()


class RoomFiles(GeneratedDirective):
    """The files of a room of the package, which its argument names, in the order of reading."""

    required_arguments = 1

    def markdown(self) -> str:
        """Returns the Markdown."""
        return reading_order.room_table(self.arguments[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the directives."""
    app.add_directive("api", Api)
    app.add_directive("module-text", ModuleText)
    app.add_directive("cli-reference", CliReference)
    app.add_directive("yaml-reference", YamlReference)
    app.add_directive("task-facts", TaskFacts)
    app.add_directive("task-table", TaskTable)
    app.add_directive("room-files", RoomFiles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
