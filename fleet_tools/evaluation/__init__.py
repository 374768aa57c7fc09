"""Evaluation of policies: protocols, trials, results, scores and comparisons.

config             options of an evaluation
protocol           what is evaluated: tasks, splits and the seeds of scenes
protocol_file      which file, task file or result stands for which protocol
policy_provenance  the evaluated policy and what it sees
result             an evaluation as values
result_folder      its two files: reading, and storage of episodes as they end
trial              one episode of an evaluation, and its check from the stored actions
run                an evaluation from its beginning to its scores
scores             success rates with intervals; two results compared scene by scene
admission          whether a result can enter the leaderboard
score_tables       a result's scores as text

For LeRobot's evaluation program:

lerobot_hub        environments whose episode of seed k is scene k of a protocol
"""
