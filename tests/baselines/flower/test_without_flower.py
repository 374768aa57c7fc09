"""Where Flower is absent: what is imported, and what an error says."""

import importlib
import sys

import pytest

pytest.importorskip("torch")

from support.processes import run_python

from fleet_tools.errors import MissingLibraryError


def test_only_the_apps_and_the_strategy_import_flower() -> None:
    code = """
import importlib, json, pkgutil, sys
import fleet_tools.baselines.flower as room
for module in pkgutil.iter_modules(room.__path__, room.__name__ + "."):
    if module.name.rpartition(".")[2] not in ("client", "server", "strategy"):
        importlib.import_module(module.name)
print(json.dumps("flwr" in sys.modules))
"""
    assert run_python(code) is False


@pytest.mark.parametrize("module", ["client", "server", "strategy"])
def test_an_app_says_how_to_install_flower(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"fleet_tools.baselines.flower.{module}"
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(MissingLibraryError, match=r"constraints-flower\.txt.*environment of its"):
        importlib.import_module(name)
