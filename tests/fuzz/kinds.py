"""All kinds of input that come from strangers, users or damaged disks."""

from fuzz import (
    kinds_conversations,
    kinds_files,
    kinds_fleets,
    kinds_programs,
    kinds_tensors,
    kinds_texts,
)
from fuzz.running import Kind

KINDS = {
    kind.name: kind
    for kind in (
        Kind("actions to `step`", kinds_programs.actions, 2.0, 100),
        Kind("arguments of environments", kinds_programs.constructor, 0.4, 30),
        Kind("arguments of `reset`", kinds_programs.resets, 0.7, 20),
        Kind("task files", kinds_texts.tasks, 0.5, 20),
        Kind("task files, an episode run", kinds_texts.tasks_run, 0.2, 4),
        Kind("files of experiments, protocols, scenes", kinds_texts.configurations, 0.6, 20),
        Kind("models' SDFormat and URDF", kinds_texts.models, 0.8, 15),
        Kind("models' keypoints.yaml", kinds_texts.labels, 3.0, 30),
        Kind("drafts of labels", kinds_texts.drafts, 2.0, 30),
        Kind("meshes to import", kinds_files.meshes, 0.3, 5),
        Kind("visual meshes of models", kinds_files.visual_meshes, 0.5, 15),
        Kind("views of scans", kinds_files.scans, 2.0, 20),
        Kind("imports with a joint", kinds_programs.imports, 0.15, 6),
        Kind("headers and manifests", kinds_files.documents, 0.5, 20),
        Kind("episodes with a digest", kinds_files.checked_episodes, 5.0, 20),
        Kind("episodes without, or a forged one", kinds_files.forged_episodes, 0.5, 20),
        Kind("results of evaluations", kinds_files.results, 8.0, 20),
        Kind("columns of results", kinds_files.packed_results, 2.0, 20),
        Kind("folders of a leaderboard", kinds_files.leaderboards, 0.3, 10),
        Kind("files of labelled examples", kinds_files.labelled_files, 1.0, 40),
        Kind("checkpoints, weights to merge", kinds_tensors.checkpoints, 4.0, 20),
        Kind("states of training runs", kinds_tensors.training_states, 4.0, 20),
        Kind("states of fleets", kinds_tensors.fleet_states, 1.5, 20),
        Kind("answers of confined policies", kinds_programs.answers, 38.0, 100),
        Kind("forms of the Blender server", kinds_conversations.blender_forms, 25.0, 60),
        Kind("requests to the Blender server", kinds_conversations.http_requests, 4.0, 20),
        Kind("requests to a served policy", kinds_conversations.requests, 20.0, 100),
        Kind("answers of policy servers", kinds_conversations.server_answers, 2.0, 30),
        Kind("bytes to a served policy", kinds_conversations.served_connections, 2.0, 30),
        Kind("messages of the teleop page", kinds_conversations.page_messages, 15.0, 100),
        Kind("clicks on the page of `label`", kinds_conversations.label_page, 4.0, 60),
        Kind("messages to robots of fleets", kinds_fleets.robot_requests, 8.0, 60),
        Kind("answers of robots of fleets", kinds_fleets.robot_answers, 15.0, 100),
        Kind("uploads of robots", kinds_fleets.uploads, 2.0, 40),
        Kind("assignments, values over Flower", kinds_fleets.flower_records, 5.0, 60),
        Kind("models that data carry", kinds_tensors.carried_models, 0.4, 15),
        Kind("documents and logs of runs", kinds_tensors.run_documents, 1.0, 20),
        Kind("caches and records", kinds_tensors.kept_files, 5.0, 60),
        Kind("weights of others", kinds_tensors.foreign_weights, 4.0, 40),
        Kind("names and notations", kinds_texts.words, 15.0, 150),
        Kind("environment variables", kinds_texts.variables, 1.5, 40),
        Kind("command lines", kinds_programs.command_lines, 0.4, 10),
    )
}
