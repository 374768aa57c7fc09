"""Optional libraries: their purposes, and the commands that install them."""

import importlib
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from types import ModuleType

from fleet_tools.errors import MissingLibraryError, UnknownNameError
from fleet_tools.utils.drake_release import CONSTRAINTS, INSTALL_COMMAND, installed_release

MERGING = "fleet-merging"
"""The library of merging methods, a distribution of its own in `baselines/merging`."""

MERGING_COMMAND = "python3 -m pip install fleet_merging-*.whl"
"""Installs its wheel, which lies beside the wheel of this package."""

_CHECKOUT = Path(__file__).resolve().parents[2]

GLIB_COMMAND = "apt-get install -y libglib2.0-0"
"""Installs the libraries for Drake's import on a minimal Debian or Ubuntu."""

GL_COMMAND = "apt-get install -y libegl1 libgl1"
"""Installs the libraries for images there: EGL, and with libgl1 Mesa's drivers, which need no GPU.
"""

OPEN3D_COMMAND = "apt-get install -y libegl1 libgl1 libidn2-0 libudev1 libusb-1.0-0 libx11-6"
"""Installs the libraries for Open3D's import there."""


@dataclass(frozen=True)
class Library:
    """An optional library.

    Attributes:
        module: Name of the imported module.
        distribution: Name of the installed distribution.
        extra: Extra of this package that installs it.
        purpose: What it is needed for, as in "needed to ...".
        system: Command that installs what its import needs of a minimal Debian or Ubuntu, if any.
        note: What to know before it is installed, in brackets.
    """

    module: str
    distribution: str
    extra: str
    purpose: str
    system: str | None = None
    note: str = ""

    def remedy(self, reason: str) -> str:
        """Returns the command that helps, by the error of its import."""
        if self.system is not None and "cannot open shared object file" in reason:
            return self.system
        if self.distribution == MERGING and not _is_checkout(_CHECKOUT):
            return MERGING_COMMAND
        return install_command(self.extra)


OPTIONAL = (
    Library("coacd", "coacd", "import", "decompose imported meshes into convex pieces"),
    Library("fast_simplification", "fast-simplification", "import", "simplify imported meshes"),
    Library("manifold3d", "manifold3d", "import", "unite and simplify imported meshes"),
    Library("collada", "pycollada", "import", "read COLLADA meshes"),
    Library(
        "torch",
        "torch",
        "learning",
        "learn policies and merge them",
        note=" (without a GPU, a smaller build: docs/getting_started/install.md)",
    ),
    Library("safetensors", "safetensors", "learning", "store policies"),
    Library("fleet_merging", MERGING, "learning", "merge models"),
    Library("sklearn", "scikit-learn", "studies", "merge networks on its digits"),
    Library("metaworld", "metaworld", "metaworld", "simulate Meta-World's tasks"),
    Library("mujoco", "mujoco", "metaworld", "simulate Meta-World's tasks"),
    Library("dp_accounting", "dp-accounting", "flower", "compute the epsilon of noise"),
    Library("tensorboard", "tensorboard", "tensorboard", "write curves"),
    Library("websockets", "websockets", "serve", "serve policies over a socket"),
    Library("viser", "viser", "browser", "show pages in the browser"),
    Library("flwr", "flwr", "flower", "run fleets over Flower"),
    Library("PIL", "pillow", "video", "scale and store images"),
    Library("av", "av", "video", "write videos"),
    Library("stable_baselines3", "stable-baselines3", "examples", "learn by reinforcement"),
    Library(
        "open3d",
        "open3d-cpu",
        "open3d",
        "import scans",
        OPEN3D_COMMAND,
    ),
    Library("moviepy", "moviepy", "video", "write videos with gymnasium.wrappers.RecordVideo"),
)

APART = {"flower": "constraints-flower.txt"}
"""Constraints of extras that exclude versions of constraints.txt, and so want an environment of
their own."""


