"""The page that the verifier serves: what `relay status` shows, live, with small plots.

`plots` gathers what is plotted, `refresh` asks every few seconds, `routes` answers the browser, and
`page.html` is all that it loads. `verifier_metrics` is what programs read.
"""
