"""The appearance of scenes: tints and textures change images and nothing else."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.geometry import Rgba
from support.rendering import needs_gl

from fleet_tools.config.file_access import texture_file, texture_names
from fleet_tools.errors import UnknownNameError
from fleet_tools.perception.rendering import HUE_SHARE, tinted, within_material

PLAIN = {
    "tool_tint": (1.0, 1.0, 1.0),
    "object_tint": (1.0, 1.0, 1.0),
    "table_tint": (1.0, 1.0, 1.0),
    "table_texture": "plain",
}
units = st.floats(0, 1)
factors = st.floats(0.1, 3)


@given(st.tuples(units, units, units, units), st.tuples(factors, factors, factors))
def test_a_tint_scales_each_channel_up_to_1(color, tint):
    result = tinted(Rgba(*color), tint)
    channels = [result.r(), result.g(), result.b()]
    np.testing.assert_allclose(channels, np.minimum(np.multiply(color[:3], tint), 1.0))
    assert result.a() == color[3]


@given(st.tuples(factors, factors, factors))
def test_pictures_keep_the_brightness_of_a_tint_and_little_of_its_hue(tint):
    shown = within_material(tint)
    np.testing.assert_allclose(np.mean(shown), np.mean(tint))
    np.testing.assert_allclose(np.ptp(shown), HUE_SHARE * np.ptp(tint), atol=1e-12)
    assert min(shown) > 0.0


@needs_gl
def test_cameras_observe_the_whole_tint_and_pictures_do_not(make):
    """Under the tint of red, a camera loses green and blue; a picture stays nearly grey."""
    mode = {"obs_mode": "rgbd", "channels": ("rgb",), "camera_size": (64, 48)}
    env = make(render_mode="rgb_array", **mode)
    env.reset(seed=0)
    red = {**PLAIN, "table_tint": (1.0, 0.1, 0.1)}
    scene = env.scene.model_copy(update=red)
    observation, _ = env.reset(options={"scene": scene})
    observed = np.median(observation["overhead_rgb"].reshape(-1, 3), axis=0)
    picture = env.image(env.find_view("overhead", size=(64, 48)))
    seen = np.median(picture.reshape(-1, 3), axis=0)
    assert observed[0] > 5 * observed[1]
    assert seen[0] < 2 * seen[1]


@pytest.fixture(scope="module", name="render")
def _render(make):
    """A function that returns the image of a scene with an appearance, and its state's digest."""
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    scene = env.scene

    def render(**appearance: Any) -> tuple[np.ndarray, int]:
        env.reset(options={"scene": scene.model_copy(update={**PLAIN, **appearance})})
        return env.render(), env.state_digest()

    return render


@pytest.fixture(scope="module", name="plain")
def _plain(render):
    return render()


@needs_gl
@pytest.mark.parametrize(
    "appearance",
    [
        {"tool_tint": (0.5, 1.0, 1.0)},
        {"object_tint": (1.0, 0.5, 1.0)},
        {"table_tint": (1.0, 1.0, 0.5)},
        *({"table_texture": name} for name in texture_names()[1:]),
    ],
    ids=str,
)
def test_the_appearance_changes_the_image_and_nothing_else(render, plain, appearance):
    image, digest = plain
    other, other_digest = render(**appearance)
    assert 50 < (image != other).any(axis=2).sum() < 0.8 * image[..., 0].size
    assert digest == other_digest
    np.testing.assert_array_equal(render()[0], image)


def test_an_unknown_texture_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"texture: 'wod'. Did you mean 'wood'"):
        texture_file("wod")
