"""The studio: optional programs and pages that make, check and show things.

    importing       a model from a mesh or a scan (`assets import`)
    checking        whether a model is what its family needs (`assets check`), and `assets mend`
    labelling       keypoints and grasps by clicks on a mesh, in the browser (`label`)
    teleoperation   a person as a policy, in the browser (`teleop`)
    photographs     images of stored episodes by Blender (`photograph`)
    pictures        recordings and videos (`view` and others)

The benchmark itself imports nothing from here.
"""
