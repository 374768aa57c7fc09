"""The tested releases of Drake, and a check of the installed one."""

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from fleet_tools.errors import UntestedDrakeError

RELEASES: Mapping[str, Literal["bits", "ends"]] = {
    "1.51.0": "bits",
    "1.51.1": "bits",
    "1.52.1": "bits",
    "1.53.0": "bits",
    "1.54.0": "bits",
    "1.55.0": "ends",
    "1.56.0": "ends",
    "1.57.0": "ends",
    "1.58.0": "ends",
}
"""Agreement of stored episodes with a release of Drake: in every bit, or in their outcomes.

It is the table of the results page on reproducibility; other releases have not run them, or
cannot.
"""

OLDEST, NEWEST = (list(RELEASES)[k].rpartition(".")[0] for k in (0, -1))
"""First and last tested release."""

ANY_RELEASE = "FLEET_TOOLS_ANY_DRAKE"
"""Environment variable that, set to 1, admits every release."""

CONSTRAINTS = {"constraints.txt": "Python 3.11", "constraints-newest.txt": "Python 3.12 and later"}
"""Files of a checkout that pin tested versions, each with the Python on which it is tested."""

INSTALL_COMMAND = f'python3 -m pip install "drake>={OLDEST},<1.{int(NEWEST.split(".")[1]) + 1}"'
"""Installs a tested release."""


def installed_release() -> str:
    """Returns the version of the installed Drake; "unknown" for one that pip did not install."""
    try:
        return version("drake")
    except PackageNotFoundError:
        return "unknown"


def is_tested(release: str) -> bool:
    """Returns whether a release is between the first and the last tested one."""
    try:
        number = _number(release)
    except ValueError:
        return False
    return _number(OLDEST) <= number <= _number(NEWEST)


def require_tested_release() -> None:
    """Checks that the installed release of Drake is a tested one, or that any is admitted.

    Raises:
        UntestedDrakeError: It is not.
    """
    release = installed_release()
    if is_tested(release) or os.environ.get(ANY_RELEASE) == "1":
        return
    files = " and ".join(f"{name} ({python})" for name, python in CONSTRAINTS.items())
    raise UntestedDrakeError(
        f"Fleet-Tools is tested with Drake {OLDEST} to {NEWEST}, and the installed release is "
        f"{release}. Install a tested one: {INSTALL_COMMAND}. The tested versions of all packages "
        f"are in {files} of a checkout. {ANY_RELEASE}=1 allows this release, but its physics may "
        "differ, and it may crash."
    )


def incomparable_drake(packages: Mapping[str, str]) -> str | None:
    """Returns why a result's physics cannot be compared; None if it can.

    Args:
        packages: Versions with which the result was made.
    """
    release = packages.get("drake")
    if release in RELEASES:
        return None
    made = "it does not name its release of Drake" if release is None else f"its Drake is {release}"
    return (
        f"{made}; only results of the releases {', '.join(RELEASES)} can be compared, because "
        "their episodes end alike (docs/results/reproducibility.md)"
    )


def _number(release: str) -> tuple[int, int]:
    major, minor = release.split(".")[:2]
    return int(major), int(minor)
