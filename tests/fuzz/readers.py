"""Which modules read what others may have written, and the kinds of input that try each of them."""

import ast
import re
from functools import cache

from support.processes import ROOT

_METHODS = {
    *("load_yaml", "read_yaml", "parse_yaml", "read_document", "read_records", "read_checked"),
    *("read_tensors", "read_state", "opened"),
    *("safe_open", "load_file", "loads", "unpackb", "unpacked", "recv", "recv_bytes", "load_ply"),
    *("load_scene", "read_text", "read_bytes", "read_bounded", "frombuffer", "read_message"),
    *("model_validate_json", "getenv"),
}
_FUNCTIONS = {
    *("h5py.File", "np.load", "ET.parse", "trimesh.load", "Image.open", "yaml.load"),
    *("yaml.compose", "yaml.safe_load", "os.environ.get", "torch.load", "pickle.load"),
    *("load", "unpack"),  # of `strict_json` and of codecs
}
_LAST = {name.rpartition(".")[2] for name in _FUNCTIONS}
_ROOMS = ("fleet_tools", "experts", "baselines", "assets")

TRIED: dict[str, str] = {
    # configuration
    "fleet_tools/config/extends.py": "task files",
    "fleet_tools/config/values.py": "task files",
    "fleet_tools/config/yaml_text.py": "task files",
    "fleet_tools/utils/imports.py": "environment variables",
    "fleet_tools/evaluation/protocol_file.py": "files of experiments, protocols, scenes",
    "fleet_tools/storage/provenance.py": "files of experiments, protocols, scenes",
    "baselines/fleet.py": "files of experiments, protocols, scenes",
    "baselines/flower/server.py": "files of experiments, protocols, scenes",
    "fleet_tools/utils/option_parser.py": "names and notations",
    "fleet_tools/robot/arm.py": "files of experiments, protocols, scenes",
    # models
    "fleet_tools/studio/checking/program.py": "models' keypoints.yaml",
    "fleet_tools/studio/importing/program.py": "caches and records",
    "fleet_tools/studio/importing/scan_files.py": "views of scans",
    "fleet_tools/studio/labelling/labels.py": "drafts of labels",
    "experts/predicate_sentences.py": "models' SDFormat and URDF",
    "fleet_tools/sim/add_models.py": "models' SDFormat and URDF",
    "fleet_tools/sim/catalog.py": "models that data carry",
    "fleet_tools/sim/mesh_reading.py": "meshes to import",
    "fleet_tools/sim/visual_meshes.py": "visual meshes of models",
    "fleet_tools/sim/contact_shapes.py": "models' SDFormat and URDF",
    "fleet_tools/sim/model_files.py": "models that data carry",
    "fleet_tools/sim/model_xml.py": "models' SDFormat and URDF",
    "fleet_tools/studio/checking/mending.py": "models' SDFormat and URDF",
    # data and results
    "fleet_tools/dataset/episode_file.py": "episodes without, or a forged one",
    "fleet_tools/dataset/header.py": "headers and manifests",
    "fleet_tools/dataset/dataset_folder.py": "headers and manifests",
    "fleet_tools/dataset/self_contained.py": "episodes without, or a forged one",
    "fleet_tools/rollouts/episode.py": "episodes without, or a forged one",
    "fleet_tools/evaluation/packed_episodes.py": "columns of results",
    "fleet_tools/evaluation/result.py": "results of evaluations",
    "fleet_tools/evaluation/result_folder.py": "results of evaluations",
    "fleet_tools/leaderboard/host.py": "caches and records",
    "fleet_tools/leaderboard/entries.py": "folders of a leaderboard",
    "fleet_tools/dataset/uploads.py": "uploads of robots",
    "fleet_tools/storage/integers.py": "uploads of robots",
    "baselines/federated/compact.py": "uploads of robots",
    "fleet_tools/storage/locked_folder.py": "headers and manifests",
    "fleet_tools/storage/parquet_file.py": "columns of results",
    "fleet_tools/storage/record_folder.py": "headers and manifests",
    "fleet_tools/storage/run_folder.py": "documents and logs of runs",
    "fleet_tools/storage/strict_json.py": "headers and manifests",
    "fleet_tools/storage/tensor_files.py": "states of training runs",
    # learning, merging, fleets
    "baselines/experiments/cells.py": "caches and records",
    "baselines/experiments/supervised/readers.py": "files of labelled examples",
    "baselines/experiments/supervised/sources.py": "files of labelled examples",
    "baselines/federated/messages.py": "answers of robots of fleets",
    "baselines/federated/record.py": "states of fleets",
    "baselines/federated/transport.py": "assignments, values over Flower",
    "baselines/federated/partial.py": "caches and records",
    "baselines/federated/vectors.py": "answers of robots of fleets",
    "baselines/flower/client.py": "assignments, values over Flower",
    "baselines/flower/protection.py": "assignments, values over Flower",
    "baselines/flower/records.py": "assignments, values over Flower",
    "baselines/flower/transport.py": "answers of robots of fleets",
    "baselines/model_files.py": "weights of others",
    "baselines/merging/src/fleet_merging/queries/wire.py": "messages to robots of fleets",
    "baselines/policies/checkpoint.py": "checkpoints, weights to merge",
    "baselines/policies/lerobot.py": "headers and manifests",
    "baselines/policies/config.py": "files of experiments, protocols, scenes",
    "baselines/policies/resnet.py": "weights of others",
    "baselines/training/record.py": "states of training runs",
    # policies, pages and servers
    "fleet_tools/studio/photographs/render_requests.py": "forms of the Blender server",
    "fleet_tools/policies/policy_client.py": "answers of policy servers",
    "fleet_tools/policies/confined.py": "answers of confined policies",
    "fleet_tools/policies/released.py": "environment variables",
    "fleet_tools/policies/server_access.py": "environment variables",
    "fleet_tools/policies/array_codec.py": "requests to a served policy",
    "fleet_tools/policies/policy_server.py": "bytes to a served policy",
    "fleet_tools/studio/teleoperation/page_server.py": "messages of the teleop page",
    # variables
    "fleet_tools/parallel/backend.py": "environment variables",
    "fleet_tools/parallel/cluster.py": "environment variables",
    "fleet_tools/perception/display.py": "environment variables",
    "fleet_tools/utils/drake_release.py": "environment variables",
    "fleet_tools/utils/libraries.py": "environment variables",
    "fleet_tools/parallel/ray_workers.py": "environment variables",
}
"""By module, a kind of input that it reads."""

