"""Labelling of a mesh by clicks on its surface: `python -m fleet_tools.label --help`.

    faces, picking -> snapping   where a click meets the surface, and what it means there
    symmetry, grasping           what follows from labels: mirror images, the pose of the hand
    example                      a model that shows the keypoints of a family
    labels, draft                what a person has labelled, with undo; the file that keeps it
    subject                      what is labelled: mesh_subject, folder_subject (model_surface)
    session                      what a person does, independent of the browser
    trial -> expert_motion       the expert uses the model, in a process of its own
    page                         the browser: panel, report_html, scene_view, motion_view

A labelled mesh goes through the importer (`fleet_tools.studio.importing`), and is what
`assets import` writes with the same coordinates.
"""
