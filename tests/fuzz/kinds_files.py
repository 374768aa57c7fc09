"""Files of datasets, results, leaderboards, meshes, scans and labelled examples."""

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import trimesh
from pydrake.geometry import Role
from pydrake.multibody.plant import AddMultibodyPlant, MultibodyPlantConfig
from pydrake.systems.framework import DiagramBuilder
from support.damage import STRUCTURES, damaged, relist
from support.dataset_readers import read_episodes, read_samples, read_summary
from support.labelled_files import spoken, write_batches, write_leaf, write_mnist
from support.scans import body, sampled, write_ply
from support.small_datasets import Drawn, write
from support.submitted import SMALL, host_ran, random_evaluation, write_entry
from support.submitted import write as write_result
from trimesh.exchange.gltf import export_gltf

from fleet_tools.baselines.experiments.supervised import sources
from fleet_tools.config.file_access import assets_root
from fleet_tools.dataset import Dataset
from fleet_tools.errors import FleetToolsError, ResultError
from fleet_tools.evaluation.packed_episodes import write_episodes
from fleet_tools.evaluation.result import Evaluation, decode_actions
from fleet_tools.evaluation.result_folder import EPISODES, PACKED, RESULT, load_evaluation
from fleet_tools.leaderboard.board import TRACKS
from fleet_tools.leaderboard.host import open_round
from fleet_tools.leaderboard.page import as_html, as_markdown
from fleet_tools.leaderboard.standings import make_board
from fleet_tools.perception.visible_links import shape_triangles
from fleet_tools.sim.add_models import add_model
from fleet_tools.storage.parquet_file import write_table
from fleet_tools.studio.checking.program import read_model
from fleet_tools.studio.importing.importer import ImportedModel, import_mesh
from fleet_tools.studio.importing.mesh_file import read_mesh
from fleet_tools.studio.importing.program import PLAIN
from fleet_tools.studio.importing.scan_files import read_views
from fleet_tools.studio.importing.settings import ImportSettings
from fuzz.mutations import (
    changed_data,
    changed_json,
    changed_lines,
    changed_number,
    changed_text,
    pick,
)
from fuzz.running import Subject, require, require_same_after_json

Named = tuple[str, bytes]
"""A file's name and content."""

FIRST = "episodes/episode_000000.hdf5"


def with_one_file(
    folder: Path,
    whole: Mapping[str, bytes],
    read: Callable[[str], Any],
    check: Callable[[Named, Any], None],
    make: Callable[[np.random.Generator], Named] | None = None,
) -> Subject:
    """Returns a subject that reads a folder in which one file is another.

    Args:
        folder: The folder.
        whole: The unharmed files, which are there again after a trial.
        read: Reads the folder in which a file of this name is another.
        check: See `Subject`.
        make: Returns name and content of the other file; by default one that is changed as its
            suffix says.
    """

    def changed(generator: np.random.Generator) -> Named:
        name = pick(generator, tuple(whole))
        return name, _changed_file(name, whole[name], generator)

    def read_with(given: Named) -> Any:
        name, content = given
        (folder / name).write_bytes(content)
        try:
            return read(name)
        finally:
            (folder / name).write_bytes(whole[name])

    return Subject(make or changed, read_with, check)


def _changed_file(name: str, content: bytes, generator: np.random.Generator) -> bytes:
    match name.rpartition(".")[2]:
        case "json":
            return changed_json(content.decode(), generator)
        case "jsonl":
            return changed_lines(content.decode(), generator)
        case "parquet":
            return _changed_columns(content, generator)
        case "safetensors":
            from fuzz.kinds_tensors import changed_tensors

            return changed_tensors(content, generator)
        case "yaml":
            from fuzz.kinds_texts import changed_yaml

            return changed_yaml([content.decode()])(generator)
    return damaged(content, generator)


def _changed_columns(content: bytes, generator: np.random.Generator) -> bytes:
    """Returns a table in which a column has other data, perhaps of another type, or other bytes."""
    table, file = pq.read_table(io.BytesIO(content)), io.BytesIO()
    place = int(generator.integers(table.num_columns))
    field = table.schema.field(place)
    try:
        data = changed_data(table.column(place).to_pylist(), generator)
        column = pa.array(data, pick(generator, (field.type, None)))
        name = pick(generator, (field, field.name, "other"))
        write_table(file, table.set_column(place, name, column))
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        return damaged(content, generator)
    return pick(generator, (file.getvalue(), damaged(content, generator)))


