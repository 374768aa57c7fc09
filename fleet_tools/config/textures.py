"""Surface textures, by name."""

from pathlib import Path
from typing import Annotated

import pydantic

from fleet_tools.config.resources import assets_root
from fleet_tools.errors import UnknownNameError

PLAIN = "plain"
"""No texture: the surface keeps its own colour."""


def texture_names() -> list[str]:
    """Returns `plain` and the names of the textures that come with the package."""
    return [PLAIN, *sorted(path.stem for path in _folder().glob("*.png"))]


def texture_file(name: str) -> Path | None:
    """Returns the PNG file of a texture, or None for `plain`.

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
