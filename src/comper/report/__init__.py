"""From run folders to one page. `report.py` is the walk; the steps stand beside it in this order:

    reading.py    1  run folders to trials (facts.py: what a report takes from their records and from the floors)
    summary.py    2  scores, intervals and aggregates (statistics.py)
    checks.py     3  what the averages would hide (findings.py)
    tables/       4  every table, as CSV, LaTeX and cells of the page
    figures/      5  every figure, as SVG and PNG
    page.py       6  one self-contained page

`published/` holds what others published: scores with their sources, and the importer of the logs released with the paper.
"""
