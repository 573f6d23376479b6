"""The folder of everything that may be deleted and is made again: downloads, and the answers of services."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder named by ASSAY_CACHE, else the user's cache folder of the operating system."""
    chosen = os.environ.get("ASSAY_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("assay", appauthor=False)
