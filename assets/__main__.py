"""Generates, imports, checks and mends models: `python -m fleet_tools.assets import MESH`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import pydantic

from fleet_tools.assets.families import family_names, find_family
from fleet_tools.config.values import Count, Seed
from fleet_tools.errors import require_name
from fleet_tools.studio.checking.mending import MendOptions, mend_model
from fleet_tools.studio.checking.program import CheckOptions, check_model
from fleet_tools.studio.importing.program import ImportOptions, import_model
from fleet_tools.utils import cli
from fleet_tools.utils.option_parser import notation
from fleet_tools.utils.progress import TallyBar

if TYPE_CHECKING:
    from fleet_tools.assets.model_description import ModelDescription

ALL = "all"
"""Name that stands for all families."""


def _family(name: str) -> str:
    require_name("family", name, (ALL, *family_names()))
    return name


FamilyArgument = Annotated[str, notation(_family, "{" + ",".join((ALL, *family_names())) + "}")]
"""Name of a family, or of all."""


class GenerateOptions(cli.Options):
    """Generates tools and objects as SDFormat model folders.

    Without --count these are the models that ship with the package; with it, random members of the
    families.

    Exit codes:
    0: the folders are written, or --check found no difference.
    1: --check found a difference, or a folder holds something that no generator wrote.
    2: it cannot begin.
    """

    family: FamilyArgument = ALL
    """Family of the models."""
    output: Path | None = None
    """Assets folder, where a model goes to tools/FAMILY/NAME or objects/FAMILY/NAME (default: the
    package's)."""
    count: Count | None = None
    """Number of random models of each family, instead of the package's models."""
    seed: Seed | None = None
    """Seed of the random members (default: 0)."""
    check: bool = False
    """Compare the folders with the generated models, and write nothing."""

    @pydantic.model_validator(mode="after")
    def _random_members(self) -> Self:
        if self.count is None and self.seed is not None:
            raise ValueError(
                f"--seed {self.seed} is for random models; give their number with --count"
            )
        if self.count is not None and self.output is None:
            raise ValueError(
                f"--count {self.count} needs --output, to keep random models out of the package"
            )
        return self

    @pydantic.field_validator("output")
    @classmethod
    def _folder(cls, output: Path | None) -> Path | None:
        if output is not None and output.exists() and not output.is_dir():
            raise ValueError(f"{output} is a file; give a folder")
        return output


def generate(options: GenerateOptions) -> int:
    """Does the work of the program, and returns the exit code."""
    from fleet_tools.config.file_access import assets_root

    root = options.output or assets_root()
    members = _members(options)
    reports = []
    with TallyBar(len(members), "model", quiet=options.quiet) as bar:
        for family, name, params in members:
            model = find_family(family).build(params, name)
            reports.append(_generate_folder(model, model.folder(root), options.check))
            bar.update(reports[-1]["state"])
    options.report({"models": reports}, lambda: "\n".join(map(_line, reports)))
    different = [report for report in reports if report["state"] == "differs"]
    if different:
        print(
            f"{len(different)} of {len(reports)} models differ. The same command without --check "
            "writes them.",
            file=sys.stderr,
        )
        return cli.FAILED
    return cli.OK


def random_members(family: str, count: int, seed: int) -> dict[str, Any]:
    """Draws parameters of random members, by name; each depends only on the seed and its index."""
    import numpy as np

    sample = find_family(family).sample
    return {f"{family}_{k:03d}": sample(np.random.default_rng([seed, k])) for k in range(count)}


def _members(options: GenerateOptions) -> list[tuple[str, str, Any]]:
    """Returns family, name and parameters of each model."""
    members = []
    for family in family_names() if options.family == ALL else (options.family,):
        if options.count is None:
            parameters = find_family(family).catalogue
        else:
            parameters = random_members(family, options.count, options.seed or 0)
        members += [(family, name, params) for name, params in parameters.items()]
    return members


def _generate_folder(model: "ModelDescription", folder: Path, check: bool) -> dict[str, Any]:
    """Writes a model's folder, unless it is to be checked only; returns a report."""
    from fleet_tools.assets.model_folder import changed_files, write_model

    changed = changed_files(model, folder)
    if changed and not check:
        write_model(model, folder)
    return {
        "kind": model.kind,
        "family": model.family,
        "name": model.name,
        "mass": round(model.mass, 6),
        "folder": str(folder),
        "state": ("differs" if check else "written") if changed else "unchanged",
        "changed": changed,
    }


def _line(report: Mapping[str, Any]) -> str:
    changed = ": " + ", ".join(report["changed"]) if report["state"] == "differs" else ""
    return f"{report['state']:9}  {report['mass']:6.3f} kg  {report['folder']}{changed}"


PROGRAM = cli.Program(
    "assets",
    {
        "generate": cli.Command(GenerateOptions, generate),
        "import": cli.Command(ImportOptions, import_model),
        "check": cli.Command(CheckOptions, check_model),
        "mend": cli.Command(MendOptions, mend_model),
    },
    "Generates tools and objects, makes one of a mesh, checks one, or mends its contact. Without a "
    "command it generates.",
)


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Runs the program; without a command it generates, as generated files say.

    Returns:
        The exit code.
    """
    return PROGRAM.main(with_command(sys.argv[1:] if arguments is None else arguments), prog)


def with_command(arguments: Sequence[str]) -> list[str]:
    """Returns arguments that begin with a command; without one they are of "generate"."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        return ["generate", *arguments]
    return list(arguments)


if __name__ == "__main__":
    sys.exit(main())
