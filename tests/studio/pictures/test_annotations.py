"""Annotations, drawn into Meshcat."""

import numpy as np
from support.meshcat_recordings import tracks

from fleet_tools.perception.point_cloud import OBJECT_MASK
from fleet_tools.studio.pictures.annotations import annotate
from fleet_tools.studio.pictures.recording import MeshcatDrawing


def test_only_the_cloud_of_the_moment_is_visible(make):
    env = make(render_mode="human")
    assert env.meshcat is not None
    observation, _ = env.reset(seed=0)
    env.meshcat.DeleteRecording()
    env.meshcat.StartRecording(64.0)
    drawing = MeshcatDrawing(env.meshcat)
    cloud = np.array([[0, 0, 0.1, 1], [0, 0, 0.2, 0]], np.float32)
    for k in range(3):
        drawing.draw(annotate(env, observation | {"point_cloud": cloud}), float(k))
    env.meshcat.StopRecording()
    env.meshcat.PublishRecording()
    moved = tracks(env.meshcat.StaticHtml())
    for owner in ("tool", "object"):
        switches = [
            dict(track)
            for (path, name), track in sorted(moved.items())
            if f"/annotations/cloud/{owner}/" in path and name == "visible"
        ]
        assert switches == [
            {0.0: True, 1.0: False},
            {0.0: False, 1.0: True, 2.0: False},
            {0.0: False, 2.0: True},
        ]


def test_cloud_in_the_frame_of_the_end_effector_is_drawn_in_the_world(hammer):
    observation, _ = hammer.reset(seed=0)
    state = hammer.world_state()
    p_E = np.array(list(state.in_end_effector(state.p_W_object).values()))
    visible = np.column_stack([p_E, np.full(len(p_E), OBJECT_MASK)])
    absent = np.zeros((3, 4))
    rows = np.vstack([visible, absent]).astype(np.float32)
    cloud = annotate(hammer, observation | {"point_cloud": rows}).cloud
    assert cloud is not None
    np.testing.assert_allclose(cloud.object, list(state.p_W_object.values()), atol=1e-6)
    assert cloud.tool.shape == (0, 3)
    assert annotate(hammer, observation).cloud is None
