"""Labels of the pictures in this folder."""

import numpy as np
from PIL import Image, ImageDraw

from fleet_tools.perception.rendering import BACKGROUND_COLOR

TEXT_COLOR = (40, 44, 52)
BAR_COLOR = tuple(round(255 * c) for c in BACKGROUND_COLOR)
BAR_HEIGHT, FONT_SIZE = 30, 16


def labelled(image: np.ndarray, label: str) -> Image.Image:
    """Returns an image (height, width, 3) uint8 with a label below it."""
    height, width, _ = image.shape
    canvas = Image.new("RGB", (width, height + BAR_HEIGHT), BAR_COLOR)
    canvas.paste(Image.fromarray(image))
    middle = width // 2, height + BAR_HEIGHT // 2
    ImageDraw.Draw(canvas).text(middle, label, TEXT_COLOR, anchor="mm", font_size=FONT_SIZE)
    return canvas
