"""Names of the export formats, which load without their modules."""

from typing import Literal, get_args

FormatName = Literal["lerobot", "minari", "ply", "robomimic", "zarr"]

FORMAT_NAMES: tuple[FormatName, ...] = get_args(FormatName)