# --- Datasets -------------------------------------------------------------------------------


def documents(folder: Path) -> Subject:
    """Headers and manifests of datasets."""
    write(folder / "data", Drawn([3, 2], [True, False], 0, labelled=True))
    whole = {
        name: (folder / "data" / name).read_bytes() for name in ("dataset.json", "manifest.jsonl")
    }

    def read(_: str) -> Dataset:
        dataset = Dataset(folder / "data")
        read_summary(folder / "data")
        read_episodes(folder / "data")
        with contextlib.suppress(FleetToolsError):  # such as of a dataset without episodes
            read_samples(folder / "data")
        return dataset

    def check(given: Named, dataset: Dataset) -> None:
        for value in (dataset.header, *dataset.manifest()):
            require_same_after_json(value)

    return with_one_file(folder / "data", whole, read, check)


def checked_episodes(folder: Path) -> Subject:
    """Episodes with a digest."""
    write(folder / "data", Drawn([3, 2], [True, True], 0))
    whole = {FIRST: (folder / "data" / FIRST).read_bytes()}
    expected = _read_both(folder / "data")

    def check(given: Named, found: Any) -> None:
        require(found == expected, "other content in spite of the digest")

    return with_one_file(folder / "data", whole, lambda _: _read_both(folder / "data"), check)


def forged_episodes(folder: Path) -> Subject:
    """Episodes with a digest that was made to fit."""
    data = folder / "data"
    write(data, Drawn([3, 2], [True, True], 0))
    content, manifest = (data / FIRST).read_bytes(), (data / "manifest.jsonl").read_bytes()
    (folder / "secret").write_bytes(bytes(10_000))

    def make(generator: np.random.Generator) -> bytes:
        if generator.integers(3):
            return damaged(content, generator)
        (folder / "other.hdf5").write_bytes(content)
        with h5py.File(folder / "other.hdf5", "r+") as file:
            _change_structure(file.require_group("episode_0"), generator, folder / "secret")
        return (folder / "other.hdf5").read_bytes()

    def read(given: bytes) -> Any:
        (data / FIRST).write_bytes(given)
        (data / "manifest.jsonl").write_bytes(manifest)
        relist(data)
        read_samples(data)
        return list(Dataset(data))

    def check(_: bytes, episodes: Any) -> None:
        for episode in episodes:
            for name, rows in {**episode.step_arrays(), **episode.state_arrays()}.items():
                if rows.dtype.kind == "f":
                    require(np.isfinite(rows).all(), f"{name} is not finite")
            require(np.abs(episode.actions).max(initial=0) <= 1, "an action out of range")
            require(len(episode.observations["joint_position"]) == len(episode) + 1, "a length")

    return Subject(make, read, check)


def _read_both(folder: Path) -> Any:
    return read_episodes(folder), read_samples(folder)


def _change_structure(group: h5py.Group, generator: np.random.Generator, outside: Path) -> None:
    names: list[str] = []
    group.visititems(
        lambda name, each: names.append(name) if isinstance(each, h5py.Dataset) else None
    )
    match int(generator.integers(3)):
        case 0:
            pick(generator, STRUCTURES)(group, pick(generator, names), outside)
        case 1:
            array = group[pick(generator, names)]
            assert isinstance(array, h5py.Dataset)
            values = array[()]
            flat = values.reshape(-1)
            number = pick(
                generator,
                (0, 1, 200, *((np.nan, np.inf, 1e30, -2) if flat.dtype.kind == "f" else ())),
            )
            flat[int(generator.integers(flat.size))] = number
            array[...] = values
        case _:
            name = pick(generator, sorted(group.attrs))
            text = group.attrs[name]
            text = text if isinstance(text, str) else str(text)
            try:
                group.attrs[name] = changed_json(text, generator).decode()
            except (ValueError, UnicodeError):  # no JSON, or a NUL
                group.attrs[name] = pick(generator, (1, 0.5, b"\xff", "[" * 300, ""))


# --- Results --------------------------------------------------------------------------------


def packed_results(folder: Path) -> Subject:
    """Results of evaluations whose episodes are compressed columns."""
    return results(folder, packed=True)


