"""The description of a service: its address, how images are sent, where labels and scores are found, and its limits.

The ready adapters use the two protocols of `assay serve`; a TOML file describes any other service:

    url = "https://example.org/v1/classify?key=$MY_KEY"      # $NAME is read from the environment, here and in headers
    [request]
    body = "multipart"                  # raw, multipart, json or oip
    field = "file"                      # the name of the multipart field
    json = '{"image": "{image}"}'       # what a json body looks like; {image} becomes base64
    encoding = "png"                    # png or jpeg; uint8 or float with oip
    headers = { Authorization = "Bearer $MY_KEY" }
    [response]
    labels = "predictions.*.label"      # a path; * stands for every item of a list
    scores = "predictions.*.confidence" # left out where the service shows labels only
    kind = "probabilities"              # or logits
    [labels]
    map = { tabby = "cat" }             # or file = "labels.json"; else names must be those of the data
    outside = "wrong"                   # a label not mapped counts as a wrong one; "error" (the default) stops
    [limits]
    max_queries = 10000
"""

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, final, get_args
from urllib.parse import urlsplit

from robustassay.errors import BadRequest
from robustassay.remote.discovery import find_endpoint
from robustassay.remote.public_form import public_address, public_json

Body = Literal["raw", "multipart", "json", "oip"]
Encoding = Literal["png", "jpeg", "uint8", "float"]
Kind = Literal["probabilities", "logits"]
KEY_VARIABLE: Final = "ASSAY_API_KEY"
"""The environment variable from which the ready adapters read a key."""


@final
@dataclass(frozen=True)
class Limits:
    """The limits of requests, queries and cost."""

    concurrency: int = 8  # requests in flight
    per_second: float | None = None  # requests
    timeout_s: float = 10.0  # of one try, from the connection to the last byte of the response
    tries: int = 10  # of one request, before the run is given up
    max_backoff_s: float = 20.0
    max_response_bytes: int = 4 << 20  # after decompression
    max_queries: int | None = None  # images sent in one command, every try included
    cost_per_query: float = 0.0
    max_cost: float | None = None  # of the images that the service may charge
    batch: int = 1  # images a request, where the protocol can hold several

    def __post_init__(self) -> None:
        counts = {"concurrency": 1, "tries": 1, "batch": 1, "timeout_s": 1e-3, "max_backoff_s": 0, "cost_per_query": 0}
        caps = {"max_queries": 0, "max_cost": 0, "per_second": 1e-6, "max_response_bytes": 1}
        for name, least in {**counts, **caps}.items():
            value = getattr(self, name)
            whole = name in ("concurrency", "tries", "batch", "max_queries", "max_response_bytes")
            if value is not None and (type(value) not in ((int,) if whole else (int, float)) or not value >= least):
                raise BadRequest(f"[limits] {name} must be a number of {least} or more, not {value!r}.")
        if self.max_cost is not None and not self.cost_per_query:
            raise BadRequest("[limits] max_cost needs cost_per_query: say what a query costs.")

    @property
    def most_charged(self) -> int | None:
        """How many images `max_cost` pays for."""
        return None if self.max_cost is None else int(self.max_cost / self.cost_per_query + 1e-9)


