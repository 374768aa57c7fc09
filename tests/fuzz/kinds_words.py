"""Words that people give: names, notations of options, and environment variables."""

import json
import os
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pydantic
from tyro.constructors import PrimitiveConstructorSpec

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.model_files import read_model
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.policies.config import read_policy_config
from fleet_tools.blender import VARIABLE
from fleet_tools.config.tasks import load_task
from fleet_tools.config.values import load_yaml
from fleet_tools.dataset import Dataset
from fleet_tools.envs.predicate_functions import TRUSTED_MODULES, untrusted_functions
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.parallel import cluster
from fleet_tools.perception.display import MESHCAT_HOST, open_meshcat
from fleet_tools.policies.released import CHECKPOINTS, find_file
from fleet_tools.policies.server_access import TOKEN_VARIABLE, read_token, require_url
from fleet_tools.policies.sources import find_policy
from fleet_tools.sim.catalog import load_model
from fleet_tools.studio.importing import settings as argument_types
from fleet_tools.studio.importing.settings import check_model_name
from fleet_tools.utils.compiled import SHARED_FOLDER, share_compiled
from fleet_tools.utils.imports import load_user_function
from fleet_tools.utils.libraries import ANY_RELEASE, require_tested_release
from fleet_tools.utils.option_parser import key_value
from fuzz.kernel import Subject, require
from fuzz.mutations import changed_text, pick, scalar

_PIECES = (
    *("claw", "expert", "hammer", "head=0.1,0,0.05", "m", "mm", "auto", "1,2,3", "0,0,0,0,0,90"),
    *("split=all", 'a=[1,"b"]', "ws://127.0.0.1:9", "wss://[::1]:9/x", "v2", "mlp", "body.width"),
    *("task.yaml", "json:loads", "dagger:", "module:", ":f", "a:b:c", "../..", "/dev/zero", "."),
    *("~", "~x", "\0", "\n", " ", "", "é", "e\u0301", "\udc80", "%", "%00", "#", "?", "=", ","),
    *("-", "--", "nan", "inf", "1e999", "9" * 400, "[" * 3000, "{", '"', "'", "x" * 5000, "C:\\x"),
    "\u202e",
)


def _word(generator: np.random.Generator) -> str:
    """Returns a word, mostly of known pieces."""
    if generator.integers(6) == 0:
        return str(scalar(generator))
    word = "".join(pick(generator, _PIECES) for _ in range(pick(generator, (1, 1, 1, 2, 3))))
    return changed_text(word, generator, _PIECES) if generator.integers(3) == 0 else word


def words(folder: Path) -> Subject:
    """Names of tasks, policies, protocols, functions, architectures and models, and notations."""
    readers: dict[str, Callable[[str], Any]] = {
        "task": load_task,
        "protocol": load_protocol,
        "policy": lambda word: require_url(word) if "wss" in word else find_policy(word),
        "address": require_url,
        "function": lambda word: load_user_function(word, "predicate", ConfigError),
        "architecture": read_policy_config,
        "setting": lambda word: read_policy_config("mlp", [key_value(word)]),
        "model": check_model_name,
        "tool": lambda word: load_model(Path(word), "tool"),
        "weights": lambda word: read_model(Path(word)),
        "checkpoint": lambda word: load_checkpoint(Path(word)),
        "dataset": Dataset,
        "result": lambda word: load_evaluation(Path(word)),
        "fleet": lambda word: load_yaml(FleetConfig, Path(word)),
        "--env": key_value,
    }
    for name, annotation in vars(argument_types).items():
        for each in getattr(annotation, "__metadata__", ()):
            if isinstance(each, PrimitiveConstructorSpec):
                readers[name] = lambda word, spec=each: spec.instance_from_str([word])

    def make(generator: np.random.Generator) -> tuple[str, str]:
        return pick(generator, tuple(readers)), _word(generator)

    def read(given: tuple[str, str]) -> Any:
        return readers[given[0]](given[1])

    def check(given: tuple[str, str], found: Any) -> None:
        reader, word = given
        match reader:
            case "model":
                require(found == word and set(word) <= _LETTERS, "a name of other characters")
            case "--env":
                require(word.startswith(f"{found[0]}="), "another key")
            case "function":
                require(callable(found), "no function")
        if reader.endswith("Argument"):
            json.dumps(pydantic.TypeAdapter(Any).dump_python(found, mode="json"), allow_nan=False)

    return Subject(make, read, check, (FleetToolsError, ValueError))


_LETTERS = {*string.ascii_letters, *string.digits, "_"}


VARIABLES: dict[str, Callable[[], Any]] = {
    TOKEN_VARIABLE: read_token,
    TRUSTED_MODULES: lambda: untrusted_functions(load_task("hammer")),
    "RAY_ADDRESS": lambda: cluster.is_running(None),
    SHARED_FOLDER: share_compiled,
    ANY_RELEASE: require_tested_release,
    MESHCAT_HOST: open_meshcat,
    CHECKPOINTS: lambda: find_file("bc_hammer"),
}
"""Readers of environment variables, by name."""
VARIABLES_NOT_TRIED = {VARIABLE: "a program of the user's own, which is run"}


def variables(folder: Path) -> Subject:
    """Environment variables that the package reads."""
    (folder / "private").mkdir(mode=0o700)

    def make(generator: np.random.Generator) -> tuple[str, str]:
        name, word = pick(generator, tuple(VARIABLES)), _word(generator).replace("\0", "")
        odd = pick(
            generator, ("", "127.0.0.1", "::1", "*", str(folder / "private"), "x" * 32, word)
        )
        return name, odd.encode(errors="surrogatepass").decode(errors="surrogateescape")

    def read(given: tuple[str, str]) -> Any:
        with mock.patch.dict(os.environ, {given[0]: given[1]}):
            return VARIABLES[given[0]]()

    def check(given: tuple[str, str], found: Any) -> None:
        name, word = given
        match name:
            case cls if cls == TOKEN_VARIABLE:
                require(found == word and len(found) >= 16, "another token")
            case cls if cls == SHARED_FOLDER and found is not None:
                require(found == folder / "private", "a folder that is not private")
            case cls if cls == MESHCAT_HOST:
                require(word in ("127.0.0.1", "::1", "*"), "it listens elsewhere")

    return Subject(make, read, check)
