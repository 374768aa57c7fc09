"""Whether images can be rendered here."""

import pytest

from fleet_tools.errors import MissingLibraryError
from fleet_tools.perception.opengl import require_driver


def has_gl() -> bool:
    """Returns whether OpenGL and its driver are there."""
    try:
        require_driver()
    except MissingLibraryError:
        return False
    return True


needs_gl = pytest.mark.skipif(not has_gl(), reason="this system has no libEGL or libGL")
