"""Makes the recordings on task pages, from real runs: `python docs/images/task_recordings.py`.

Each task has one, `docs/recordings/TASK.gz`: the expert in the first scene of the task's video, as
commands to Meshcat's viewer. What all tasks show alike (arm and table) is in `shared.gz`. Nothing
is left out of the shapes; the motion has fewer keyframes. Beside each lies an image of the viewer,
`TASK.webp`, for which Chromium shows a page of the built site. The docs' extension `recordings`
puts the viewer that Drake brings beside them.
"""

import base64
import gzip
import hashlib
import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from PIL import Image
from task_videos import ORIGINAL_COLORS, SEEN_FROM

HERE = Path(__file__).parent
DOCS = HERE.parent
sys.path[:0] = [str(DOCS / "_extensions"), str(DOCS.parent / "tests")]

from recordings import SHARED, write_recordings  # noqa: E402 # pyright: ignore[reportMissingImports]
from support.chromium import open_page  # noqa: E402 # pyright: ignore[reportMissingImports]

from fleet_tools.config.tasks import task_names  # noqa: E402
from fleet_tools.envs.spec import EnvSpec  # noqa: E402
from fleet_tools.experts.policy import ExpertPolicy  # noqa: E402
from fleet_tools.studio.pictures.recording import MeshcatRecorder, PlannedEpisode  # noqa: E402

Command = dict[str, Any]

SEED = 0
DISTANCE_M = 0.48
"""Distance of the viewer's eye from the middle between tool and object at first."""

EVERY = 2
"""Of Meshcat's frames, 64 a second, so many become one."""
GRID = 2.0**14
"""Keyframes are multiples of 1 / GRID: 0.06 mm, or 0.007 degrees."""

STILL = 0.45
"""Moment of the image, as a fraction of the episode."""
SIZE = (720, 450)


def main(folder: Path = DOCS / "recordings") -> None:
    """Writes the recordings of all tasks, and their images."""
    recorded = {task: record(task) for task in task_names()}
    packed = {
        task: [bytes(msgpack.packb(each) or b"") for each in made]
        for task, made in recorded.items()
    }
    shared = set.intersection(*map(set, packed.values()))
    files = {SHARED: [each for each in next(iter(packed.values())) if each in shared]}
    files |= {task: [each for each in made if each not in shared] for task, made in packed.items()}
    for name, made in files.items():
        array = msgpack.Packer().pack_array_header(len(made)) + b"".join(made)
        (folder / f"{name}.gz").write_bytes(gzip.compress(array, 9, mtime=0))
        print(name, (folder / f"{name}.gz").stat().st_size, "bytes", flush=True)
    for task in recorded:
        still(task).save(folder / f"{task}.webp", quality=80, method=6)


def record(task: str) -> list[Command]:
    """Returns the commands that show an episode of the expert, the motion last."""
    env = EnvSpec.of(task=task, render_mode="human").make_tool_use()
    env.reset(seed=SEED)
    state = env.world_state()
    points = [*state.p_W_tool.values(), *state.p_W_object.values()]
    target = (np.min(points, axis=0) + np.max(points, axis=0)) / 2
    assert env.meshcat is not None
    away = np.array(SEEN_FROM) / np.linalg.norm(SEEN_FROM)
    env.meshcat.SetCameraPose(target + DISTANCE_M * away, target)
    recorder = MeshcatRecorder(env)
    scene = env.scene.model_copy(update=ORIGINAL_COLORS)
    episode = recorder.record(PlannedEpisode("", ExpertPolicy(env), scene=scene))
    print(f"{task}: {episode.outcome} after {len(episode)} steps", flush=True)
    made = [smaller(command) for command in commands(env.meshcat.StaticHtml())]
    env.close()
    return sorted(made, key=lambda command: command["type"] == "set_animation")


