"""Pictures drawn with matplotlib, which is an extra: `pip install 'robustassay[plots]'`."""