def results(folder: Path, packed: bool = False) -> Subject:
    """Results of evaluations."""
    evaluation, names = random_evaluation(0.5), (PACKED,) if packed else (RESULT, EPISODES)
    write_result(evaluation, folder / "result")
    if packed:
        require(write_episodes(folder / "result" / PACKED, evaluation.episodes), "not packed")
        (folder / "result" / EPISODES).unlink()
    whole = {name: (folder / "result" / name).read_bytes() for name in names}

    def check(given: Named, evaluation: Evaluation) -> None:
        for value in (evaluation.result, *evaluation.episodes):
            require_same_after_json(value)
        for episode in evaluation.episodes:
            actions = decode_actions(episode.actions)
            require(actions.shape == (episode.steps, 6), f"actions of the shape {actions.shape}")
            require(np.isfinite(actions).all(), "an action is not finite")

    result = folder / "result"
    return with_one_file(result, whole, lambda _: load_evaluation(result), check)


def leaderboards(folder: Path) -> Subject:
    """Folders of a leaderboard in which one entry is a stranger's."""
    root = folder / "leaderboard"
    round_ = open_round(root, SMALL, [], "1")
    for name in ("ours", "theirs"):
        made = random_evaluation(0.5, seed=1, name=name, protocol=round_.protocol)
        host_ran(root, write_entry(root, name), [made])
    theirs = root / "entries" / "theirs"
    write_result(random_evaluation(0.5, seed=1, name="theirs"), theirs / "results" / "nominal")
    (theirs / "README.md").write_text("# Theirs\n\n<script>[x](y)</script>\n")
    named = [e for e in theirs.rglob("*") if e.is_file() and e.suffix != ".safetensors"]
    whole = {each.relative_to(root).as_posix(): each.read_bytes() for each in named}

    def read(_: str) -> Any:
        board = make_board(root, [SMALL], least_scenes=16)[0]
        for text in (as_html(board), as_markdown(board)):
            text.encode()
        ranks = {each.name: each.rank for each in board.methods}
        require(ranks.get("ours") == 1, "it cost another's rank")
        for rejection in board.rejections:
            require("theirs" in rejection.folder, "another one is rejected")
            raise ResultError(rejection.reason)
        return board

    def check(given: Named, board: Any) -> None:
        require(board.methods[0].track in TRACKS, "an unknown track")

    return with_one_file(root, whole, read, check)


def meshes(folder: Path) -> Subject:
    """Meshes to import."""
    settings = ImportSettings("tool", "hammer", "mine", PLAIN, mass=0.5)

    def read(given: Named) -> ImportedModel:
        path = folder / f"mesh.{given[0]}"
        path.write_bytes(given[1])
        return import_mesh(read_mesh(path), settings)

    def check(given: Named, imported: ImportedModel) -> None:
        (link,) = imported.model.links
        properties = link.mass_properties()
        inertia = np.asarray(properties.inertia)
        require(np.isfinite(inertia).all(), "the inertia is not finite")
        require(np.isclose(properties.mass, 0.5), f"the mass is {properties.mass} kg")

    return Subject(_changed_mesh(), read, check)


def visual_meshes(folder: Path) -> Subject:
    """Visual meshes of models, which are converted where not every renderer draws them."""
    model = shutil.copytree(assets_root() / "tools/hammer/claw", folder / "claw")
    text = (model / "model.sdf").read_text()
    visual = re.search(r"<visual.*?<uri>(.*?)</uri>", text, re.DOTALL)
    assert visual is not None

    def read(given: Named) -> list[np.ndarray]:
        name = f"given.{given[0]}"
        (model / name).write_bytes(given[1])
        changed = text[: visual.start(1)] + name + text[visual.end(1) :]
        (model / "model.sdf").write_text(changed)
        builder = DiagramBuilder()
        plant, scene_graph = AddMultibodyPlant(MultibodyPlantConfig(time_step=0.004), builder)
        add_model(plant, scene_graph, read_model(model), "tool")
        inspector = scene_graph.model_inspector()
        shapes = inspector.GetAllGeometryIds(Role.kPerception)
        return [shape_triangles(inspector.GetShape(each)) for each in shapes]

    def check(given: Named, surfaces: list[np.ndarray]) -> None:
        require(all(len(each) for each in surfaces), "a visual has no triangles")
        require(all(np.isfinite(each).all() for each in surfaces), "a corner is not finite")

    return Subject(_changed_mesh(), read, check)