def commands(html: str) -> list[Command]:
    """Returns the commands in a page that Meshcat wrote."""
    encoded = re.findall(r'fetch\("data:application/octet-binary;base64,([^"]+)"', html)
    decoded = [msgpack.unpackb(base64.b64decode(data), strict_map_key=False) for data in encoded]
    return [command for command in decoded if isinstance(command, dict) and "type" in command]


def smaller(command: Command) -> Command:
    """Returns a command that shows the same with fewer bytes, and the same ones in every run."""
    if command["type"] == "set_object":
        shape = command["object"]
        for mesh in (*shape.get("geometries", []), shape["object"]):
            if mesh.get("format") == "obj":
                mesh["data"] = without_repetitions(mesh["data"])
        return _renamed(command, _identifiers(command))
    if command["type"] == "set_animation":
        for animation in command["animations"]:
            for track in animation["clip"]["tracks"]:
                track["keys"] = fewer(track["keys"], track["type"])
    return command


def without_repetitions(obj: str) -> str:
    """Returns an OBJ file in which no vertex, normal or texture coordinate stands twice."""
    seen: dict[str, dict[str, int]] = {"v": {}, "vt": {}, "vn": {}}
    number: dict[str, list[int]] = {kind: [] for kind in seen}
    rest: list[str] = []
    for line in obj.splitlines():
        kind, _, values = line.partition(" ")
        if kind in seen:
            number[kind].append(seen[kind].setdefault(values, len(seen[kind]) + 1))
        elif kind == "f":
            rest.append("f " + " ".join(_corner(each, number) for each in values.split()))
        elif kind != "#":
            rest.append(line)
    return "\n".join([*(f"{kind} {each}" for kind in seen for each in seen[kind]), *rest])


def _corner(corner: str, number: dict[str, list[int]]) -> str:
    parts = zip(corner.split("/"), number.values(), strict=False)
    return "/".join(str(numbers[int(part) - 1]) if part else "" for part, numbers in parts)


def fewer(keys: list[Any], kind: str) -> list[Any]:
    """Returns every `EVERY`-th keyframe, the first and the last, without what says nothing new."""
    if kind == "boolean":
        return keys
    chosen = [key for key in keys if key["time"] % EVERY == 0 or key in (keys[0], keys[-1])]
    kept: list[Any] = []
    for key in chosen:
        value = [round(each * GRID) / GRID for each in key["value"]]
        if len(kept) > 1 and kept[-1]["value"] == kept[-2]["value"] == value:
            kept.pop()  # it stands still
        kept.append({"time": key["time"], "value": value})
    return kept


def _identifiers(command: Command) -> dict[str, str]:
    """Returns new identifiers for those that Meshcat draws at random."""
    found = re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", repr(command))
    path = command["path"]
    return {
        each: hashlib.sha256(f"{path} {k}".encode()).hexdigest()[:12]
        for k, each in enumerate(dict.fromkeys(found))
    }


def _renamed(value: Any, names: dict[str, str]) -> Any:
    match value:
        case dict():
            return {key: _renamed(each, names) for key, each in value.items()}
        case list():
            return [_renamed(each, names) for each in value]
        case str():
            return names.get(value, value)
    return value


def still(task: str) -> Image.Image:
    """Returns what the viewer shows in the middle of a task's recording."""
    with tempfile.TemporaryDirectory() as name:
        site = Path(name)
        write_recordings(site)
        width, height = SIZE
        url = f"{(site / 'recording.html').as_uri()}?{task}"
        with open_page(url, width=width, height=height) as page:
            page.wait_for_function("document.body.dataset.state === 'shown'", timeout=120_000)
            page.evaluate(f"seek({STILL} * viewer.animator.duration)")
            page.add_style_tag(content="#bar { display: none }")
            page.wait_for_timeout(3_000)  # the browser draws
            data = page.screenshot(timeout=120_000)
    return Image.open(io.BytesIO(data)).convert("RGB")


if __name__ == "__main__":
    main()
