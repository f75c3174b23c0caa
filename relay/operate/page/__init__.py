"""The page that the verifier serves: what `relay status` shows, live, with small plots.

`trail` and `samples` gather what the plots need, `looking` asks every few seconds, `routes`
answers the browser, and `page.html` is all that it loads. `figures` is what programs read.
"""
