import numpy as np
import pytest
from conftest import needs_gl
from hypothesis import given
from hypothesis import strategies as st
from pydrake.geometry import Rgba

from fleet_tools.config.textures import texture_file, texture_names
from fleet_tools.errors import UnknownNameError
from fleet_tools.perception.appearance import tinted

PLAIN = {
    "tool_tint": (1.0, 1.0, 1.0),
    "object_tint": (1.0, 1.0, 1.0),
    "table_tint": (1.0, 1.0, 1.0),
    "table_texture": "plain",
}
units = st.floats(0, 1)
factors = st.floats(0.1, 3)


@given(st.tuples(units, units, units, units), st.tuples(factors, factors, factors))
def test_a_tint_scales_each_channel_up_to_its_end(color, tint):
    result = tinted(Rgba(*color), tint)
    channels = [result.r(), result.g(), result.b()]
    np.testing.assert_allclose(channels, np.minimum(np.multiply(color[:3], tint), 1.0))
    assert result.a() == color[3]


def picture(env, scene, **looks):
    env.reset(options={"scene": scene.model_copy(update={**PLAIN, **looks})})
    return env.render(), env.state_digest()


@needs_gl
@pytest.mark.parametrize(
    "looks",
    [
        {"tool_tint": (0.5, 1.0, 1.0)},
        {"object_tint": (1.0, 0.5, 1.0)},
        {"table_tint": (1.0, 1.0, 0.5)},
        *({"table_texture": name} for name in texture_names()[1:]),
    ],
    ids=str,
)
def test_looks_change_the_picture_and_nothing_else(make, looks):
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    scene = env.scene
    plain, digest = picture(env, scene)
    other, other_digest = picture(env, scene, **looks)
    again, _ = picture(env, scene)
    assert 50 < (plain != other).any(axis=2).sum() < 0.8 * plain[..., 0].size
    np.testing.assert_array_equal(plain, again)
    assert digest == other_digest


def test_an_unknown_texture_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="texture 'wod'; did you mean 'wood'"):
        texture_file("wod")
