"""Textures: the shipped images are those that the code draws."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fleet_tools.assets.texture_maps import SHAPE, TEXTURES, encode_png, texture_png
from fleet_tools.config.file_access import texture_file, texture_names

PIL = pytest.importorskip("PIL.Image")


def decoded(content: bytes) -> np.ndarray:
    return np.asarray(PIL.open(io.BytesIO(content)))


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_another_library_reads_the_same_pixels(image: np.ndarray) -> None:
    np.testing.assert_array_equal(decoded(encode_png(image)), image)


def test_every_texture_ships() -> None:
    assert texture_names()[1:] == sorted(TEXTURES)


@pytest.mark.parametrize("name", TEXTURES)
def test_shipped_image_is_the_drawn_one(name: str) -> None:
    file = texture_file(name)
    assert file is not None
    shipped = decoded(file.read_bytes())
    assert shipped.shape == (*SHAPE, 3)
    # One level of 32, which another machine's last bit may decide.
    difference = np.abs(shipped.astype(int) - decoded(texture_png(name)))
    assert difference.max() <= 8
    assert (difference > 0).mean() < 0.01
