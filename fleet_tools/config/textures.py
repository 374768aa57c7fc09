"""The pictures that surfaces can wear, by name."""

from pathlib import Path
from typing import Annotated

import pydantic

from fleet_tools.errors import UnknownNameError
from fleet_tools.utils.resources import assets_root

PLAIN = "plain"
"""No picture: the surface's own colour."""


def texture_names() -> list[str]:
    """`plain`, and the names of the pictures that come with the package."""
    return [PLAIN, *sorted(path.stem for path in _folder().glob("*.png"))]


def texture_file(name: str) -> Path | None:
    """Returns the PNG of a texture, or None for `plain`.

    Raises:
        UnknownNameError: There is no such texture.
    """
    if name not in texture_names():
        raise UnknownNameError("texture", name, texture_names())
    return None if name == PLAIN else _folder() / f"{name}.png"


def _folder() -> Path:
    return assets_root() / "textures"


def _checked(name: str) -> str:
    texture_file(name)
    return name


Texture = Annotated[str, pydantic.AfterValidator(_checked)]