@final
@dataclass(frozen=True, repr=False)
class Adapter:
    """The description of one service."""

    url: str
    body: Body = "raw"
    encoding: Encoding = "png"
    quality: int = 95  # of a JPEG
    form_field: str = "file"
    template: str = '{"image": "{image}"}'
    headers: Mapping[str, str] = field(default_factory=dict)
    labels: str = "predictions.*.label"
    scores: str | None = "predictions.*.confidence"
    kind: Kind = "probabilities"
    label_map: Mapping[str, str | int] | None = None
    outside: Literal["error", "wrong"] = "error"
    limits: Limits = field(default_factory=Limits)
    folder: str | None = None  # of cache and transcript; one in the user's cache by default

    def __post_init__(self) -> None:
        _check_address(self.url)
        if not all(isinstance(text, str) for header in self.headers.items() for text in header):
            raise BadRequest('The value of a header must be text in quotes, such as "Bearer $MY_KEY".')
        for name, known in (("body", Body), ("encoding", Encoding), ("kind", Kind)):
            if getattr(self, name) not in get_args(known):
                raise BadRequest(f"{name} must be {' or '.join(get_args(known))}, not {getattr(self, name)!r}.")
        if self.outside not in ("error", "wrong"):
            raise BadRequest(f"outside must be error or wrong, not {self.outside!r}.")
        if (self.body == "oip") != (self.encoding in ("uint8", "float")):
            raise BadRequest("The encodings uint8 and float go with the body oip, png and jpeg with all others.")
        if self.body != "oip" and self.limits.batch > 1:
            raise BadRequest("Only the body oip holds several images: leave [limits] batch at 1.")
        if self.body == "json" and "{image}" not in self.template:
            raise BadRequest("The json of a request must say where the image goes: write {image} there.")
        if self.body == "json" and not _is_json(self.template):
            raise BadRequest('The json of a request must be JSON with {image} inside a text, such as "{image}".')

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the answers: neither limits nor secrets (`$NAME` stands for itself)."""
        mine = dataclasses.asdict(self)
        for name in ("limits", "folder"):
            del mine[name]
        public = {"url": self.public_url, "template": public_json(self.template), "headers": sorted(self.headers)}
        return {**mine, **public}

    @property
    def public_url(self) -> str:
        """The address without its secrets."""
        return public_address(self.url)

    def __repr__(self) -> str:
        """Show what may be seen by everybody."""
        return f"Adapter({', '.join(f'{name}={value!r}' for name, value in self.identity.items())})"

    @property
    def request_key(self) -> str:
        """The hash of what decides an answer before its labels are mapped."""
        mine = {name: value for name, value in self.identity.items() if name not in ("label_map", "outside")}
        return hashlib.sha256(json.dumps(mine, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def eight_bits(self) -> bool:
        """Whether images are sent with 8 bits per value."""
        return self.encoding != "float"

    def capped(self, max_queries: int | None) -> "Adapter":
        """Cap the images sent, where a number is given; a lower cap of the adapter stays."""
        if max_queries is None:
            return self
        caps = (max_queries, self.limits.max_queries)
        return replace(self, limits=replace(self.limits, max_queries=min(cap for cap in caps if cap is not None)))

    @classmethod
    def of(cls, place: str) -> "Adapter":
        """Read a TOML file, or return a ready adapter for an address; a host alone is asked for its endpoint."""
        if place.lower().endswith(".toml"):
            return cls.read(Path(place))
        _check_address(place)
        return cls.ready(find_endpoint(place))

    @classmethod
    def ready(cls, url: str, **settings: Any) -> "Adapter":
        """Use the Open Inference Protocol for an address with /v2/models/, else send image files."""
        import os

        headers = {"X-API-Key": f"${KEY_VARIABLE}"} if os.environ.get(KEY_VARIABLE) else {}
        if "/v2/models/" in url:
            place, question, query = url.partition("?")
            whole = place.rstrip("/").removesuffix("/infer") + f"/infer{question}{query}"
            oip: dict[str, Any] = {"body": "oip", "encoding": "uint8", "labels": "", "scores": None, "kind": "logits"}
            return cls(**({"url": whole, "headers": headers} | oip | settings))
        return cls(**({"url": url, "headers": headers} | settings))

    @classmethod
    def read(cls, path: Path) -> "Adapter":
        """Read an adapter file."""
        try:
            written = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadRequest(f"{path} is no adapter file that can be read ({error}).") from error
        is_custom = "response" in written
        sections = {name: written.pop(name, {}) for name in ("request", "response", "labels", "limits")}
        request, mapping = sections["request"], sections["labels"]
        for written_as, name in (("json", "template"), ("field", "form_field")):
            if written_as in request:
                request[name] = request.pop(written_as)
        if "file" in mapping:
            mapping["map"] = _read_map(path.parent / mapping.pop("file"))
        if "map" in mapping:
            mapping["label_map"] = mapping.pop("map")
        try:
            settings = {**written, **request, **sections["response"], **mapping, "limits": Limits(**sections["limits"])}
            return cls(**{"scores": None, **settings}) if is_custom else cls.ready(**settings)
        except TypeError as error:
            raise BadRequest(f"{path} has a setting that no adapter knows, or lacks its url: {error}.") from error


def _check_address(url: object) -> None:
    """Refuse what is no address of HTTP; the message shows no secret."""
    shown = public_address(url) if isinstance(url, str) else url
    try:
        whole = urlsplit(url if isinstance(url, str) else "")
        valid = whole.scheme in ("http", "https") and bool(whole.hostname) and (whole.port is None or whole.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise BadRequest(f"A service has an address such as https://example.org/classify, not {shown!r}.")
    if "@" in whole.netloc:
        raise BadRequest("Write no password into an address: send it in a header, from the environment.")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def is_service(model: str) -> bool:
    """Say whether a model is named by an address, or by an adapter file."""
    return model.startswith(("http://", "https://")) or model.lower().endswith(".toml")


def _read_map(path: Path) -> dict[str, str | int]:
    """Read a label mapping from JSON or TOML: from a label of the service to a class of the data."""
    try:
        text = path.read_text(encoding="utf-8")
        found: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise BadRequest(f"{path} is no label file that can be read ({error}).") from error
    if not isinstance(found, dict) or not all(isinstance(value, str | int) for value in found.values()):
        raise BadRequest(f"{path} must map each label of the service to the name or number of a class.")
    return found
