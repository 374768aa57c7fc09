"""Lists, gets and adds checkpoints of a release: `python -m fleet_tools.checkpoints list`."""

import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated

import pydantic
from tyro.conf import Positional, arg

from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError
from fleet_tools.policies.released import (
    MANIFEST,
    PREFIX,
    Asset,
    Manifest,
    ReleasedCheckpointError,
    cache_folder,
    find_asset,
    places,
    read_manifest,
)
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.utils import cli

_TIMEOUT_S = 60.0


class ListOptions(cli.Options):
    """Prints the checkpoints of this release: name, size, SHA-256, and where each lies.

    Exit codes:
    0: they are printed.
    """


class GetOptions(cli.Options):
    """Copies checkpoints of this release into the cache, from a folder or from the network.

    A file whose size or SHA-256 is not the manifest's is refused, and not kept.

    Exit codes:
    0: they are here.
    1: a file could not be read, or is another one.
    2: it cannot begin.
    """

    names: Annotated[
        tuple[str, ...], Positional, arg(metavar="NAME ..."), pydantic.Field(min_length=1)
    ]
    """Names of policies, such as keypoints_elman_each/hammer."""
    source: str
    """Folder of the files; or the address of one, such as https://SERVER/RELEASE."""


class AddOptions(cli.Options):
    """Adds a checkpoint to a manifest, for a release.

    Exit codes:
    0: it is added.
    2: it cannot begin.
    """

    file: Annotated[Path, Positional, arg(metavar="FILE")]
    """The checkpoint, in the folder of the release's files."""
    name: str
    """Name of the policy, such as keypoints_elman_each/hammer."""
    folder: Path
    """Folder of the release's files, such as leaderboard/entries."""
    about: str = ""
    """Description of the policy and of its task."""
    manifest: Path = MANIFEST
    """The manifest."""


def _list(options: ListOptions) -> int:
    manifest = read_manifest()
    rows = {
        name: {
            **asset.model_dump(),
            "path": next((str(path) for path in places(asset) if os.path.isfile(path)), None),
        }
        for name, asset in manifest.checkpoints.items()
    }
    options.report(
        {"release": manifest.release, "checkpoints": rows},
        lambda: "\n".join(
            f"{PREFIX}{name}  {row['size'] / 1e6:.1f} MB  {row['path'] or 'not here'}\n"
            f"    {row['about']}\n    SHA-256 {row['sha256']}"
            for name, row in rows.items()
        ),
    )
    return cli.OK


def _get(options: GetOptions) -> int:
    assets = [find_asset(name) for name in options.names]
    paths = []
    for asset in assets:
        content = _content(asset, options.source)
        if problem := asset.problem(content):
            print(f"{asset.file} of {options.source} is refused: {problem}.", file=sys.stderr)
            return cli.FAILED
        path = cache_folder() / asset.sha256[:16] / asset.file
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
        paths.append(str(path))
    options.report({"paths": paths}, lambda: "\n".join(paths))
    return cli.OK


def _content(asset: Asset, source: str) -> bytes:
    """Returns the content of a file, of which no more is read than one byte beyond its size.

    Raises:
        ReleasedCheckpointError: It cannot be read.
    """
    try:
        if source.startswith(("https://", "http://")):
            address = f"{source.rstrip('/')}/{asset.file}"
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
                return answer.read(asset.size + 1)
        with (Path(source) / asset.file).open("rb") as file:
            return file.read(asset.size + 1)
    except (OSError, ValueError) as error:
        raise ReleasedCheckpointError(f"{asset.file} of {source} cannot be read: {error}") from None


def _add(options: AddOptions) -> int:
    from fleet_tools.baselines.policies.checkpoint import env_kwargs_of

    env_kwargs_of(options.file)  # it is a checkpoint
    content, folder = options.file.read_bytes(), options.folder.resolve()
    if not options.file.resolve().is_relative_to(folder):
        raise ConfigError(f"{options.file} is not in {options.folder}. Copy it there first.")
    given = {
        "file": options.file.resolve().relative_to(folder).as_posix(),
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "about": options.about,
    }
    asset = parse(Asset, given, str(options.file))
    before = read_manifest(options.manifest)
    if before.checkpoints.get(options.name, asset) != asset:
        raise ConfigError(
            f"{options.manifest} has {options.name} with other content. Files of a release never "
            "change; choose another name."
        )
    after = parse(
        Manifest,
        {**before.model_dump(), "checkpoints": {**before.checkpoints, options.name: asset}},
        f"{options.manifest} with {options.name}",
    )
    write_file(options.manifest, json.dumps(after.model_dump(), indent=1) + "\n")
    options.report(asset.model_dump(), lambda: f"{PREFIX}{options.name}: {asset.sha256}")
    return cli.OK


PROGRAM = cli.Program(
    "checkpoints",
    {
        "list": cli.Command(ListOptions, _list),
        "get": cli.Command(GetOptions, _get),
        "add": cli.Command(AddOptions, _add),
    },
    "Trained policies that belong to a release, such as fleet-tools/bc_hammer.",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
