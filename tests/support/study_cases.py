"""Small data of studies."""

import torch

from fleet_tools.baselines.experiments.studies import model_sets, training
from fleet_tools.baselines.experiments.studies.labelled import ImageShape, Labelled, Shape

EIGHT = ImageShape(1, 8, 8, 10)


def some_digits(count: int = 200, shape: Shape = EIGHT) -> Labelled:
    """Returns noise instead of images or texts; only the labels are those of digits."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count, dtype=torch.int64) % shape.classes
    if isinstance(shape, ImageShape):
        return Labelled(torch.rand(count, shape.pixels, generator=generator), labels, shape)
    texts = torch.randint(shape.classes, (count, shape.length), generator=generator)
    return Labelled(texts, labels, shape, torch.arange(count) // 10)


def study(training_images: Labelled, test: Labelled, epochs: int = 1) -> model_sets.StudyData:
    """Returns what is learned in a study."""
    settings = training.TrainingSettings(epochs=epochs)
    return model_sets.StudyData("digits", training_images, test, settings)
