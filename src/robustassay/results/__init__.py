"""Turns stored runs into what people read: `Result`, the report and the leaderboard all read runs through here.

- `identity`: which model, threat and attack a manifest names, and which runs may be compared.
- `run_warnings`: reasons to doubt a robust accuracy: flags, unverified claims and samples in doubt.
- `worst_case`: which runs are comparable, and their worst case over attacks.
- `discovery`: the folders of runs below a folder.
- `runs`: a stored run, whose records may be in several folders.
- `models`: one model under one threat, and all models under one threat in order.
- `ranking`: ranks on the samples that most models share.
- `labels`: short names of threats, settings and attacks.
- `cards`: the card of an embedded model.
"""