_PACKAGE = "files of the package"
_CHILD = "messages between this process and one that it started, which runs its code"
_WHOLE = "hashed or copied as bytes"
_OWN = "what this process has just made"
_VARIABLE = "whether a variable of Python or the desktop, or a path of the user's own, is set"

NOT_TRIED: dict[str, str] = {
    "fleet_tools/__main__.py": _PACKAGE,
    "fleet_tools/registration.py": _PACKAGE,
    "fleet_tools/studio/labelling/expert_trial.py": _CHILD,
    "fleet_tools/studio/photographs/blender_pool.py": _CHILD,
    "fleet_tools/studio/photographs/drawing.py": _CHILD,
    "fleet_tools/parallel/apart.py": _CHILD,
    "fleet_tools/doctor.py": _CHILD,
    "fleet_tools/parallel/local_workers.py": _CHILD,
    "fleet_tools/studio/teleoperation/camera_process.py": _CHILD,
    "fleet_tools/studio/labelling/subjects.py": _WHOLE,
    "assets/model_folder.py": _WHOLE,
    "baselines/audit.py": _WHOLE,
    "baselines/train.py": _WHOLE,
    "fleet_tools/checkpoints.py": _WHOLE,
    "baselines/experiments/fleets.py": "a report of the same folder, a cache",
    "baselines/experiments/life_figure.py": "frames that it has drawn",
    "baselines/experiments/recipes.py": "files of a checkout, whose commands run by name alone",
    "baselines/experiments/reproduction.py": "reports of its own, and results, read as elsewhere",
    "baselines/experiments/result.py": "a result of the same folder, checked as a whole",
    "baselines/federated/changes.py": _OWN,
    "baselines/policies/lerobot_merging.py": "folders that LeRobot reads, in another environment",
    "fleet_tools/sim/resting_faces.py": _OWN,
    "fleet_tools/evaluation/run.py": "lines that are counted, whatever they are",
    "fleet_tools/dataset/export/exporting.py": "the task of a dataset that has been read",
    "fleet_tools/dataset/export/source.py": _OWN,
    "fleet_tools/leaderboard/checks.py": _OWN,
    "fleet_tools/leaderboard/verification.py": "code of a policy, of which it compares the hash",
    "fleet_tools/policies/policy.py": _OWN,
    "fleet_tools/studio/pictures/clips.py": _OWN,
    "fleet_tools/blender.py": _VARIABLE,
    "fleet_tools/view.py": _VARIABLE,
    "fleet_tools/utils/machine.py": "files of the system",
}
"""By module, why no kind of input tries what it reads."""


def reading_modules() -> set[str]:
    """Returns the modules that call anything which reads files, messages or variables."""
    return {path for path, tree in _modules() if any(map(_reads, ast.walk(tree)))}


def variables_of_the_package() -> set[str]:
    """Returns the environment variables of the package that its modules name."""
    return {
        node.value
        for _, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch("FLEET_TOOLS_[A-Z_]+", node.value)
    }


@cache
def _modules() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8")))
        for room in _ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if not {"build", "tests"} & set(path.relative_to(ROOT).parts)
        and path.resolve() == path.absolute()  # others belong to rooms that are seen through links
    ]


def _reads(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    last = getattr(node.func, "attr", getattr(node.func, "id", None))
    return last in _METHODS or (last in _LAST and ast.unparse(node.func) in _FUNCTIONS)
