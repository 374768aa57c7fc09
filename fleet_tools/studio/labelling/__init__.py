"""Labelling of a mesh by clicks on its surface: `python -m fleet_tools.label --help`.

    labels                        what is labelled, and what a person has labelled
    subjects                      a mesh that becomes a model, the folder of a model, an example
    picking                       where a click meets the surface, and what it means there
    proposals                     what follows from labels: the pose of the hand
    session                       what a person does, independent of the browser
    expert_trial                  the expert uses the model, in a process of its own
    page, panel, scene_view       the browser

A labelled mesh goes through the importer (`fleet_tools.studio.importing`), and is what
`assets import` writes with the same coordinates.
"""
