"""Configuration of training, of its curves, and of the trained policy."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import pydantic
from tyro.conf import UseAppendAction, arg

from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import (
    Axis,
    Count,
    NonNegative,
    Number,
    Part,
    Positive,
    Seed,
    Value,
    parse,
)
from fleet_tools.utils.libraries import require
from fleet_tools.utils.option_parser import KeyValue, notation

# Drake is imported with the environment.
if TYPE_CHECKING:
    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.policies.config import PolicyConfig


Criterion = Literal["loss", "rollouts"]
"""Criterion for the best epoch: the lowest validation loss, or the most successful rollouts."""

Fraction = Annotated[Number, pydantic.Field(ge=0, lt=1)]


class CloudAugmentation(OptionGroup):
    """Augmentation of point clouds, drawn anew for every batch."""

    jitter_m: NonNegative = 0.0
    """Standard deviation of the noise added to each coordinate, m."""
    dropout: Fraction = 0.0
    """Fraction of the points to leave out."""
    crop_m: NonNegative = 0.0
    """Largest radius of a ball about one of the points from which all points are left out, m."""

    @property
    def any(self) -> bool:
        """Whether anything is augmented."""
        return max(self.jitter_m, self.dropout, self.crop_m) > 0


class ImageAugmentation(OptionGroup):
    """Augmentation of the colours of images, drawn anew for every batch.

    Without it, a policy can recognize the scenes of few demonstrations by their colours, and
    memorize the actions.
    """

    color_gain: Fraction = 0.0
    """Largest relative change of each channel, which scales all pixels."""
    color_offset: Fraction = 0.0
    """Largest offset of all pixels of a channel, as a fraction of full brightness."""

    @property
    def any(self) -> bool:
        """Whether anything is augmented."""
        return max(self.color_gain, self.color_offset) > 0


class TrainingConfig(OptionGroup):
    """Behaviour cloning by Adam; epochs and batch size are the paper's (appendix, Fleet-Tools)."""

    epochs: Count = 200
    """Number of passes over all demonstrations."""
    batch_size: Count = 512
    """Number of steps in a batch. Policies with memory learn from whole episodes with about as many
    steps in all."""
    learning_rate: Positive = 1e-3
    """Learning rate of Adam; the default is the paper's for Meta-World."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Schedule of the learning rate: constant as in the paper, or cosine without restarts, down to
    0 at the last epoch (Loshchilov and Hutter 2017)."""
    gradient_norm: Positive = 1.0
    """Norm to which longer gradients are shortened (Pascanu et al. 2013)."""
    ema_decay: Fraction = 0.0
    """Decay of the exponential moving average of the weights, such as 0.999 (Polyak and Juditsky
    1992). The policy is then the average; 0 for the weights themselves."""
    clouds: CloudAugmentation = CloudAugmentation()
    """Augmentation of point clouds."""
    images: ImageAugmentation = ImageAugmentation()
    """Augmentation of colour images."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the computation; weights and sums are in float32 in any case. On processors
    without AVX-512 or AMX, bfloat16 is many times slower."""
    compile: bool = False
    """Compile the network by torch.compile: minutes at the start, for faster steps on a GPU."""
    seed: Seed = 0
    """Seed of the initial weights, the validation split and the order of batches."""

    def rate(self, epochs_done: float) -> float:
        """Returns the learning rate after a number of epochs, which may be fractional."""
        if self.schedule == "constant":
            return self.learning_rate
        done = min(epochs_done / self.epochs, 1.0)
        return self.learning_rate * (1 + math.cos(math.pi * done)) / 2

    def decay(self, updates: int) -> float:
        """Returns the decay of the moving average after a number of updates.

        It rises from 0.1, or the first weights would stay in the average of a short training run.
        """
        return min(self.ema_decay, (1 + updates) / (10 + updates))


class TuningConfig(Value):
    """Trained weights in the fine-tuning of a policy.

    Attributes:
        tuned: "all" weights; "adapters", a product B A of low rank added to each matrix (LoRA, Hu
            et al. 2021); or "head", only the head.
        rank: Rank of the adapters.
    """

    tuned: Literal["all", "adapters", "head"] = "all"
    rank: Count = 8


