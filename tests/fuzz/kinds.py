"""All kinds of input that come from strangers, users or damaged disks."""

from fuzz import (
    kinds_blender,
    kinds_environments,
    kinds_files,
    kinds_others,
    kinds_programs,
    kinds_remote,
    kinds_tensors,
    kinds_texts,
)
from fuzz.kernel import Kind

KINDS = {
    kind.name: kind
    for kind in (
        Kind("actions to `step`", kinds_environments.actions, 2.0, 100),
        Kind("arguments of environments", kinds_environments.constructor, 0.4, 30),
        Kind("arguments of `reset`", kinds_environments.resets, 0.7, 20),
        Kind("task files", kinds_texts.tasks, 0.5, 20),
        Kind("task files, an episode run", kinds_texts.tasks_run, 0.2, 4),
        Kind("files of fleets, sweeps, protocols", kinds_texts.configurations, 0.6, 20),
        Kind("models' SDFormat and URDF", kinds_texts.models, 0.8, 15),
        Kind("models' keypoints.yaml", kinds_texts.labels, 3.0, 30),
        Kind("drafts of labels", kinds_texts.drafts, 2.0, 30),
        Kind("meshes to import", kinds_others.meshes, 0.3, 5),
        Kind("headers and manifests", kinds_files.documents, 0.5, 20),
        Kind("episodes with a digest", kinds_files.checked_episodes, 5.0, 20),
        Kind("episodes without, or a forged one", kinds_files.forged_episodes, 0.5, 20),
        Kind("results of evaluations", kinds_files.results, 8.0, 20),
        Kind("folders of a leaderboard", kinds_others.leaderboards, 0.3, 10),
        Kind("files of labelled examples", kinds_others.labelled_files, 1.0, 40),
        Kind("checkpoints, weights to merge", kinds_tensors.checkpoints, 4.0, 20),
        Kind("states of training runs", kinds_tensors.training_states, 4.0, 20),
        Kind("states of fleets", kinds_tensors.fleet_states, 1.5, 20),
        Kind("answers of confined policies", kinds_programs.answers, 38.0, 100),
        Kind("forms of the Blender server", kinds_blender.blender_forms, 25.0, 60),
        Kind("requests to the Blender server", kinds_blender.http_requests, 4.0, 20),
        Kind("requests to a served policy", kinds_remote.requests, 20.0, 100),
        Kind("command lines", kinds_programs.command_lines, 0.4, 10),
    )
}
