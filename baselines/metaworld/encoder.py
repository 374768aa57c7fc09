"""Frozen encoders of images, named by their weights."""

import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleet_tools.errors import ConfigError, shown
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:
    import torch

    from fleet_tools.baselines.policies.resnet import ResNetEncoder

RANDOM_ENCODER = "resnet18_random"
"""Name of the encoder with random weights."""

FEATURES = 512
"""Number of features of an image."""

_TRAINED = "resnet18"
_SEED = 0
_MAX_BYTES = 200_000_000
"""Largest file of weights; ResNet-18's with its classifier have 47 MB."""


@dataclass(frozen=True, eq=False)
class FrozenEncoder:
    """A frozen ResNet-18.

    Attributes:
        name: `RANDOM_ENCODER`, or "resnet18-DIGEST" with a hash of its weights.
        network: The network.
    """

    name: str
    network: "ResNetEncoder"

    def encode(self, image: np.ndarray) -> np.ndarray:
        """Returns the features of an image, (512,) float32.

        The same image gives the same bits on one processor, because it always uses one thread.

        Args:
            image: (height, width, 3) uint8.
        """
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                return self.network(torch.from_numpy(image)).numpy()
        finally:
            torch.set_num_threads(threads)


def open_encoder(name: str | None = None, weights: str | Path | None = None) -> FrozenEncoder:
    """Opens an encoder; environments of one process share it.

    Args:
        name: Its expected name; None for any.
        weights: A safetensors file with torchvision's names, see `resnet.load_features`; None for
            random weights.

    Raises:
        ConfigError: There is no such file, or it has another encoder.
        CheckpointError: The file does not hold the weights of a ResNet-18.
        MissingLibraryError: PyTorch or safetensors is not installed.
    """
    for library in ("torch", "safetensors"):
        require(library, "encode images")
    if weights is None:
        encoder = _random_encoder()
    else:
        path, status = _require_file(weights, name)
        encoder = _trained_encoder(path, status.st_mtime_ns, status.st_size)
    if name is not None and name != encoder.name:
        given = "no weights are given" if weights is None else f"{weights} has others"
        raise ConfigError(
            f"Observations are features of the encoder {shown(name)}, and {given} "
            f"({encoder.name}). "
            + (
                "Leave out the weights: this encoder's are random."
                if name == RANDOM_ENCODER
                else "Give the file of its weights: --resnet-weights FILE, or the environment's "
                "`resnet_weights`."
            )
        )
    return encoder


def _require_file(weights: str | Path, name: str | None) -> tuple[Path, os.stat_result]:
    try:
        path = Path(weights).absolute()
        if path.is_file() and (status := path.stat()).st_size <= _MAX_BYTES:
            return path, status
        problem = "is too large" if path.is_file() else "is not a file"
    except (OSError, ValueError, TypeError) as error:
        problem = f"cannot be opened: {error}"
    whose = f" of the encoder {shown(name)}" if name is not None else ""
    raise ConfigError(
        f"The weights{whose} are expected in {shown(str(weights))}, which {problem}. Give a "
        "safetensors file of at most 200 MB; for a stored dataset, put its file, or a link to it, "
        "there."
    )


@functools.cache
def _random_encoder() -> FrozenEncoder:
    """Returns the encoder with random weights of an untrained network (He et al. 2015).

    NumPy draws them uniformly, as PyTorch's normal numbers may differ by version and processor.
    """
    import torch

    network, generator = _network(), np.random.Generator(np.random.PCG64(_SEED))
    state = network.state_dict()
    for name, tensor in state.items():
        if tensor.dim() == 4:
            outputs, _, height, width = tensor.shape
            bound = np.sqrt(6 / (outputs * height * width))
            uniform = bound * (2 * generator.random(tuple(tensor.shape)) - 1)
            state[name] = torch.from_numpy(uniform.astype(np.float32))
    network.load_state_dict(state)
    return FrozenEncoder(RANDOM_ENCODER, network)


@functools.lru_cache(maxsize=2)
def _trained_encoder(path: Path, mtime_ns: int, size: int) -> FrozenEncoder:
    """Returns the encoder of a file, read again after a change of the file."""
    from fleet_tools.baselines.policies.resnet import load_features

    network = _network()
    load_features(network, path)
    return FrozenEncoder(f"{_TRAINED}-{weights_digest(network.state_dict())}", network)


def weights_digest(state: "dict[str, torch.Tensor]") -> str:
    """Returns a hash of an encoder's weights, 16 hexadecimal digits.

    Args:
        state: The encoder's state dict. BatchNorm's unused counters are left out.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(state.items()):
        if not name.endswith("num_batches_tracked"):
            digest.update(f"{name} {tuple(tensor.shape)} ".encode())
            digest.update(tensor.numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def _network() -> "ResNetEncoder":
    import torch

    from fleet_tools.baselines.policies.part_configs import ResNet18Config

    with torch.random.fork_rng(devices=[]):
        network = ResNet18Config(frozen=True).create().float()
    # Channels beside one another take little more than half the time on CPUs.
    return network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
