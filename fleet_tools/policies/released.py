"""Checkpoints that belong to a release, by name: "fleet-tools/bc_hammer".

`checkpoints/manifest.json` of the package has for each name its file, size and SHA-256. A file is
read from the first place that has it, and from there only if both are right:

    FLEET_TOOLS_CHECKPOINTS     a folder of yours, if this environment variable names one, such as
                                leaderboard/entries of a checkout
    the package                 small ones
    the user's cache            where `fleet-tools checkpoints get` puts them

Nothing is fetched unless `get` is asked to, and all are safetensors files, which hold no code.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pydantic

from fleet_tools.config.values import Count, Value, parse
from fleet_tools.errors import FleetToolsError, UnknownNameError
from fleet_tools.storage import strict_json

PREFIX = "fleet-tools/"
"""Prefix of the names of released checkpoints."""

FOLDER = Path(__file__).with_name("checkpoints")
MANIFEST = FOLDER / "manifest.json"
CHECKPOINTS = "FLEET_TOOLS_CHECKPOINTS"

_PATH = r"[a-z0-9_]+(/[a-z0-9_]+)*"
_NAME = re.compile(_PATH)


class ReleasedCheckpointError(FleetToolsError, RuntimeError):
    """A released checkpoint is not here, or a file in its place is another one."""


class Asset(Value):
    """A file of a release.

    Attributes:
        file: Its path in the folder of the release's files.
        size: Its size, bytes.
        sha256: Its SHA-256, hexadecimal.
        about: What the policy is.
    """

    file: Annotated[str, pydantic.Field(pattern=rf"^{_PATH}\.safetensors$")]
    size: Count
    sha256: Annotated[str, pydantic.Field(pattern=r"^[0-9a-f]{64}$")]
    about: str = ""

    def problem(self, content: bytes) -> str | None:
        """Returns why content is not the file's, or None if it is."""
        if len(content) != self.size:
            return f"it has {len(content)} bytes instead of {self.size}"
        digest = hashlib.sha256(content).hexdigest()
        return None if digest == self.sha256 else f"its SHA-256 is {digest}, not {self.sha256}"


class Manifest(Value):
    """Checkpoints of a release.

    Attributes:
        release: Version of the package.
        checkpoints: Files by the name of the policy, such as "keypoints_elman_each/hammer".
    """

    release: str
    checkpoints: dict[str, Asset] = {}

    @pydantic.model_validator(mode="after")
    def _names(self) -> "Manifest":
        files = [asset.file for asset in self.checkpoints.values()]
        if len(set(files)) < len(files):
            raise ValueError("two checkpoints have the same file")
        for name in self.checkpoints:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name such as keypoints_elman_each/hammer")
        return self


def read_manifest(path: Path = MANIFEST) -> Manifest:
    """Reads a manifest.

    Raises:
        ConfigError: It is damaged.
        OSError: There is none.
    """
    return parse(Manifest, strict_json.load(path), str(path))


def find_asset(name: str, manifest: Manifest | None = None) -> Asset:
    """Returns a file by the name of its policy, with `PREFIX` or without.

    Raises:
        UnknownNameError: The manifest has no such policy.
    """
    assets = (manifest or read_manifest()).checkpoints
    name = name.removeprefix(PREFIX)
    if name not in assets:
        remedy = f"A file in a folder of this name is given as ./{PREFIX}FILE."
        raise UnknownNameError("released checkpoint", name, assets, remedy)
    return assets[name]


def find_file(name: str) -> Path:
    """Returns the file of a released checkpoint, whose content is the one of the release.

    Args:
        name: Name of the policy, with `PREFIX` or without.

    Raises:
        UnknownNameError: There is no such policy.
        ReleasedCheckpointError: Its file is not here, or a file in its place has another content.
    """
    asset = find_asset(name)
    for path in places(asset):
        if os.path.isfile(path):  # `Path.is_file` raises where a name is too long
            if problem := asset.problem(path.read_bytes()):
                raise ReleasedCheckpointError(
                    f"{path} differs from the file of the release: {problem}. It was not loaded. "
                    "Remove it, and download it again by `fleet-tools checkpoints get`."
                )
            return path
    name = name.removeprefix(PREFIX)
    raise ReleasedCheckpointError(
        f"{asset.file} ({asset.size:,} bytes), the checkpoint {PREFIX}{name}, is not on this "
        f"machine. Get it by `fleet-tools checkpoints get {name} --source FOLDER_OR_URL`, or name "
        f"its folder in {CHECKPOINTS}."
    )


def find_path(name: str) -> Path:
    """Returns the file of a released checkpoint, if a name has `PREFIX`; otherwise it is a path.

    Raises:
        UnknownNameError, ReleasedCheckpointError: See `find_file`.
    """
    return find_file(name) if name.startswith(PREFIX) else Path(name)


def places(asset: Asset) -> Iterator[Path]:
    """Yields where a file may lie, first to last."""
    if folder := os.environ.get(CHECKPOINTS):
        yield Path(folder).absolute() / asset.file
    yield FOLDER / asset.file
    yield cache_folder() / asset.sha256[:16] / asset.file


def cache_folder() -> Path:
    """Returns the folder below which checkpoints are kept for this user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fleet-tools" / "checkpoints"
