"""Libraries that may be missing: what each is for, and the line that installs it."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from fleet_tools.errors import MissingLibraryError, UnknownNameError

GLIB_LINE = "apt-get install -y libglib2.0-0"
"""What Drake's import needs on a minimal Debian or Ubuntu."""

GL_LINE = "apt-get install -y libegl1 libgl1"
"""What images need there: EGL, and with libgl1 Mesa's drivers, which render without a GPU, too."""


@dataclass(frozen=True)
class Library:
    """A library that not everyone needs.

    Attributes:
        module: What is imported.
        distribution: What is installed.
        extra: Of this package, which installs it.
        purpose: What it is needed for, as in "needed to ...".
    """

    module: str
    distribution: str
    extra: str
    purpose: str


OPTIONAL = (
    Library("coacd", "coacd", "import", "part imported meshes into convex pieces"),
    Library("fast_simplification", "fast-simplification", "import", "simplify imported meshes"),
    Library("manifold3d", "manifold3d", "import", "unite and simplify imported meshes"),
    Library("torch", "torch", "learning", "learn policies and merge them"),
    Library("safetensors", "safetensors", "learning", "store policies"),
    Library("sklearn", "scikit-learn", "studies", "study merging on its digits"),
    Library("PIL", "pillow", "video", "draw on pictures"),
    Library("av", "av", "video", "write videos"),
    Library("pyarrow", "pyarrow", "export", "export data sets to LeRobot"),
    Library("zarr", "zarr", "export", "export data sets to zarr"),
    Library("stable_baselines3", "stable-baselines3", "examples", "learn by reinforcement"),
    Library("moviepy", "moviepy", "video", "write videos with gymnasium.wrappers.RecordVideo"),
)


def install_line(extra: str) -> str:
    """Returns the line that installs an extra: from the checkout that this is, or from a wheel.

    Raises:
        UnknownNameError: There is no such extra.
    """
    if extra not in (extras := {library.extra for library in OPTIONAL}):
        raise UnknownNameError("extra", extra, extras)
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "constraints.txt").is_file():
        return f'python3 -m pip install "fleet-tools[{extra}]"'
    if Path.cwd() == checkout:
        return f'python3 -m pip install -c constraints.txt -e ".[{extra}]"'
    return f'python3 -m pip install -c "{checkout}/constraints.txt" -e "{checkout}[{extra}]"'


def require(module: str, purpose: str, otherwise: str = "") -> ModuleType:
    """Imports one of the `OPTIONAL` libraries.

    Args:
        module: Its name.
        purpose: What it is wanted for now.
        otherwise: How to do without it, where there is a way.

    Raises:
        MissingLibraryError: It cannot be imported; the message holds the line that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = next(library.extra for library in OPTIONAL if library.module == module)
        raise MissingLibraryError(
            f"{module} is needed to {purpose}, and cannot be imported ({error}). "
            f"Install it with: {install_line(extra)}. {otherwise}".rstrip()
        ) from error
