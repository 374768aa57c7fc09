"""Images for surfaces, drawn from noise: `python -m fleet_tools.assets.texture_maps`.

An image covers the table once, 1.2 m by 1.6 m. It is pale, so that the tint determines the hue.
"""

import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fleet_tools.config.file_access import assets_root
from fleet_tools.utils import cli

SHAPE = (384, 512)
"""Rows and columns of an image."""


def wood(rng: np.random.Generator) -> np.ndarray:
    """Returns planks whose grain is parallel to the rows, (rows, columns, 3) in [0, 1]."""
    rows, columns = _grid()
    plank = (rows // 48).astype(int)
    shift = rng.uniform(0, 60, plank.max() + 1)[plank]
    waves = 6 * np.sin((columns + 7 * shift) / 70) + 0.3 * _smooth_noise(rng, 24)
    grain = 0.5 + 0.5 * np.sin((rows + waves + shift) * 1.1)
    tone = rng.uniform(0.82, 1.0, plank.max() + 1)[plank] * (0.84 + 0.16 * grain)
    tone[rows % 48 == 0] *= 0.6
    return tone[..., None] * np.array([0.80, 0.62, 0.43])


def cloth(_: np.random.Generator) -> np.ndarray:
    """Returns a plain weave with broad stripes, (rows, columns, 3) in [0, 1]."""
    rows, columns = _grid()
    weave = 0.90 + 0.05 * (rows % 4 < 2) + 0.05 * (columns % 4 < 2)
    stripe = np.where((rows // 32) % 4 == 0, 0.72, 1.0)
    return (weave * stripe)[..., None] * [0.78, 0.82, 0.88]


def stone(rng: np.random.Generator) -> np.ndarray:
    """Returns speckled granite, (rows, columns, 3) in [0, 1]."""
    clouds = _smooth_noise(rng, 8) + 0.5 * _smooth_noise(rng, 3)
    speckles = np.where(rng.random(SHAPE) < 0.06, 0.55, 1.0)
    return ((0.78 + 0.08 * clouds) * speckles)[..., None] * np.array([0.95, 0.94, 0.92])


def tiles(rng: np.random.Generator) -> np.ndarray:
    """Returns square tiles of two tones with dark joints, (rows, columns, 3) in [0, 1]."""
    rows, columns = _grid()
    size = 64
    check = ((rows // size + columns // size) % 2).astype(float)
    tone = 0.74 + 0.18 * check + 0.02 * _smooth_noise(rng, 12)
    tone[(rows % size < 2) | (columns % size < 2)] = 0.5
    return tone[..., None] * np.array([0.94, 0.95, 1.0])


TEXTURES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "cloth": cloth,
    "stone": stone,
    "tiles": tiles,
    "wood": wood,
}


def texture_png(name: str) -> bytes:
    """Returns the PNG file of a texture, which is the same in each call."""
    colours = TEXTURES[name](np.random.default_rng(0))  # (rows, columns, 3) in [0, 1]
    levels = 8 * np.round(31 * np.clip(colours, 0, 1))  # 32 levels make a small file
    return encode_png(levels.astype(np.uint8))


def encode_png(image: np.ndarray) -> bytes:
    """Returns the PNG file (ISO/IEC 15948) of an image, (rows, columns, 3) uint8.

    It is written here rather than by a library whose next version might choose other bytes.
    """
    rows, columns, _ = image.shape
    filtered = np.insert(image.reshape(rows, -1), 0, 0, axis=1)  # filter 0 (none) for each row

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", zlib.compress(filtered.tobytes(), 9)),
            chunk(b"IEND", b""),
        ]
    )


def _grid() -> tuple[np.ndarray, np.ndarray]:
    rows, columns = np.indices(SHAPE)
    return rows, columns


def _smooth_noise(rng: np.random.Generator, width: int) -> np.ndarray:
    """Returns noise of unit variance without structure below a width in pixels."""
    spectrum = np.fft.fft2(rng.normal(size=SHAPE))
    frequencies = np.hypot(np.fft.fftfreq(SHAPE[0])[:, None], np.fft.fftfreq(SHAPE[1]))
    noise = np.fft.ifft2(spectrum * np.exp(-((frequencies * width) ** 2))).real
    return noise / noise.std()


class TextureOptions(cli.Options):
    """Draws the textures of surfaces.

    Exit codes:
    0: the images are written.
    2: it cannot begin.
    """

    output: Path | None = None
    """Folder of the images (default: the package's)."""


def _draw(options: TextureOptions) -> int:
    folder = options.output or assets_root() / "textures"
    folder.mkdir(parents=True, exist_ok=True)
    for name in TEXTURES:
        (folder / f"{name}.png").write_bytes(texture_png(name))
    options.report({"folder": str(folder)}, lambda: str(folder))
    return cli.OK


PROGRAM = cli.Program("assets.texture_maps", cli.Command(TextureOptions, _draw))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
