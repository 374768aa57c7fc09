"""Cameras: rendering, segmentation, point clouds, measurements.

From `obs_mode` to an array, a value passes through five things: `ObservationConfig` (what was asked
for), `Observer` (measures), `Renderer` (shows cameras the world), `Measurement` (what was measured)
and `Observable` (an entry of the observation, `fleet_tools.envs.observations`). Where cameras are
not ideal, `DepthSensor` makes their errors.
"""
