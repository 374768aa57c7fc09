"""Folders of generated models: their files, how they differ from a description, and writing."""

from pathlib import Path

from fleet_tools.assets.decimals import decimal, decimals
from fleet_tools.assets.model_description import SIGNATURE, ModelDescription, Position
from fleet_tools.assets.sdformat import collision_name, mesh_path, sdf_text
from fleet_tools.assets.wavefront import obj_text
from fleet_tools.storage.atomic_files import replace_folder


def model_files(model: ModelDescription) -> dict[str, bytes]:
    """Returns the content of each file of a model's folder by its relative path."""
    texts = {"model.sdf": sdf_text(model), "keypoints.yaml": _keypoints_text(model)}
    for part in (part for link in model.links for part in link.parts):
        texts[mesh_path(part.name)] = obj_text(part.solid)
        for k, solid in enumerate(part.collision):
            path = mesh_path(collision_name(part.name, k))
            texts[path] = obj_text(solid, part.collision_digits)
    return {path: text.encode() for path, text in sorted(texts.items())}


def changed_files(model: ModelDescription, folder: Path) -> list[str]:
    """Returns the relative paths at which a folder differs from what `write_model` would write."""
    expected, found = model_files(model), read_files(folder)
    return sorted(p for p in expected.keys() | found.keys() if expected.get(p) != found.get(p))


def write_model(model: ModelDescription, folder: Path) -> None:
    """Writes a model's folder, whole or not at all.

    Args:
        model: The model.
        folder: A new or empty folder, or one that a generator wrote, which is replaced.

    Raises:
        FileExistsError: The folder holds something that no generator wrote.
    """
    found = read_files(folder)
    if found and not found.get("keypoints.yaml", b"").startswith(SIGNATURE.encode()):
        raise FileExistsError(
            f"{folder} was not written by a generator, and is left unchanged. Choose another "
            "--output, or move the folder away."
        )
    replace_folder(folder, model_files(model))


def read_files(folder: Path) -> dict[str, bytes]:
    """Returns the content of each file below a folder by its relative path; none if absent."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _keypoints_text(model: ModelDescription) -> str:
    lines = [
        f"{model.signature} --family {model.family}",
        f"family: {model.family}",
        f"kind: {model.kind}",
        "keypoints:  # metres, in the named link's frame",
    ]
    for name, keypoint in model.keypoints.items():
        position = _yaml_floats(keypoint.position)
        lines.append(f"  {name}: {{link: {keypoint.link}, position: [{position}]}}")
    if model.grasp is not None:
        lines += [
            "grasp:  # X_TG",
            f"  translation_m: [{decimals(model.grasp.translation_m, separator=', ')}]",
            f"  rpy_deg: [{decimals(model.grasp.rpy_deg, separator=', ')}]",
        ]
    return "\n".join(lines) + "\n"


def _yaml_floats(position: Position) -> str:
    """Returns numbers that YAML reads as floats; it would read 5e-05 as a string."""
    texts = [decimal(value, 9) for value in position]
    return ", ".join(text if "." in text else f"{text}.0" for text in texts)
