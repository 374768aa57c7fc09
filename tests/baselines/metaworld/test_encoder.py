"""The frozen encoder of images: its weights, its name and its features."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("metaworld")
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from safetensors.torch import save_file
from support.encoder_weights import some_weights, write_weights

from fleet_tools.baselines.metaworld import __main__ as program
from fleet_tools.baselines.metaworld import encoder as encoder_module
from fleet_tools.baselines.metaworld.encoder import (
    RANDOM_ENCODER,
    open_encoder,
    weights_digest,
)
from fleet_tools.baselines.metaworld.env import MetaWorldEnv
from fleet_tools.baselines.policies.checkpoint import CheckpointError
from fleet_tools.errors import ConfigError, FleetToolsError

TASK = "coffee-button-v3"
"""Its episodes are short."""
pytestmark = pytest.mark.filterwarnings("error::UserWarning")
RANDOM_DIGEST = "43c8ca2322c0f8e8"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of weights."""
    return write_weights(tmp_path_factory.mktemp("weights"))


def test_the_random_encoder_has_the_same_weights_on_every_machine():
    """Drawn uniformly by NumPy, they do not depend on PyTorch's version."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    encoder = encoder_module._random_encoder.__wrapped__()
    assert (encoder.name, weights_digest(encoder.network.state_dict())) == (
        RANDOM_ENCODER,
        RANDOM_DIGEST,
    )
    assert torch.equal(torch.get_rng_state(), before)
    state = encoder.network.state_dict()
    for name in ("conv1.weight", "layer4.1.conv2.weight"):
        outputs, _, height, width = state[name].shape
        variance = 2 / (outputs * height * width)  # He et al. 2015
        assert float(state[name].var()) == pytest.approx(variance, rel=0.05)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), threads=st.integers(1, 4))
def test_features_do_not_depend_on_threads_and_leave_them(seed, threads):
    image = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), np.uint8)
    former, encoder = torch.get_num_threads(), open_encoder()
    expected = encoder.encode(image)
    try:
        torch.set_num_threads(threads)
        found = encoder.encode(image)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(former)
    assert found.tobytes() == expected.tobytes() and found.dtype == np.float32


def test_the_name_tells_the_weights_that_are_used(weights, tmp_path):
    """Neither the classifier, nor counters, nor the order in the file change the encoder."""
    name = open_encoder(weights=weights).name
    used = {
        key: value
        for key, value in reversed(some_weights(1).items())
        if not key.startswith("fc.") and not key.endswith("num_batches_tracked")
    }
    save_file(used, tmp_path / "used.safetensors")
    assert open_encoder(weights=str(tmp_path / "used.safetensors")).name == name
    assert open_encoder(name, weights) is open_encoder(name, weights)
    used["bn1.weight"] = used["bn1.weight"] + 1e-7
    save_file(used, tmp_path / "used.safetensors")  # the same path, read again
    assert open_encoder(weights=tmp_path / "used.safetensors").name != name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: {"weights": torch.ones(2)}, "conv1.weight is missing"),
        (lambda state: state | {"conv1.weight": torch.ones(64, 1, 7, 7)}, r"\(64, 1, 7, 7\)"),
        (lambda state: {key: value.half() for key, value in state.items()}, "float16"),
        (lambda state: state | {"bn1.bias": torch.full((64,), torch.nan)}, "NaN"),
        (lambda state: state | {"layer5.0.conv1.weight": torch.ones(2)}, "does not belong"),
    ],
)
def test_weights_of_another_network_are_refused(change, words, tmp_path):
    path = tmp_path / "other.safetensors"
    save_file(change(some_weights(2)), path)
    with pytest.raises(CheckpointError, match=rf"(?s)other\.safetensors.*{words}.*torchvision"):
        open_encoder(weights=path)


def test_files_that_are_no_weights_are_refused(tmp_path, weights, capsys):
    pickled, cut = tmp_path / "resnet18.pth", tmp_path / "cut.safetensors"
    torch.save({"conv1.weight": torch.ones(1)}, pickled)
    cut.write_bytes(weights.read_bytes()[:-7])
    for path in (pickled, cut):
        with pytest.raises(CheckpointError, match=r"is not a safetensors file.*save_file"):
            open_encoder(weights=path)
    huge = tmp_path / "huge.safetensors"
    with huge.open("wb") as file:
        file.truncate(10**9)  # without blocks on the disk
    for path, words in (
        (tmp_path / "absent", "is not a file"),
        (tmp_path, "is not a file"),
        (Path("/dev/zero"), "is not a file"),
        ("\0", "cannot be opened|is not a file"),
        (huge, "too large"),
    ):
        with pytest.raises(ConfigError, match=words):
            open_encoder(weights=path)
    command = ["collect", "--tasks", TASK, "--episodes", "1", "--output", str(tmp_path / "new")]
    wrong = ["--obs-mode", "features", "--resnet-weights", str(pickled)]
    assert program.main([*command, *wrong]) == 2
    assert "torchvision" in capsys.readouterr().err and not (tmp_path / "new").exists()
    assert program.main([*command, "--resnet-weights", str(weights)]) == 2
    assert "--obs-mode features" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"encoder": RANDOM_ENCODER}, "obs_mode='state'"),
        ({"obs_mode": "features", "encoder": "resnet18-0"}, "resnet_weights"),
        ({"obs_mode": "features", "encoder": 3}, "encoder 3"),
        ({"obs_mode": "features", "resnet_weights": 3}, "cannot be opened"),
        ({"obs_mode": "feature"}, "features"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(kwargs, words):
    with pytest.raises(FleetToolsError, match=words):
        MetaWorldEnv(TASK, **kwargs)


def test_another_file_is_not_taken_for_the_encoder(weights):
    with pytest.raises(ConfigError, match="Leave out the weights"):
        MetaWorldEnv(TASK, obs_mode="features", encoder=RANDOM_ENCODER, resnet_weights=weights)
    with pytest.raises(ConfigError, match="has others"):
        MetaWorldEnv(TASK, obs_mode="features", encoder="resnet18-0", resnet_weights=weights)