def constraints(checkout: Path) -> str:
    """Returns the file of constraints that fits this environment.

    Args:
        checkout: Folder of a checkout.

    Returns:
        The file that pins the installed Drake, or else the one for this version of Python.
    """
    pin = f"\ndrake=={installed_release()}\n"
    by_python = list(CONSTRAINTS)[sys.version_info >= (3, 12)]
    return next((name for name in CONSTRAINTS if pin in (checkout / name).read_text()), by_python)


def install_command(extra: str | None = None) -> str:
    """Returns the command that installs an extra's libraries, for a checkout or for a wheel.

    For a wheel, it names the libraries. This package and fleet-merging are on no index, and whoever
    took their names there could have anything installed.

    Args:
        extra: The extra; None for the package without extras, and for a wheel for Drake alone.

    Raises:
        UnknownNameError: There is no such extra.
    """
    if extra not in (extras := {None, *(library.extra for library in OPTIONAL)}):
        raise UnknownNameError("extra", extra, filter(None, extras))
    checkout = _CHECKOUT
    if not _is_checkout(checkout):
        if extra is None:
            return INSTALL_COMMAND
        listed = " ".join(f'"{requirement}"' for requirement in _requirements(extra))
        return f"python3 -m pip install {listed}"
    pins = APART.get(extra or "") or constraints(checkout)
    suffix = f"[{extra}]" if extra else ""
    learns = extra == "learning"
    if Path.cwd() == checkout:
        merging = "-e baselines/merging " if learns else ""
        own = f'".{suffix}"' if extra else "."
        return f"python3 -m pip install -c {pins} {merging}-e {own}"
    merging = ("-e", f"{checkout / 'baselines' / 'merging'}") if learns else ()
    given = ("-c", f"{checkout / pins}", *merging, "-e", f"{checkout}{suffix}")
    return f"python3 -m pip install {shlex.join(given)}"


def _is_checkout(folder: Path) -> bool:
    return all((folder / name).is_file() for name in CONSTRAINTS)


def _requirements(extra: str) -> list[str]:
    """Returns what an extra of the installed package requires."""
    try:
        listed = [text.partition(";") for text in requires("fleet-tools") or ()]
    except PackageNotFoundError:  # neither a checkout nor installed, such as a copied folder
        return [
            each.distribution
            for each in OPTIONAL
            if each.extra == extra and each.distribution != MERGING
        ]
    wanted = f"extra=={extra}"
    return [
        name.strip()
        for name, _, marker in listed
        if wanted in marker.replace(" ", "").replace('"', "").replace("'", "")
        and not name.startswith(MERGING)
    ]


def require(module: str, purpose: str, otherwise: str = "") -> ModuleType:
    """Imports one of the `OPTIONAL` libraries.

    Args:
        module: Name of the module.
        purpose: What it is needed for now, as in "needed to ...".
        otherwise: How to do without it, if there is a way.

    Raises:
        MissingLibraryError: It cannot be imported; the message holds the installation command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = missing_library(module, purpose, str(error))
        raise MissingLibraryError(f"{missing} {otherwise}".rstrip()) from error


def missing_library(module: str, purpose: str | None = None, reason: str = "") -> str | None:
    """Returns the message about a library that cannot be imported.

    Args:
        module: Name of the module.
        purpose: What it is needed for; the library's general purpose if None.
        reason: Why it cannot be imported.

    Returns:
        None if it is neither one of the `OPTIONAL` libraries nor Drake.
    """
    if module == "pydrake":
        return (
            f"Drake cannot be imported: {reason}. On Debian and Ubuntu its import needs GLib: "
            f"{GLIB_COMMAND}"
        )
    library = next((each for each in OPTIONAL if each.module == module), None)
    if library is None:
        return None
    why = f", and cannot be imported ({reason})" if reason else ""
    return (
        f"{module} is needed to {purpose or library.purpose}{why}. "
        f"Install it with: {library.remedy(reason)}{library.note}."
    )
