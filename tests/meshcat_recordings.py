"""Reads what a Meshcat recording moves and shows, from its HTML file alone."""

import base64
import re
import struct


def tracks(html: str) -> dict[tuple[str, str], list[tuple[float, object]]]:
    """Returns (time in s, value) pairs by path and property, such as "position" or "visible"."""
    found = {}
    for message in messages(html):
        if message["type"] != "set_animation":
            continue
        for animation in message["animations"]:
            clip = animation["clip"]
            for track in clip["tracks"]:
                pairs = [(key["time"] / clip["fps"], key["value"]) for key in track["keys"]]
                found[animation["path"], track["name"].lstrip(".")] = pairs
    return found


def objects(html: str) -> set[str]:
    """Returns the paths of all objects."""
    return {message["path"] for message in messages(html) if message["type"] == "set_object"}


def messages(html: str) -> list[dict]:
    """Returns the commands to the browser that the file holds."""
    data = re.findall(r'fetch\("data:application/octet-binary;base64,([^"]+)"', html)
    unpacked = (_unpack(memoryview(base64.b64decode(one)))[0] for one in data)
    return [one for one in unpacked if isinstance(one, dict) and "type" in one]


def _unpack(data: memoryview) -> tuple[object, memoryview]:
    """Reads one MessagePack value (msgpack.org, the specification); returns it and the rest."""
    kind, data = data[0], data[1:]
    if kind < 0x80:
        return kind, data
    if kind < 0x90:
        return _items(kind & 0x0F, data, pairs=True)
    if kind < 0xA0:
        return _items(kind & 0x0F, data, pairs=False)
    if kind < 0xC0:
        return _take(kind & 0x1F, data, text=True)
    if kind >= 0xE0:
        return kind - 0x100, data
    if kind in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[kind], data
    numbers = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
    numbers |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    if kind in numbers:
        return _number(numbers[kind], data)
    lengths = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xC7: ">B", 0xC8: ">H", 0xC9: ">I"}
    lengths |= {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
    if kind in lengths:
        length, data = _number(lengths[kind], data)
        if kind >= 0xDC:
            return _items(length, data, pairs=kind >= 0xDE)
        if kind in (0xC7, 0xC8, 0xC9):
            data = data[1:]  # an extension's type
        return _take(length, data, text=kind >= 0xD9)
    return _take(1 << (kind - 0xD4), data[1:], text=False)  # a short extension


def _number(format: str, data: memoryview) -> tuple[float, memoryview]:
    size = struct.calcsize(format)
    return struct.unpack(format, data[:size])[0], data[size:]


def _take(length: int, data: memoryview, text: bool) -> tuple[object, memoryview]:
    content = bytes(data[:length])
    return (content.decode() if text else content), data[length:]


def _items(count: int, data: memoryview, pairs: bool) -> tuple[object, memoryview]:
    items = []
    for _ in range(2 * count if pairs else count):
        item, data = _unpack(data)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if pairs else items), data
