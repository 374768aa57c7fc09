"""The studio: pages and tools that make things, above everything that they show.

labelling       keypoints and grasps by clicks on a mesh, in the browser (`fleet_tools.label`)
teleoperation   a person as a policy, in the browser (`fleet_tools.teleop`)
pictures        recordings, videos, filmstrips and contact sheets (`fleet_tools.view` and others)
"""