def _changed_mesh() -> Callable[[np.random.Generator], Named]:
    """Returns what makes damaged meshes, given by their formats."""
    solid = trimesh.creation.box((0.2, 0.03, 0.04))
    whole = {}
    for suffix in ("obj", "stl", "ply", "off", "glb"):
        exported = solid.export(file_type=suffix)
        whole[suffix] = exported.encode() if isinstance(exported, str) else exported
    whole["gltf"] = json.dumps(_gltf(solid)).encode()

    def make(generator: np.random.Generator) -> Named:
        suffix = pick(generator, tuple(whole))
        content, text = whole[suffix], suffix in ("obj", "off", "gltf")
        if text and generator.integers(2):
            return suffix, changed_number(content.decode(), generator).encode(errors="replace")
        if text and generator.integers(2):
            changed = changed_text(content.decode(), generator, _MESH_TOKENS, 5)
            return suffix, changed.encode(errors="surrogatepass")
        return suffix, damaged(content, generator)

    return make


_MESH_TOKENS = ("nan", "inf", "-1", "0", "1e999", "9" * 30, "f 1 2 3", "v 0 0 0", "mtllib x", "\0")


def _gltf(mesh: trimesh.Trimesh) -> Any:
    files = export_gltf(trimesh.Scene(mesh), embed_buffers=True)
    return json.loads(files["model.gltf"])


def scans(folder: Path) -> Subject:
    """Views of scans."""
    points, normals = sampled(body(), 200)
    clouds = {"a.ply": (points, normals), "b.ply": (points, None)}
    whole = {name: write_ply(folder / name, *cloud).read_bytes() for name, cloud in clouds.items()}
    rows = [" ".join(map(str, point)) for point in points[:50].tolist()]
    head = "ply\nformat ascii 1.0\nelement vertex 50\n"
    head += "".join(f"property float {axis}\n" for axis in "xyz") + "end_header\n"
    whole["c.ply"] = (head + "\n".join(rows) + "\n").encode()
    for name, content in whole.items():
        (folder / name).write_bytes(content)

    def make(generator: np.random.Generator) -> Named:
        name = pick(generator, tuple(whole))
        head, end, rest = whole[name].partition(b"end_header\n")
        if generator.integers(2):
            changed = changed_number(
                changed_text(head.decode(), generator, _CLOUD_TOKENS), generator
            )
            return name, changed.encode(errors="surrogatepass") + end + rest
        return name, damaged(whole[name], generator)

    def read(name: str) -> Any:
        others = [each for each in ("a.ply", "b.ply") if each != name]
        return read_views([folder / each for each in [name, *others]])

    def check(given: Named, found: Any) -> None:
        for view in found[0]:
            require(view.points.ndim == 2 and view.points.shape[1] == 3, "no points")
            require(np.isfinite(view.points).all(), "a point is not finite")
            if view.normals is not None:
                lengths = np.linalg.norm(view.normals, axis=1)
                require(np.allclose(lengths, 1, atol=0.01), "a normal is no unit vector")

    return with_one_file(folder, whole, read, check, make)


_CLOUD_TOKENS = (
    *("element face 0\n", "element vertex 3\n", "property list uchar int x\n"),
    *("property float x\n", "format ascii 1.0\n", "double", "float", "uchar", "comment "),
    *("obj_info", "end_header", "nan", "COUNT 0 0 0\n", "DATA ascii\n", "DATA binary_compressed\n"),
    *("\0", "9" * 30, "-1", "é", "\r\n"),
)


def labelled_files(folder: Path) -> Subject:
    """Files of labelled examples, of which one is another."""
    roots = {name: folder / name for name in ("mnist", "cifar10", "shakespeare")}
    write_mnist(roots["mnist"])
    write_batches(roots["cifar10"])
    for part in ("train", "test"):
        write_leaf(roots["shakespeare"] / part, spoken("HAMLET", "OPHELIA"))
    whole = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }

    def make(generator: np.random.Generator) -> Named:
        name = pick(generator, tuple(whole))
        if name.endswith(".json"):
            return name, changed_json(whole[name].decode(), generator)
        return name, damaged(whole[name], generator)

    def read(_: str) -> Any:
        return {name: sources.load(name, root) for name, root in roots.items()}

    def check(given: Named, loaded: Any) -> None:
        for training, test in loaded.values():
            for data in (training, test):
                require(len(data.inputs) == len(data), "labels without examples")
                require(int(data.labels.min()) >= 0, "a label below 0")
                require(int(data.labels.max()) < data.shape.classes, "a label beyond the classes")
                high = 1 if data.speakers is None else data.shape.classes - 1
                require(float(data.inputs.min()) >= 0, "an input below 0")
                require(float(data.inputs.max()) <= high, "an input beyond what it may be")

    return with_one_file(folder, whole, read, check, make)
