"""Configuration of the documentation: `python -m sphinx -W -b html docs docs/_build/html`.

The build needs no network. `-t online` adds links to the documentation of other projects, whose
inventories Sphinx downloads.
"""

import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent)]

import fleet_tools  # noqa: E402

project = "Fleet-Tools"
author = "The Fleet-Tools authors"
project_copyright = author
version = release = fleet_tools.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "docstrings",
    "experiment_pages",
    "fleet_directives",
    "llms_text",
    "mathml",
    "notebooks",
    "recordings",
    "repository_links",
]
exclude_patterns = ["_build", "_extensions", "**/tables"]  # tables are included by pages
smartquotes = False  # `--option` stays what it is
default_role = "py:obj"  # what docstrings have in backticks: a link if it is documented, else code
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autodoc_default_options = {"exclude-members": "model_config"}  # of pydantic
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = f"Fleet-Tools {version}"
html_static_path = ["_static"]
html_css_files = ["fleet_tools.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

copybutton_exclude = ".linenos, .gp, .go"

ONLINE = {
    "drake": "https://drake.mit.edu/pydrake",
    "gymnasium": "https://gymnasium.farama.org",
    "numpy": "https://numpy.org/doc/stable",
    "python": "https://docs.python.org/3",
    "torch": "https://docs.pytorch.org/docs/stable",
}
"""Documentation of other projects."""


def setup(app: Sphinx) -> None:
    """Adds links to other projects if the tag `online` is given."""
    if "online" in app.tags:
        app.setup_extension("sphinx.ext.intersphinx")
        app.config.intersphinx_mapping = {name: (url, None) for name, url in ONLINE.items()}
