"""Rendering in forked and spawned processes."""

import numpy as np
import pytest
from support.processes import run_python
from support.rendering import needs_gl

FORKED = """
import multiprocessing, os, sys
import gymnasium, numpy as np, json
import fleet_tools

def make(**kwargs):
    return gymnasium.make("FleetTools/Hammer-v0", tool="claw", object="round_nail", **kwargs)

def in_child(work):
    pipe, other = os.pipe()
    if os.fork() == 0:
        try:
            result = work()
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        os.write(other, str(result).encode())
        os._exit(0)
    os.close(other)
    return os.fdopen(pipe).read()

def brightness(env):
    return int(env.render().sum())
"""


@needs_gl
def test_children_render_unless_their_process_rendered_before():
    one, two, here, inherited, made, later = run_python(
        FORKED
        + """
env, other = make(render_mode="rgb_array"), make(render_mode="rgb_array")
work = lambda: (env.reset(seed=0), brightness(env))[1]
found = [int(in_child(work)), int(in_child(work)), work()]
found.append(in_child(lambda: brightness(env)))
found.append(in_child(lambda: other.reset(seed=0) and brightness(other)))
print(json.dumps([*found, brightness(env)]))
"""
    )
    assert one == two == here == later > 0
    for message in (inherited, made):  # refused with the remedy
        assert message.startswith("ForkedRendererError")
        assert 'vector_kwargs={"context": "spawn"}' in message


VECTOR = """
import gymnasium, json, numpy as np, fleet_tools
def points(seeds, mode, **kwargs):
    envs = gymnasium.make_vec("FleetTools/Hammer-v0", len(seeds), tool="claw", object="round_nail",
                              obs_mode="point_cloud", camera_size=(96, 72), cloud_size=(40, 30),
                              vectorization_mode=mode, vector_kwargs=kwargs)
    first, _ = envs.reset(seed=seeds)
    rows = [first["point_cloud"]]
    for _ in range(2):
        observation, *_, info = envs.step(np.zeros((len(seeds), 6), np.float32))
        rows.append(observation["point_cloud"])
    assert info["cameras"]["wrist"]["K"].shape == (len(seeds), 3, 3)
    envs.close()
    return np.stack(rows, axis=1).astype(float).round(6).tolist()
forked = points([3, 4], "async")  # before anything is rendered here
spawned = points([4], "async", context="spawn", shared_memory=True)
print(json.dumps([forked, spawned, points([3, 4], "sync")]))
"""


@pytest.mark.slow
@needs_gl
def test_vector_environments_render_in_their_own_processes():
    forked, spawned, here = run_python(VECTOR)
    assert np.abs(here).max() > 0
    assert forked == here
    assert spawned == here[1:]
