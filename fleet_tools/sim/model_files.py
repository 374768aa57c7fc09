"""The files of a model, with bounded sizes and one hash of all.

A model file names meshes and textures, and these name others: materials (Wavefront's `mtllib`),
their textures, and the buffers and images of glTF. Whatever else lies in the folder, such as the
scan from which a mesh was made, is not part of the model.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

from fleet_tools.config.file_access import read_bounded
from fleet_tools.errors import ConfigError, shown
from fleet_tools.sim.model_xml import inside, mesh_files

MAX_FOLDER_BYTES = 100_000_000
"""Largest size of all files of a model."""

MAX_FILES = 1000
"""Largest number of files of a model."""

_MATERIALS = re.compile(rb"^[ \t]*mtllib[ \t]+(.+?)[ \t\r]*$", re.MULTILINE)
_TEXTURES = re.compile(
    rb"^[ \t]*(?:map_\w+|norm|bump|disp|decal|refl)[ \t]+(.+?)[ \t\r]*$", re.MULTILINE | re.I
)
_GLTF = re.compile(rb'"uri"\s*:\s*"([^"]+)"')
_NAMES = {
    ".obj": _MATERIALS,
    ".mtl": _TEXTURES,
    ".gltf": _GLTF,
    ".glb": _GLTF,
    ".dae": re.compile(rb"<init_from>\s*(?:<ref>)?([^<]+?)\s*<"),
    ".ply": re.compile(rb"^comment TextureFile[ \t]+(.+?)[ \t\r]*$", re.MULTILINE),
}
"""Keywords that refer to another file, by the suffix of the file."""


def model_files(file: Path, beside: str = "keypoints.yaml") -> dict[str, bytes]:
    """Returns the content of each file of a model by its path, relative to the model's folder.

    Args:
        file: The model file.
        beside: Name of the file beside it that says what the model does not.

    Raises:
        ConfigError: The model file is not allowed (`fleet_tools.sim.model_xml`), or a mesh names a
            file outside of the folder, or the files are too many or too large.
    """
    folder = file.parent.resolve()
    waiting = [folder / file.name, folder / beside, *mesh_files(file)]
    files: dict[str, bytes] = {}
    size = 0
    while waiting:
        path = waiting.pop()
        name = path.relative_to(folder).as_posix()
        if name in files:
            continue
        try:
            files[name] = content = read_bounded(path, MAX_FOLDER_BYTES - size)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
        size += len(content)
        waiting += files_named_by(path, content, folder)
        if len(files) + len(waiting) > MAX_FILES:
            raise ConfigError(
                f"{folder} has too many files for a model: at most {MAX_FILES} are allowed."
            )
    return dict(sorted(files.items()))


def digest_of(files: Mapping[str, bytes]) -> str:
    """Returns a short hash of the files of a model, by their relative paths."""
    digest = hashlib.blake2b(digest_size=8)
    for name, content in sorted(files.items()):
        for part in (name.encode("utf-8", "surrogateescape"), content):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def model_digest(file: Path) -> str:
    """Returns the hash of a model's files, which are read again when one of them is edited.

    Raises:
        ConfigError: See `model_files`.
    """
    stamps, digest = _KNOWN.get(file, ({}, ""))
    if not stamps or any(_stamp(path) != stamp for path, stamp in stamps.items()):
        files = model_files(file)
        stamps = {path: _stamp(path) for path in (file.parent / name for name in files)}
        digest = digest_of(files)
        _KNOWN[file] = stamps, digest
    return digest


_KNOWN: dict[Path, tuple[dict[Path, tuple[int, int] | None], str]] = {}
"""When a model's files were written, their sizes, and their hash; a reset takes less than that."""


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size


def files_named_by(path: Path, content: bytes, folder: Path) -> Iterator[Path]:
    """Yields the existing files to which a mesh or a material refers.

    Args:
        path: The file.
        content: Its content.
        folder: The model's folder.

    Raises:
        ConfigError: It names a file outside of the folder.
    """
    pattern = _NAMES.get(path.suffix.lower())
    for match in pattern.findall(content) if pattern else ():
        text = match.decode("utf-8", "surrogateescape")
        if pattern is _GLTF and text.startswith("data:"):
            continue
        # A texture's options come before its name, and a line may name several materials.
        names = [_decoded(text)] if pattern is _GLTF else [text, *text.split()]
        for name in dict.fromkeys(names):
            found = inside(folder, os.path.join(path.parent, name))
            if found is None and os.path.isfile(path.parent / name):
                raise ConfigError(
                    f"{path} refers to {shown(name)}, which is outside the model's folder. Copy it "
                    "into the folder, and refer to it by a relative path."
                )
            if found is not None and found.is_file():
                yield found


def _decoded(text: str) -> str:
    """Returns the path of a URI in JSON, in which characters may be escaped in two ways."""
    try:
        return unquote(json.loads(f'"{text}"'))
    except ValueError:  # what no reader takes as a name
        return text
