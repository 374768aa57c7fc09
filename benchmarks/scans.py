"""Measures the import of scans: `python benchmarks/scans.py --noise-mm 0.5`.

Prints a row for each model: how far the model that is made of a virtual scan is from the scanned
one, and in how many scenes the expert solves its task with it.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console import print_now, table_head, table_row
from pydantic import Field

from fleet_tools.config.values import Count, CountOrZero, NonNegative, Seed
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.sim.catalog import Model
    from fleet_tools.studio.importing.importer import ImportedModel

MODELS = (
    "tools/hammer/claw",
    "tools/hammer/mallet",
    "tools/wrench/open_end",
    "tools/wrench/combination",
    "tools/spatula/turner",
    "tools/spatula/wooden",
    "tools/knife/chef",
    "tools/knife/cleaver",
    "objects/slab/waffle",
)
DENSITY = 2000.0
"""Of the models that are made, and of those that they are compared with, kg/m^3."""
MM = 1e3
_VIEWS_OF_TRUTH = 40
_SAMPLES = 10_000

_COLUMNS = (
    *("model", "noise, mm", "volume", "centre of mass, mm", "inertia"),
    *("true to scanned surface, mm", "scanned to true surface, mm", "CPU s", "success"),
)


class ScanOptions(cli.Options):
    """Scans models with a virtual camera from all sides, and imports the scans.

    Each view is a PLY file in the camera's frame, with the pose in a YAML file. Distances are the
    median, the 95th percentile and the largest of points that a camera without noise sees, to the
    surface that was made, and of points on this surface to the true one.

    Exit codes:
    0: everything is measured.
    1: a scan was refused.
    2: it cannot begin.
    """

    models: tuple[str, ...] = MODELS
    """Models of the package, such as tools/hammer/claw."""
    views: Count = 24
    """Number of views."""
    noise_mm: NonNegative = Field(default=0.5)
    """Standard deviation of depths, mm."""
    scenes: CountOrZero = 2
    """Number of scenes in which the expert tries each tool."""
    seed: Seed = 0
    """Seed of the noise, and of the first scene."""


def _measure_all(options: ScanOptions) -> int:
    print_now(options, table_head(_COLUMNS))
    rows = []
    for name in options.models:
        rows.append(_measure(name, options))
        print_now(options, _as_text(rows[-1]))
    if options.json_output:
        options.report({"rows": rows}, str)
    return cli.FAILED if any("refused" in row for row in rows) else cli.OK


def _measure(name: str, options: ScanOptions) -> dict[str, Any]:
    """Returns the facts of a model."""
    import tempfile
    import time

    import numpy as np
    from virtual_scanner import around, scan, visible_triangles

    from fleet_tools.config.file_access import assets_root
    from fleet_tools.errors import ConfigError
    from fleet_tools.sim.catalog import load_model
    from fleet_tools.studio.importing.importer import import_mesh
    from fleet_tools.studio.importing.program import write_imported
    from fleet_tools.studio.importing.scan_surface import scanned_mesh
    from fleet_tools.studio.importing.settings import ScanSettings

    kinds, family, _ = name.split("/")
    kind = "tool" if kinds == "tools" else "object"
    model = load_model(assets_root().resolve() / name, kind)
    triangles = visible_triangles(model)
    facts: dict[str, Any] = {"model": name, "noise_mm": options.noise_mm}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        generator = np.random.default_rng(options.seed)
        views = scan(triangles, around(options.views), options.noise_mm / MM, generator)
        files, poses = write_views(folder, views)
        started = time.process_time()
        try:
            imported = import_mesh(
                scanned_mesh(files, ScanSettings(poses=poses)), _settings(model, family)
            )
        except ConfigError as error:
            return facts | {"refused": str(error)}
        facts["cpu_s"] = time.process_time() - started
        facts |= _compared(triangles, imported)
        if options.scenes and kind == "tool":
            made = imported.model.folder(folder / "made")
            write_imported(imported.model, made, {})
            facts["outcomes"] = _outcomes(made, family, options)
    return facts


def write_views(folder: Path, views) -> tuple[list[Path], Path]:
    """Writes views as PLY files, and their poses as YAML; returns the paths."""
    import numpy as np
    import trimesh
    import yaml

    files = []
    for k, view in enumerate(views):
        files.append(folder / f"view_{k:02}.ply")
        trimesh.PointCloud(view.points_C.astype(np.float32)).export(files[-1])
    poses = folder / "poses.yaml"
    named = {f.name: view.X_WC.tolist() for f, view in zip(files, views, strict=True)}
    poses.write_text(yaml.safe_dump({"X_WC": named}))
    return files, poses


def _settings(model: "Model", family: str) -> Any:
    from dataclasses import replace

    from fleet_tools.studio.importing.program import PLAIN
    from fleet_tools.studio.importing.settings import ImportSettings, LabelSettings, ScaleSettings

    points = {name: point.position for name, point in model.labels.keypoints.items()}
    return ImportSettings(
        kind=model.labels.kind,
        family=family,
        name="scanned",
        material=replace(PLAIN, density=DENSITY),
        scale=ScaleSettings(scale=1.0),
        labels=LabelSettings(keypoint=tuple(points.items()), grasp=model.labels.grasp),
    )


def _compared(triangles: Any, imported: "ImportedModel") -> dict[str, Any]:
    """Returns how far a model is from the true surface."""
    import numpy as np
    from virtual_scanner import around, scan

    from fleet_tools.experts.perception.shapes import TriangleSurface, sample
    from fleet_tools.studio.importing.enclosed_body import enclosed_body
    from fleet_tools.studio.importing.repair import cleaned, repaired_shells

    surface, _ = cleaned(triangles.reshape(-1, 3), np.arange(3 * len(triangles)).reshape(-1, 3))
    body, _ = enclosed_body(repaired_shells(surface)[0])
    true, made = body.mass_properties(DENSITY), imported.inertial
    (part,) = imported.model.links[0].parts
    scanned = part.solid.vertices[part.solid.triangles]
    seen = scan(triangles, around(_VIEWS_OF_TRUTH), 0.0, np.random.default_rng(0))
    points = np.concatenate([view.points_W for view in seen])
    points = points[np.linspace(0, len(points) - 1, _SAMPLES).round().astype(int)]

    def distances(points: np.ndarray, triangles: np.ndarray) -> list[float]:
        closest, _ = TriangleSurface(triangles).closest(points)
        gaps = np.linalg.norm(closest - points, axis=1)
        return [MM * float(gap) for gap in np.percentile(gaps, [50, 95, 100])]

    return {
        "volume_error": made.mass / true.mass - 1,
        "centre_mm": MM * float(np.linalg.norm(made.centre - true.centre)),
        "inertia_error": float(
            np.linalg.norm(made.inertia - true.inertia) / np.linalg.norm(true.inertia)
        ),
        "true_to_scanned_mm": distances(points, scanned),
        "scanned_to_true_mm": distances(sample(scanned, _SAMPLES)[0], triangles),
        "notes": imported.notes,
        "warnings": imported.warnings,
    }


def _outcomes(folder: Path, family: str, options: ScanOptions) -> list[str]:
    from fleet_tools.envs.spec import EnvSpec
    from fleet_tools.experts.policy import ExpertPolicy
    from fleet_tools.rollouts.rollout import rollout

    env = EnvSpec.of(task=family, tool=str(folder), split="all").make_tool_use()
    seeds = range(options.seed, options.seed + options.scenes)
    outcomes = [rollout(env, ExpertPolicy(env), seed=seed).outcome for seed in seeds]
    env.close()
    return outcomes


def _as_text(row: dict[str, Any]) -> str:
    first = [row["model"], f"{row['noise_mm']:g}"]
    if "refused" in row:
        return table_row([*first, "refused: " + row["refused"]])

    def distances(key: str) -> str:
        return ", ".join(f"{each:.2f}" for each in row[key])

    outcomes = row.get("outcomes", [])
    cells = [
        *first,
        f"{row['volume_error']:+.2%}",
        f"{row['centre_mm']:.2f}",
        f"{row['inertia_error']:.2%}",
        distances("true_to_scanned_mm"),
        distances("scanned_to_true_mm"),
        f"{row['cpu_s']:.0f}",
        f"{outcomes.count('success')} of {len(outcomes)}" if outcomes else "",
    ]
    return table_row(cells)


PROGRAM = cli.Program(
    "scans.py", cli.Command(ScanOptions, _measure_all), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
