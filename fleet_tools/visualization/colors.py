"""Colours of annotations and of contact sheets."""

Color = tuple[float, float, float]
"""Red, green and blue in [0, 1]."""

TOOL_COLOR: Color = (0.90, 0.20, 0.15)
OBJECT_COLOR: Color = (0.10, 0.35, 0.85)
PLANNED_COLOR: Color = (0.15, 0.60, 0.30)
TRAVELLED_COLOR: Color = (0.95, 0.60, 0.10)

TEXT_COLOR, MUTED_COLOR = "#22262e", "#6b7280"
SUCCESS_COLOR, FAILURE_COLOR = "#2f7d4f", "#c0392b"
