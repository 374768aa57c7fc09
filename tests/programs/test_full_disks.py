"""Programs on a disk that fills: nothing finished is lost, and the same command ends it.

Whatever room a disk has, a program ends well, or with exit code 1 and one message that names a file
and what is free; once there is room, the same command ends with what an undisturbed run has.
"""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support.collected import write_quick_task
from support.small_datasets import OBSERVATION, Drawn, a_header, write
from support.small_disks import PAGE, Disk

from fleet_tools.evaluation.packed_episodes import read_episodes
from fleet_tools.evaluation.result_folder import PACKED

Main = Callable[[Sequence[str]], int]

FORMATS = ("lerobot", "minari", "robomimic")


# --- Programs: each with its arguments, for files beside the disk, and an output on it -----------


def collecting(beside: Path, output: Path) -> tuple[Main, list[str]]:
    from fleet_tools import collect

    task = ["--task", str(write_quick_task(beside)), "--env", "tool=claw", "object=round_nail"]
    more = ["--policy", "zero", "--episodes", "3", "--workers", "0", "--quiet"]
    return collect.main, [*task, *more, "--output", str(output)]


def evaluating(beside: Path, output: Path) -> tuple[Main, list[str]]:
    from support.evaluated import SMALL

    from fleet_tools import evaluate

    protocol = beside / "protocol.yaml"
    changes = {"tasks": [str(write_quick_task(beside))]}
    protocol.write_text(json.dumps(SMALL.model_dump(mode="json", exclude={"task_files"}) | changes))
    more = ["--split", "train", "--scenes", "3", "--workers", "0", "--quiet"]
    policy = ["--policy", "zero", "--protocol", str(protocol)]
    return evaluate.main, [*policy, *more, "--output", str(output)]


def training(beside: Path, output: Path) -> tuple[Main, list[str]]:
    pytest.importorskip("torch")
    from support.training_cases import small_data, train_options

    from fleet_tools.baselines import train

    small_data(beside / "data")
    more = ["--epochs", "3", "--save-every", "0.001", "--quiet"]
    return train.main, train_options(beside / "data", output, *more)


def a_fleet(beside: Path, output: Path) -> tuple[Main, list[str]]:
    pytest.importorskip("torch")
    from support.fleet_cases import arguments, write_data

    from fleet_tools.baselines import fleet

    config, *more = arguments(write_data(beside / "data"), beside / "fleet")
    return fleet.main, [config, *more, "--output", str(output)]


def merging(beside: Path, output: Path) -> tuple[Main, list[str]]:
    pytest.importorskip("torch")
    from merging_support import merge_problems

    from fleet_tools.baselines import merge
    from fleet_tools.baselines.model_files import write_model

    models = [beside / "a.safetensors", beside / "b.safetensors"]
    for path, state in zip(models, merge_problems.models(), strict=True):
        write_model(path, state)
    more = ["--method", "naive_average", "--problem", "merging_support.merge_problems:with_data"]
    return merge.main, [*map(str, models), *more, "--output", f"{output}.safetensors"]


def exporting(name: str) -> Callable[[Path, Path], tuple[Main, list[str]]]:
    def export(beside: Path, output: Path) -> tuple[Main, list[str]]:
        from fleet_tools.dataset.__main__ import main

        layout = {**OBSERVATION, "end_effector_pose": ((3, 4), "float64")}
        drawn = Drawn([5, 9, 3], [True] * 3, seed=1, labelled=True)
        write(beside / "data", drawn, a_header(layout))
        return main, ["export", str(beside / "data"), "--to", name, "--output", str(output)]

    return export


PROGRAMS: dict[str, Callable[[Path, Path], tuple[Main, list[str]]]] = {
    "collect": collecting,
    "evaluate": evaluating,
    "train": training,
    "fleet": a_fleet,
    "merge": merging,
    **{f"export to {name}": exporting(name) for name in FORMATS},
}


# --- What an output holds ------------------------------------------------------------------------


def without_times(value: Any) -> Any:
    """Returns plain data without what each run measures anew."""
    if isinstance(value, dict):
        return {key: without_times(v) for key, v in value.items() if "seconds" not in key}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def content_of(path: Path) -> Any:
    """Returns the content of a file without wall times."""
    match path.suffix:
        case ".jsonl":
            return [without_times(json.loads(line)) for line in path.read_text().splitlines()]
        case ".json":
            return without_times(json.loads(path.read_text()))
        case ".safetensors":
            return _of_tensors(path)
        case ".hdf5":
            return _of_hdf5(path)
        case ".parquet" if path.name == PACKED:
            return [without_times(json.loads(each.to_json())) for each in read_episodes(path)]
        case _:
            return path.read_bytes()


def _of_tensors(path: Path) -> tuple[Any, dict[str, bytes]]:
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        tensors = {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
        notes = {key: json.loads(text) for key, text in (file.metadata() or {}).items()}
    if notes.keys() & {"fleet_tools_fleet", "fleet_tools_training"}:  # wall times are in the digest
        del tensors["digest"]
    return without_times(notes), tensors


def _of_hdf5(path: Path) -> dict[str, Any]:
    """Returns the content of an HDF5 file, which holds times; links go to the episodes' files."""
    content: dict[str, Any] = {}

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        attributes = {key: np.asarray(value).tolist() for key, value in item.attrs.items()}
        rows = item[()].tobytes() if isinstance(item, h5py.Dataset) else sorted(item)
        content[name] = attributes, rows

    with h5py.File(path, "r") as file:
        add("/", file)
        file.visititems(add)
    return content


def everything_in(folder: Path) -> dict[str, Any]:
    """Returns the contents of all files below a folder, and the names of its folders."""
    return {
        str(path.relative_to(folder)): content_of(path) if path.is_file() else None
        for path in folder.rglob("*")
    }


# --- The law ------------------------------------------------------------------------------------


def run_in(
    disk: Disk, beside: Path, program: str, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    """Runs a program in some rooms, from none to enough, and then again with more room."""
    output = disk.folder / ("output.hdf5" if program == "export to robomimic" else "output")
    main, arguments = PROGRAMS[program](beside, output)
    assert main(arguments) == 0, capsys.readouterr().err
    capsys.readouterr()
    expected, most = everything_in(disk.folder), disk.used() + 4 * PAGE
    codes = []
    for room in [k * most // count for k in range(count)] + [3 * most]:
        for path in disk.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with disk.room(room):
            codes.append(main(arguments))
        message = capsys.readouterr().err
        assert codes[-1] in (0, 1), message
        if codes[-1] == 1:
            *_, last = message.strip().splitlines()
            assert re.search(rf"{disk.folder}\S* cannot be stored: .*", last), message
            assert "Traceback" not in message
            assert not disk.mounted or f"are free in {disk.folder}" in last
            assert not list(disk.folder.rglob("*.aside*")), "a temporary file is left"
            assert main(arguments) == 0, capsys.readouterr().err
        assert everything_in(disk.folder) == expected
    assert codes[0] == 1 and codes[-1] == 0


QUICK = ("merge", "export to minari")  # the others store as these do


@pytest.mark.parametrize(
    "program",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS],
)
def test_a_program_resumes_after_the_disk_was_full(program, disk, tmp_path, capsys):
    run_in(disk, tmp_path, program, capsys, 2)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_resumes_in_whatever_room(program, disk, tmp_path, capsys):
    run_in(disk, tmp_path, program, capsys, 12)
