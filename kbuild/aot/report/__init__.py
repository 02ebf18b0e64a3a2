"""`kbuild report`: the state of a library as one HTML file.

    manifest, records, history, wheel ─collect─▶ summary ─────────────┐
    variants ─compile with dumps─▶ pipeline, layouts, lines ─▶ details ┴─page─▶ report.html

The page's own code is in `templates/report/`; it reads the summary and the details from sections that are packed
until they are looked at.
"""
