import json

import numpy as np
from conftest import needs_gl, run_python

FORKED = """
import multiprocessing, os, sys
import gymnasium, numpy as np, json
import fleet_tools

def make(**keywords):
    return gymnasium.make("FleetTools/Hammer-v0", tool="claw", object="round_nail", **keywords)

def in_child(work):
    pipe, other = os.pipe()
    if os.fork() == 0:
        try:
            said = work()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(other, str(said).encode())
        os._exit(0)
    os.close(other)
    return os.fdopen(pipe).read()

def picture(env):
    return int(env.render().sum())
"""


def forked(code: str):
    return run_python(FORKED + code)


@needs_gl
def test_a_child_of_a_process_that_rendered_is_told_how_to_start_instead():
    said = forked("""
env = make(render_mode="rgb_array")
env.reset(seed=0)
inherited = in_child(lambda: picture(env))
made = make(render_mode="rgb_array")
fresh = in_child(lambda: made.reset(seed=0) and picture(made))
print(json.dumps([inherited, fresh, picture(env)]))
""")
    for message in said[:2]:
        assert message.startswith("ForkedRendererError")
        assert 'vector_kwargs={"context": "spawn"}' in message
    assert said[2] > 0


@needs_gl
def test_children_of_a_process_that_only_made_environments_render():
    one, two, here = forked("""
env = make(render_mode="rgb_array")
work = lambda: (env.reset(seed=0), picture(env))[1]
print(json.dumps([int(in_child(work)), int(in_child(work)), work()]))
""")
    assert one == two == here


VECTOR = """
import gymnasium, json, numpy as np, fleet_tools, sys
def run():
    envs = gymnasium.make_vec("FleetTools/Hammer-v0", num_envs=2, tool="claw", object="round_nail",
                              obs_mode="point_cloud", camera_size=(96, 72), cloud_size=(40, 30),
                              vectorization_mode=MODE, vector_kwargs=json.loads(sys.argv[1]))
    first, _ = envs.reset(seed=[3, 4])
    rows = [first["point_cloud"]]
    for _ in range(2):
        observation, *_, info = envs.step(np.zeros((2, 6), np.float32))
        rows.append(observation["point_cloud"])
    assert info["cameras"]["wrist"]["K"].shape == (2, 3, 3)
    envs.close()
    print(json.dumps(np.concatenate(rows).astype(float).round(6).tolist()))
if __name__ == "__main__":
    run()
"""


@needs_gl
def test_vector_environments_render_in_their_own_processes(tmp_path):
    def points(mode: str, **keywords) -> list:
        script = tmp_path / f"{mode}.py"
        script.write_text(VECTOR.replace("MODE", repr(mode)))
        run = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
        return run_python(run, json.dumps(keywords))

    together = points("sync")
    assert np.abs(together).max() > 0
    assert points("async") == together  # forked before anything was rendered
    assert points("async", context="spawn", shared_memory=True) == together
