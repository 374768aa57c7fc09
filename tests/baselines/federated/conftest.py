"""Fixtures of the tests of fleets: data and a finished fleet, made once per process."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session", name="data")
def _data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a small dataset, which no test changes."""
    from support.fleet_cases import write_data

    return write_data(tmp_path_factory.mktemp("fleet") / "data")


@pytest.fixture(scope="session", name="large")
def _large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a dataset with enough episodes for a dozen robots, which no test changes."""
    from support.fleet_cases import write_data

    return write_data(tmp_path_factory.mktemp("large") / "data", [3, 5, 2, 4] * 5)


@pytest.fixture(scope="session", name="whole")
def _whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a fleet that ran eight rounds without interruption; no test changes it."""
    from support.fleet_cases import ROUNDS, arguments

    from fleet_tools.baselines.fleet import main

    folder = tmp_path_factory.mktemp("whole") / "out"
    assert main(arguments(data, folder, **ROUNDS)) == 0
    return folder
