"""Reads what a Meshcat recording moves and shows, from its HTML file alone."""

import base64
import gzip
import re
from typing import Any

import msgpack

Keyframes = list[tuple[float, Any]]
"""Pairs of time (s) and value."""


def tracks(html: str) -> dict[tuple[str, str], Keyframes]:
    """Returns keyframes by path and property, such as "position" or "visible"."""
    found = {}
    for message in messages(html):
        if message["type"] != "set_animation":
            continue
        for animation in message["animations"]:
            clip = animation["clip"]
            for track in clip["tracks"]:
                keyframes = [(key["time"] / clip["fps"], key["value"]) for key in track["keys"]]
                found[animation["path"], track["name"].lstrip(".")] = keyframes
    return found


def object_paths(html: str) -> set[str]:
    """Returns the paths of all objects."""
    return {message["path"] for message in messages(html) if message["type"] == "set_object"}


def unpacked(html: str) -> str:
    """Returns the page that a browser shows of the file."""
    packed = re.search(r'atob\("([^"]+)"\)', html)
    return gzip.decompress(base64.b64decode(packed[1])).decode() if packed else html


def messages(html: str) -> list[dict[str, Any]]:
    """Returns the commands to the browser that the file holds."""
    encoded = re.findall(r'fetch\("data:application/octet-binary;base64,([^"]+)"', unpacked(html))
    decoded = [msgpack.unpackb(base64.b64decode(data), strict_map_key=False) for data in encoded]
    return [message for message in decoded if isinstance(message, dict) and "type" in message]
