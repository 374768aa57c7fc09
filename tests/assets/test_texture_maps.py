import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fleet_tools.assets.texture_maps import SHAPE, TEXTURES, picture, png
from fleet_tools.config.textures import texture_file, texture_names

PIL = pytest.importorskip("PIL.Image")


def decoded(content):
    import io

    return np.asarray(PIL.open(io.BytesIO(content)))


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_another_library_reads_the_same_pixels(image):
    np.testing.assert_array_equal(decoded(png(image)), image)


def test_every_texture_ships():
    assert texture_names()[1:] == sorted(TEXTURES)


@pytest.mark.parametrize("name", TEXTURES)
def test_what_ships_is_what_is_drawn(name):
    shipped = decoded(texture_file(name).read_bytes())
    assert shipped.shape == (*SHAPE, 3)
    # One level of 32, where another machine's last bit decides.
    difference = np.abs(shipped.astype(int) - decoded(picture(name)))
    assert difference.max() <= 8
    assert (difference > 0).mean() < 0.01
