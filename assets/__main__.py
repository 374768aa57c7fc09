"""Write model folders: python -m fleet_tools.assets --help, or ... import --help."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .families import FAMILIES, family_module

if TYPE_CHECKING:
    from .model import Model

ASSETS = Path(__file__).resolve().parent


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns 0, or 1 where --check finds a difference or a folder is not ours.

    What follows the word `import` is another program's: it makes a model of a foreign mesh.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["import"]:
        from .importing.program import main as import_main

        return import_main(given[1:])
    options = _parse(arguments)
    root = options.output or ASSETS
    reports = []
    for model in _models(options):
        try:
            reports.append(_write(model, model.folder(root), options.check))
        except OSError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        if not options.json:
            print(_line(reports[-1]))
    if options.json:
        print(json.dumps(reports, indent=2))
    stale = [report["folder"] for report in reports if report["state"] == "differs"]
    if stale:
        advice = "run without --check to write them"
        print(f"{len(stale)} of {len(reports)} differ; {advice}", file=sys.stderr)
    return 1 if stale else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fleet_tools.assets",
        description="Write tools and objects as SDFormat model folders. Without --count, those "
        "that ship with Fleet-Tools; with it, random members of the families.",
        epilog="Exit status: 0 done, 1 --check found a difference or a folder that may not be "
        "overwritten, 2 bad usage. A mesh of your own becomes a model with: "
        "python -m fleet_tools.assets import MESH (see import --help).",
    )
    parser.add_argument("--family", choices=[*FAMILIES, "all"], default="all")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: the package itself")
    parser.add_argument("--count", type=int, metavar="N", help="random members of each family")
    parser.add_argument("--seed", type=int, metavar="S", help="which random members; default 0")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--json", action="store_true", help="report as JSON")
    options = parser.parse_args(arguments)
    if options.count is None and options.seed is not None:
        parser.error(f"--seed {options.seed} chooses random members; say how many with --count N")
    if options.count is not None and options.count < 1:
        parser.error(f"--count {options.count} is not a number of models; give 1 or more")
    if options.seed is not None and options.seed < 0:
        parser.error(f"--seed {options.seed} is negative; give 0 or more")
    if options.count is not None and options.output is None:
        parser.error("--count needs --output DIR, so that random models stay out of the package")
    if options.output is not None and options.output.exists() and not options.output.is_dir():
        parser.error(f"--output {options.output} is a file; give a directory")
    return options


def _models(options: argparse.Namespace) -> Iterator[Model]:
    for family in FAMILIES if options.family == "all" else [options.family]:
        module = family_module(family)
        if options.count is None:
            members = module.CATALOGUE
        else:
            members = random_members(family, options.count, options.seed or 0)
        for name, params in members.items():
            yield module.build(params, name)


def random_members(family: str, count: int, seed: int) -> dict:
    """Parameters of random members by name; each depends on the seed and its own number alone."""
    import numpy as np

    module = family_module(family)
    return {
        f"{family}_{k:03d}": module.sample(np.random.default_rng([seed, k])) for k in range(count)
    }


def _write(model: Model, folder: Path, check: bool) -> dict:
    from .model import differences, write

    changed = differences(model, folder)
    if changed and not check:
        write(model, folder)
    return {
        "kind": model.kind,
        "family": model.family,
        "name": model.name,
        "mass": round(model.mass, 6),
        "folder": str(folder),
        "state": ("differs" if check else "written") if changed else "unchanged",
        "changed": changed,
    }


def _line(report: dict) -> str:
    changed = ": " + ", ".join(report["changed"]) if report["state"] == "differs" else ""
    return f"{report['state']:9}  {report['mass']:6.3f} kg  {report['folder']}{changed}"


if __name__ == "__main__":
    sys.exit(main())
