"""Sphinx directives whose content is generated from the code: Markdown, parsed where they stand."""

from collections.abc import Callable

import api_reference
import cli_reference
import reading_order
import task_facts
import yaml_reference
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_GENERATED: dict[str, Callable[[SphinxDirective], str]] = {
    # The documentation of the names in its content, one a line.
    "api": lambda given: api_reference.entries(line for line in given.content if line.strip()),
    # The docstring of the module that its argument names.
    "module-text": lambda given: api_reference.module_text(given.arguments[0]),
    # The reference of the programs.
    "cli-reference": lambda given: cli_reference.reference(cli_reference.programs()),
    # The reference of YAML files.
    "yaml-reference": lambda given: yaml_reference.reference(),
    # The facts of a task of the package, which its argument names.
    "task-facts": lambda given: task_facts.facts(given.arguments[0]),
    # The tasks of the package, each with a link to its page beside the one where the table is.
    "task-table": lambda given: task_facts.tasks(),
    # The files of a room that its argument names, in the order of reading.
    "room-files": lambda given: reading_order.room_table(given.arguments[0]),
}
"""What returns the Markdown of each directive."""


class Generated(SphinxDirective):
    """A directive that is replaced by Markdown."""

    optional_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Returns the parsed Markdown."""
        return self.parse_text_to_nodes(_GENERATED[self.name](self), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the directives."""
    for name in _GENERATED:
        app.add_directive(name, Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
