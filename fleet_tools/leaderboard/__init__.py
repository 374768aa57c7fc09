"""A page of all submitted results: checked, recomputed from their episodes, and ranked.

result_folders  folders of results, of whatever strangers left there, and the names of methods
submissions     results of a folder; rejected ones with their problems
checks          checks of a result's content
records         what the host found when it ran episodes again
verification    stored actions of submitted episodes, run again
standings       methods and their success rates, from the episodes of all training runs; ranks
letters         what methods share that cannot be told apart
board           all of it as one value, from which the page follows
tables          its tables as values, and texts in them
page            the page as HTML and as Markdown, from `templates/`
texts           its summary for the terminal, as text and as JSON
"""