PURPOSE = "write curves"
"""Purpose of the libraries, for error messages."""


class SymmetryOption(Value):
    """A part that looks the same after some turns, as given on the command line.

    Attributes:
        task: Name of the task.
        part: The part.
        fold: Number of turns that look alike, within a circle.
        axis: Keypoints at the start and the end of the axis.
    """

    task: str
    part: Part
    fold: Annotated[Count, pydantic.Field(ge=2, le=1000)]
    axis: Axis


def _parse_symmetry(text: str) -> SymmetryOption:
    found = re.fullmatch(r"(.+)\.(\w+)=(\d+):(\w+):(\w+)", text)
    if found is None:
        raise ValueError(
            f"expected TASK.PART=FOLD:FROM:TO, such as wrench.object=6:base:top; given: {text}"
        )
    task, part, fold, *axis = found.groups()
    content = {"task": task, "part": part, "fold": int(fold), "axis": tuple(axis)}
    return parse(SymmetryOption, content, f"The symmetry {text}")


class DetectorOptions(OptionGroup):
    """A keypoint detector, for policies that learned from exact keypoints."""

    keypoints: bool = False
    """Learn to detect the keypoints of tool and object in point clouds, instead of actions; `python
    -m fleet_tools.baselines.attach_detector` combines the detector with a policy."""
    symmetry: Annotated[
        UseAppendAction[
            tuple[
                Annotated[SymmetryOption, notation(_parse_symmetry, "TASK.PART=FOLD:FROM:TO", str)],
                ...,
            ]
        ],
        arg(metavar="TASK.PART=FOLD:FROM:TO"),
    ] = ()
    """Rotational symmetry of a task's part: number of turns in a circle, and the axis through two
    keypoints, such as wrench.object=6:base:top; may be repeated."""

    @pydantic.model_validator(mode="after")
    def _symmetric_keypoints(self) -> Self:
        if self.symmetry and not self.keypoints:
            raise ValueError("--symmetry needs --keypoints")
        return self


class CurveOptions(OptionGroup):
    """Curves of losses, rates and successes."""

    tensorboard: bool = False
    """Write them for TensorBoard: `tensorboard --logdir OUTPUT`. `wandb sync OUTPUT/tensorboard`
    sends them to Weights & Biases."""

    def require_libraries(self) -> None:
        """Imports the libraries that the options need.

        Raises:
            MissingLibraryError: A library is not installed.
        """
        if self.tensorboard:
            require("tensorboard", PURPOSE)


class PolicyOptions(OptionGroup):
    """The policy."""

    architecture: str | None = None
    """Architecture of the policy: mlp, elman, lstm, gru or transformer, with the prefix
    pointnet_ or resnet_ for point clouds or images. It may also be the path of a PolicyConfig,
    FILE.json or FILE.yaml; or a body of your own, module:Class."""
    like: Path | None = None
    """Checkpoint to take the architecture, observations and scaling from, but not the weights, so
    that the two policies can be merged."""
    settings: Annotated[UseAppendAction[tuple[KeyValue, ...]], arg(name="set")] = ()
    """Setting of the architecture, such as body.width=256, clouds.widths=[64,128], head.type=flow
    (or diffusion), chunk=6 or body.task_conditioning=film; may be repeated."""
    observations: tuple[str, ...] = ()
    """Entries of the observation that the policy reads (default: all)."""

    @pydantic.model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.architecture is None) == (self.like is None):
            raise ValueError("give either --architecture or --like")
        if self.like is not None and (self.settings or self.observations):
            raise ValueError(
                "--like determines the architecture and its inputs; leave out --set and "
                "--observations, or give --architecture instead"
            )
        return self

    def read(self) -> tuple["PolicyConfig", "Blueprint | None"]:
        """Returns the policy's configuration, and the blueprint of `--like`, if given."""
        from fleet_tools.baselines.policies.checkpoint import load_checkpoint
        from fleet_tools.baselines.policies.config import read_policy_config

        if self.like is not None:
            model = load_checkpoint(self.like).blueprint
            return model.config, model
        assert self.architecture is not None
        observations = self.observations or None
        return read_policy_config(self.architecture, self.settings, observations), None
