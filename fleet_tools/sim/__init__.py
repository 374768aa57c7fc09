"""A scene becomes physics: models, scenes, the Drake diagram, and its simulation."""
