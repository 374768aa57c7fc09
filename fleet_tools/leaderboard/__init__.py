"""A page of all submitted results: checked, recomputed from their episodes, and ranked.

submissions   results of a folder, of all known schema versions; rejected ones with their problems
checks        checks of a result's content
standings     methods and their success rates, from the episodes of all training runs; ranks
verification  stored actions of submitted episodes, run again
board         all of it as one value, from which the page follows
wording       texts that both pages share
markdown      the page as Markdown
page          the page as HTML, with its style sheet, script and plots

Videos of the episodes are made by `fleet_tools.studio.pictures.clips`.
"""
