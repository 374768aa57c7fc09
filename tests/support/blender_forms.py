"""Forms as Drake sends them to the Blender server."""

import hashlib
import json
from typing import Any

SCENE = {"nodes": [{"camera": 0}], "scenes": [{"nodes": [0]}]}
FIELDS = {
    "image_type": "color",
    "width": "64",
    "height": "48",
    "near": "0.05",
    "far": "10.0",
    "focal_x": "60.5",
    "focal_y": "61.5",
    "center_x": "31.5",
    "center_y": "23.5",
    "submit": "Render",
}
BOUNDARY = "------------------------a1b2c3"
FORM = f"multipart/form-data; boundary={BOUNDARY}"
MAX_BYTES = 200_000
"""Largest size of a request, bytes."""


def form(scene: Any = SCENE, **changes: str | None) -> bytes:
    """Returns the form as Drake writes it; a change to None leaves a field out."""
    text = scene if isinstance(scene, bytes) else json.dumps(scene).encode()
    fields = {**FIELDS, "scene_sha256": hashlib.sha256(text).hexdigest(), **changes}
    lines = []
    for name, value in fields.items():
        if value is not None:
            head = f'Content-Disposition: form-data; name="{name}"'.encode()
            lines += [f"--{BOUNDARY}".encode(), head, b"", str(value).encode()]
    head = b'Content-Disposition: form-data; name="scene"; filename="1-color.gltf"'
    lines += [f"--{BOUNDARY}".encode(), head, b"Content-Type: model/gltf+json", b"", text]
    return b"\r\n".join([*lines, f"--{BOUNDARY}--".encode(), b""])
