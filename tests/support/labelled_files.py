"""Small files of labelled examples, in the formats in which public ones are distributed."""

import json
import struct
from pathlib import Path

import numpy as np

from fleet_tools.baselines.experiments.supervised.readers import PIXELS

BATCHES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]


def idx(array: np.ndarray) -> bytes:
    """Returns an array as the content of an IDX file."""
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def drawn(*shape: int, high: int = 256) -> np.ndarray:
    """Returns random bytes below a limit, the same for the same shape."""
    return np.random.default_rng(shape).integers(0, high, shape).astype(np.uint8)


def write_batches(folder: Path, content: bytes | None = None) -> None:
    """Writes CIFAR-10's batches in its binary version, of four images each."""
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(BATCHES):
        labels = np.array([[number], [9], [0], [1]], np.uint8)
        rows = np.hstack([labels, drawn(4, PIXELS) + np.uint8(number)])
        (folder / name).write_bytes(rows.tobytes() if content is None else content)


def write_leaf(folder: Path, content: object) -> Path:
    """Writes a file as LEAF does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "all_data.json").write_text(json.dumps(content))
    return folder


def spoken(*users: str, count: int = 3) -> dict[str, object]:
    """Returns the content of such a file."""
    lines = {"x": ["To be, or not to be"] * count, "y": list("\u00e9!?")[:count]}
    return {
        "users": list(users),
        "num_samples": [count] * len(users),
        "user_data": dict.fromkeys(users, lines),
    }


def write_mnist(folder: Path, training: int = 7, test: int = 3) -> None:
    """Writes MNIST's four files, not compressed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", training), ("t10k", test)):
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx(drawn(count, 28, 28)))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx(drawn(count, high=10)))
