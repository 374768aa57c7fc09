"""The leaderboard: policies that the host has run in fresh scenes, ranked on one page.

entries       folders of submissions, whatever strangers left there
checks        checks of a submitted result
host          the host's seed, the fresh scenes, and the record of what the host ran
verification  runs of policies in the fresh scenes, and of episodes of submitted results
standings     methods: success rates, copies and ranks
letters       what methods share that cannot be told apart
board         all of it as plain values, from which the page follows
tables        its tables as values, and texts in them
page          the page as HTML and as Markdown, from `templates/`
texts         its summary for the terminal, as text and as JSON
"""
