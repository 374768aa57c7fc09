"""A page of all results: checked, computed again from their episodes, and ranked.

submissions   reads a folder of results; what is wrong with each
strict_json   JSON that leaves no room for two readings
standings     methods and their numbers, from the episodes of all their trainings; ranks
verification  runs episodes again from their stored actions
clips         films of stored episodes
board         all of it as one value, from which the page follows
markdown      the page as Markdown
page          the page as HTML, with its style sheet, its script and its plots beside it
"""
