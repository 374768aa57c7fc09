"""The file beside a model's folder that keeps labels while a person works."""

from pathlib import Path

import yaml

from fleet_tools.assets.labelling.labels import Labels
from fleet_tools.config.values import Value, load_yaml
from fleet_tools.errors import ConfigError
from fleet_tools.storage.atomic_files import atomic_write


class Draft(Value):
    """The content of the file."""

    labels_of: str
    """Hash of what is labelled."""
    labels: Labels
    """The labels."""


def draft_file(folder: Path) -> Path:
    """Returns the file of a model's folder."""
    return folder.with_name(f"{folder.name}.labels.yaml")


def write_draft(file: Path, draft: Draft) -> None:
    """Writes a draft, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(draft.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    with atomic_write(file) as aside:
        aside.write_text(
            f"# written by fleet-tools label, which reads it again\n{text}", encoding="utf-8"
        )


def read_draft(file: Path, labels_of: str) -> Labels | None:
    """Returns the labels of a draft; None if there is no file.

    Args:
        file: The file.
        labels_of: Hash of what is to be labelled.

    Raises:
        ConfigError: The file is damaged, or has the labels of something else.
    """
    if not file.exists():
        return None
    draft = load_yaml(Draft, file)
    if draft.labels_of != labels_of:
        raise ConfigError(
            f"{file} has the labels of another file, or of an earlier version of it. Move it away, "
            "or choose another --name."
        )
    return draft.labels
