"""What folders hold, for comparisons before and after."""

from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the content of each file below a folder, by its path in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
