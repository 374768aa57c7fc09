"""Evaluation of policies: protocols, trials, results, scores and comparisons.

protocol           what is evaluated: tasks, splits and the seeds of scenes
protocol_file      which file, task file or result stands for which protocol
policy_provenance  the evaluated policy and what it sees
result             an evaluation as values
result_file        its two files, also those of earlier versions
admission          whether a result can enter the leaderboard
scores             success rates with intervals, from episodes
comparison         two results, compared scene by scene
trial              one episode of an evaluation, and its check from the stored actions
run                an evaluation from its beginning to its scores
writer             storage of episodes as they end
summary            a result as text
"""
