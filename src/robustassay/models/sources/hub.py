"""`hf:ORG/REPO[@REVISION]`: image classifiers on the Hugging Face hub, in timm's or transformers' layout.

A repository holds config.json, model.safetensors and, for transformers, preprocessor_config.json; a local folder
with these files may stand in its place. No other form of weights is read, and no code of a repository is run.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from robustassay.errors import BadModel, BadRequest, BadWeights
from robustassay.models.sources import Loaded
from robustassay.models.sources.cache import fetch, fetch_json
from robustassay.models.sources.extras import need
from robustassay.models.sources.fitting import put
from robustassay.models.sources.preparation import Preparation, Prepared
from robustassay.models.sources.timm import preparation as timm_preparation
from robustassay.models.weights import read_weights, sha256_of

WEIGHTS: Final = "model.safetensors"
INTERPOLATIONS: Final = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""The interpolation numbers of PIL, as in the files of transformers."""


def load(rest: str) -> Loaded:
    """Load a classifier with the library of its configuration."""
    repository = Repository.open(rest)
    config = repository.read("config.json")
    if "architecture" in config:
        return _load_timm(repository, config)
    if "model_type" in config:
        return _load_transformers(repository)
    raise BadModel(f"{rest} is in neither timm's nor transformers' layout: load it in a file of yours instead.")


@final
@dataclass(frozen=True)
class Repository:
    """The files of a model: a local folder, or a commit on the hub with the hashes of its files."""

    name: str
    folder: Path | None
    commit: str
    promised: Mapping[str, str | None]

    @classmethod
    def open(cls, spec: str) -> "Repository":
        """List the files of a repository; offline, return the cached list."""
        folder = Path(spec).expanduser()
        if (folder / "config.json").is_file():
            return cls(spec, folder, "", {file.name: None for file in folder.iterdir()})
        name, _, revision = spec.partition("@")
        if name.count("/") != 1 or not all(name.split("/")):
            raise BadRequest(f"A model on the hub must be ORG/REPO, or a folder with config.json, not {spec!r}.")
        revision = revision or "main"
        about = fetch_json(f"{_hub()}/api/models/{name}/revision/{revision}?blobs=true", f"hub/{name}/{revision}.json")
        files = {file["rfilename"]: (file.get("lfs") or {}).get("sha256") for file in about.get("siblings", [])}
        return cls(name, None, str(about.get("sha", revision)), files)

    def file(self, name: str) -> Path:
        """Return a file of the repository, from the folder, the cache or the hub."""
        if name not in self.promised:
            raise BadWeights(f"{self.name} has no {name}: only classifiers saved as safetensors can be loaded.")
        if self.folder is not None:
            return self.folder / name
        url = f"{_hub()}/{self.name}/resolve/{self.commit}/{name}"
        return fetch(url, f"hub/{self.name}/{self.commit}/{name}", self.promised[name])

    def read(self, name: str) -> dict[str, Any]:
        """Return a JSON file of the repository."""
        try:
            content = json.loads(self.file(name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise BadModel(f"{name} of {self.name} is not JSON: fetch it again.") from error
        if not isinstance(content, dict):
            raise BadModel(f"{name} of {self.name} is not a JSON object: fetch it again.")
        return content

    def weights(self) -> Path:
        """Return the file of weights, which is always safetensors."""
        return self.file(WEIGHTS)


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _load_timm(repository: Repository, config: Mapping[str, Any]) -> Loaded:
    timm = need("timm", "timm")
    settings = {**config, **config.get("pretrained_cfg", {})}
    name = config["architecture"]
    if not timm.is_model(name):
        raise BadModel(f"{repository.name} is of the architecture {name!r}, which the installed timm does not know.")
    network = timm.create_model(name, num_classes=settings["num_classes"], **config.get("model_args", {}))
    path = repository.weights()
    return Loaded(Prepared(put(network, read_weights(path), name), timm_preparation(settings)), sha256_of(path))


def _load_transformers(repository: Repository) -> Loaded:
    transformers = need("transformers", "transformers")
    wanted = transformers_preparation(repository.read("preprocessor_config.json"))
    path = repository.weights()
    noisy = transformers.utils.logging
    noisy.disable_progress_bar()
    try:
        # Only a local folder, safetensors and classes of transformers: nothing else is downloaded or run.
        network = transformers.AutoModelForImageClassification.from_pretrained(
            path.parent, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BadModel(f"transformers cannot make an image classifier of {repository.name} ({reason}).") from error
    return Loaded(Prepared(network, wanted), sha256_of(path))


def transformers_preparation(settings: Mapping[str, Any]) -> Preparation:
    """Return the preparation that an image processor file of transformers describes."""
    try:
        return _preparation(settings)
    except (TypeError, ValueError, KeyError, ArithmeticError) as error:
        raise BadModel(f"The model's preprocessor_config.json makes no sense ({error!r}): fetch it again.") from error


def _preparation(settings: Mapping[str, Any]) -> Preparation:
    size, crop = settings.get("size"), settings.get("crop_size")
    if size is None:
        raise BadModel("The model's preprocessor_config.json names no size: wrap it in a file of yours.")
    resize = _size(size)
    cuts = bool(settings.get("do_center_crop")) and crop is not None
    seen = _both(_size(crop)) if cuts else _both(resize)
    if not cuts and isinstance(resize, int) and settings.get("crop_pct") and resize < 384:
        resize = int(resize / float(settings["crop_pct"]))  # ConvNeXt crops below 384 pixels
    normalises = settings.get("do_normalize", True)
    return Preparation(
        seen,
        resize,
        INTERPOLATIONS.get(settings.get("resample", 2), str(settings.get("resample"))),
        tuple(settings.get("image_mean") or (0.5,) * 3) if normalises else (0.0,) * 3,
        tuple(settings.get("image_std") or (0.5,) * 3) if normalises else (1.0,) * 3,
    )


def _size(size: Any) -> int | tuple[int, int]:
    """Parse a size in any of its forms: 224, {"shortest_edge": 224}, {"height": 224, "width": 224}."""
    if isinstance(size, Mapping):
        return int(size["shortest_edge"]) if "shortest_edge" in size else (int(size["height"]), int(size["width"]))
    return (int(size), int(size))


def _both(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
