"""Turns stored runs into what people read: `Result`, the report and the leaderboard all read runs through here.

- `identity`: which model, threat and attack a manifest names, and which runs may be compared.
- `evidence`: flags, unverified claims and samples in doubt, over one run or several.
- `worst_case`: the runs that the worst case over attacks may be taken over.
- `discovery`: the folders of runs below a folder.
- `runs`: a stored run, whose records may be in several folders.
- `models`: one model under one threat, and all models under one threat in order.
- `ranking`: ranks on the samples that most models share.
- `labels`: short names of threats, settings and attacks.
- `cards`: the card of an embedded model.
"""
