"""Recordings in pages: an image, and in its place, once it is clicked, the episode in a viewer.

The recordings are files of the documentation, which `docs/images/task_recordings.py` makes. The
viewer is Meshcat's script, of which the site gets one copy from the installed Drake.
"""

import base64
import shutil
from pathlib import Path

from docutils import nodes
from pydrake.common import GetDrakePath
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).parents[1]
SHARED = "shared"
"""Name of the recording's part that all others have in common."""
LEGEND = (
    "Red: keypoints of the tool. Blue: keypoints of the object. Green: the plan. Orange: the path "
    "so far. Drag to turn, scroll to zoom, move the slider through time."
)


class Recording(SphinxDirective):
    """The recording that the argument names, with a legend; the content is its caption."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Returns the image, a link that `recordings.js` opens in place, caption and legend."""
        name = self.arguments[0]
        up = "../" * self.env.docname.count("/")
        for suffix in (".gz", ".webp"):
            self.env.note_dependency(str(DOCS / "recordings" / f"{name}{suffix}"))
        image = f"![The episode of the task {name}, as a scene to turn around]({up}recordings/"
        opened = f'<div class="recording"><a href="{up}_static/recording.html?{name}">'
        return [
            nodes.raw("", opened, format="html"),
            *self.parse_text_to_nodes(f"{image}{name}.webp)"),
            nodes.raw("", "<span>Turn this episode around</span></a></div>", format="html"),
            *self.parse_content_to_nodes(),
            *self.parse_text_to_nodes(LEGEND),
        ]


def write_recordings(static: Path) -> None:
    """Writes the viewer and all recordings into a folder of static files, where they play."""
    folder = static / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(DOCS / "_static" / "recording.html", static / "recording.html")
    script = Path(GetDrakePath(), "geometry", "meshcat.js")
    shutil.copyfile(script, folder / script.name)
    for file in (DOCS / "recordings").glob("*.gz"):
        text = base64.b64encode(file.read_bytes()).decode()
        (folder / f"{file.stem}.js").write_text(f'recording("{text}");\n', encoding="utf-8")


def _write(app: Sphinx, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html":
        write_recordings(Path(app.outdir, "_static"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the directive and its files."""
    app.add_directive("recording", Recording)
    app.add_js_file("recordings.js")
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
