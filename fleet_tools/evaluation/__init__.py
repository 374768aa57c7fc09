"""Scores that anyone can compute again: protocols, results, and how two results compare.

protocol    what is evaluated: tasks, splits, the seeds of scenes
result      what came of it, as values, and their two files
scores      success rates with intervals, from episodes
comparison  of two results, scene by scene
policies    who is evaluated: by name, by module:factory, by checkpoint
trial       one episode of it, and the same again from its stored actions
writer      stores what ended, whatever happens to the process
summary     a result in words and columns
"""
