"""Models from where people keep them: the cache against a real server, each adapter against files in its layout."""

import hashlib
import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import robustassay as ra
from robustassay.cache_folder import cache_folder
from robustassay.errors import BadModel, BadRequest, BadWeights, UnknownName
from robustassay.evaluation.model_ref import ModelRef
from robustassay.models.sources import SOURCES, cache
from robustassay.models.sources.cache import fetch
from robustassay.models.sources.extras import need
from robustassay.models.sources.hub import transformers_preparation
from robustassay.models.sources.preparation import Preparation, Prepared

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Shelf:
    """What a test server offers, how it misbehaves, and what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.breaks_after: int | None = None  # bytes an answer, where the connection breaks off
        self.knows_ranges = True
        self.kind = "application/octet-stream"
        self.asked: list[tuple[str, str | None]] = []
        self.url = ""


@pytest.fixture
def shelf(tmp_path, monkeypatch) -> Iterator[Shelf]:
    shelf = Shelf()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            shelf.asked.append((self.path, wanted))
            content = shelf.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and shelf.knows_ranges else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Type", shelf.kind)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            rest = content[start:]
            self.wfile.write(rest if shelf.breaks_after is None else rest[: shelf.breaks_after])

        def log_message(self, format: str, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    shelf.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASSAY_OFFLINE", raising=False)
    yield shelf
    server.shutdown()
    server.server_close()
    thread.join()


class TestCache:
    def test_a_file_is_fetched_once_and_then_read_without_network(self, shelf, monkeypatch, tmp_path):
        shelf.files["/w.bin"] = CONTENT
        path = fetch(f"{shelf.url}/w.bin", "a/w.bin", SHA256)
        assert path == tmp_path / "cache" / "a" / "w.bin"
        assert path.read_bytes() == CONTENT
        monkeypatch.setenv("ASSAY_OFFLINE", "1")
        assert fetch(f"{shelf.url}/w.bin", "a/w.bin", SHA256) == path
        assert len(shelf.asked) == 1

    def test_a_corrupt_download_is_refused_and_not_kept(self, shelf, tmp_path):
        shelf.files["/w.bin"] = CONTENT[:-1] + b"?"
        with pytest.raises(BadWeights, match="not the file that was promised"):
            fetch(f"{shelf.url}/w.bin", "w.bin", SHA256)
        assert list((tmp_path / "cache").iterdir()) == []
        shelf.files["/w.bin"] = CONTENT
        assert fetch(f"{shelf.url}/w.bin", "w.bin", SHA256).read_bytes() == CONTENT

    def test_a_broken_connection_is_continued_not_started_again(self, shelf):
        shelf.files["/w.bin"], shelf.breaks_after = CONTENT, 100_000
        assert fetch(f"{shelf.url}/w.bin", "w.bin", SHA256).read_bytes() == CONTENT
        assert [wanted for _, wanted in shelf.asked] == [None, "bytes=100000-", "bytes=200000-"]

    def test_a_download_that_gave_up_goes_on_at_the_next_call(self, shelf):
        shelf.files["/w.bin"], shelf.breaks_after = CONTENT, 10_000
        with pytest.raises(BadWeights, match="run the same command again to resume"):
            fetch(f"{shelf.url}/w.bin", "w.bin", SHA256)
        shelf.breaks_after = None
        shelf.asked.clear()
        assert fetch(f"{shelf.url}/w.bin", "w.bin", SHA256).read_bytes() == CONTENT
        assert shelf.asked == [("/w.bin", f"bytes={cache.ATTEMPTS * 10_000}-")]

    def test_a_server_without_ranges_starts_from_the_beginning(self, shelf, tmp_path):
        shelf.files["/w.bin"], shelf.knows_ranges = CONTENT, False
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "w.bin.part").write_bytes(CONTENT[:1000])
        assert fetch(f"{shelf.url}/w.bin", "w.bin", SHA256).read_bytes() == CONTENT

    def test_pieces_of_two_files_are_never_joined(self, shelf, tmp_path):
        shelf.files["/w.bin"] = CONTENT
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "w.bin.part").write_bytes(b"?" * 1000)
        with pytest.raises(BadWeights, match="promised"):
            fetch(f"{shelf.url}/w.bin", "w.bin", SHA256)
        (tmp_path / "cache" / "v.bin.part").write_bytes(b"?" * 1000)  # without a promised hash, nothing would tell
        assert fetch(f"{shelf.url}/w.bin", "v.bin").read_bytes() == CONTENT

    def test_without_a_promise_the_first_hash_holds(self, shelf):
        shelf.files["/w.bin"] = CONTENT
        path = fetch(f"{shelf.url}/w.bin", "w.bin")
        path.write_bytes(b"other")
        with pytest.raises(BadWeights, match=r"delete .*w\.bin"):
            fetch(f"{shelf.url}/w.bin", "w.bin")

    @pytest.mark.parametrize(("change", "words"), [("offline", "ASSAY_OFFLINE"), ("gone", "404"), ("page", "web page")])
    def test_what_cannot_be_had_is_said_in_a_sentence(self, shelf, monkeypatch, change, words):
        if change == "offline":
            monkeypatch.setenv("ASSAY_OFFLINE", "1")
        if change != "gone":
            shelf.files["/w.bin"] = CONTENT
        shelf.kind = "text/html; charset=utf-8"
        with pytest.raises(BadRequest, match=words) as caught:
            fetch(f"{shelf.url}/w.bin", "w.bin")
        assert "\n" not in str(caught.value)

    def test_no_network_is_said_in_a_sentence(self, shelf):
        with pytest.raises(BadWeights, match="cannot be reached"):
            fetch("http://127.0.0.1:1/w.bin", "w.bin")

    def test_the_folder_is_the_systems_own_unless_named(self, monkeypatch):
        monkeypatch.delenv("ASSAY_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
        if sys.platform == "linux":
            assert cache_folder() == Path("/somewhere/assay")


class TestPreparation:
    def test_does_what_pil_does(self):
        """The chain of a training pipeline (resize the short side, cut, scale, normalise), by PIL and numpy."""
        picture = np.random.default_rng(1).integers(0, 256, (60, 48, 3), np.uint8)
        picture = np.asarray(Image.fromarray(picture).resize((240, 300), Image.Resampling.BICUBIC))
        small = Image.fromarray(picture).resize((64, 80), Image.Resampling.BILINEAR).crop((4, 12, 60, 68))
        expected = (np.asarray(small) / 255 - IMAGENET[0]) / IMAGENET[1]
        module = Prepared(nn.Identity(), Preparation((56, 56), 64, "bilinear", *IMAGENET))
        found = module(torch.from_numpy(picture.transpose(2, 0, 1) / 255).float()[None])
        assert found.shape == (1, 3, 56, 56)
        np.testing.assert_allclose(found[0].permute(1, 2, 0), expected, atol=1.6 / 255 / 0.224)

    def test_images_of_the_models_size_are_only_normalised(self):
        x = torch.rand(2, 3, 8, 8)
        module = Prepared(nn.Identity(), Preparation((8, 8), 10, "bicubic", (0.5,) * 3, (0.25,) * 3))
        torch.testing.assert_close(module(x), (x - 0.5) * 4)

    def test_gradients_reach_the_image_as_it_was_given(self):
        x = torch.rand(1, 3, 20, 20, requires_grad=True)
        module = Prepared(nn.Flatten(), Preparation((8, 8), (8, 8), "bicubic", (0.5,) * 3, (0.25,) * 3))
        (gradient,) = torch.autograd.grad(module(x).sum(), x)
        assert (gradient.abs() > 0).float().mean() > 0.9

    def test_refuses_what_cannot_be_differentiated(self):
        with pytest.raises(BadModel, match="lanczos"):
            Preparation((8, 8), 8, "lanczos", *IMAGENET)

    @pytest.mark.parametrize(
        ("settings", "size", "resize"),
        [
            ({"size": {"height": 32, "width": 24}}, (32, 24), (32, 24)),
            ({"size": 32}, (32, 32), (32, 32)),
            ({"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": 32}, (32, 32), 40),
            ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (224, 224), 256),
        ],
    )
    def test_reads_each_form_of_an_image_processor(self, settings, size, resize):
        found = transformers_preparation({"resample": 3, "image_mean": [0.1] * 3, "image_std": [0.2] * 3} | settings)
        assert found == Preparation(size, resize, "bicubic", (0.1,) * 3, (0.2,) * 3)


@pytest.fixture(scope="module")
def timm_network() -> nn.Module:
    torch.manual_seed(0)
    network: nn.Module = need("timm", "timm").create_model("test_resnet", num_classes=10)
    return network.eval()


def logits(network: nn.Module, x: torch.Tensor, mean: Any, std: Any) -> torch.Tensor:
    with torch.no_grad():
        out = network((x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1))
    found: torch.Tensor = getattr(out, "logits", out)
    return found


class TestTimm:
    def test_a_file_of_the_users_with_timms_own_preparation(self, timm_network, tmp_path):
        save_file(timm_network.state_dict(), tmp_path / "mine.safetensors")
        model = ra.load_model(f"timm:test_resnet:{tmp_path / 'mine.safetensors'}")
        settings = timm_network.pretrained_cfg
        x = torch.rand(2, *settings["input_size"])
        torch.testing.assert_close(model(x), logits(timm_network, x, settings["mean"], settings["std"]))
        assert not model.training
        assert not any(parameter.requires_grad for parameter in model.parameters())

    def test_weights_come_from_the_hub_that_timm_names(self, timm_network, shelf, monkeypatch, tmp_path):
        settings = need("timm", "timm").create_model("test_resnet").pretrained_cfg
        fill_hub(shelf, settings["hf_hub_id"], tmp_path, timm_network, {})
        monkeypatch.setenv("HF_ENDPOINT", shelf.url)
        model = ra.load_model("timm:test_resnet")
        x = torch.rand(2, *settings["input_size"])
        torch.testing.assert_close(model(x), logits(timm_network, x, settings["mean"], settings["std"]))

    def test_unknown_names_and_foreign_weights(self, timm_network, tmp_path):
        with pytest.raises(UnknownName, match="resnet18"):
            ra.load_model("timm:resnet18x")
        with pytest.raises(BadRequest, match="list_models"):
            ra.load_model("timm:qqqqqqq")
        save_file(timm_network.state_dict(), tmp_path / "mine.safetensors")
        with pytest.raises(BadWeights, match="do not fit test_vit"):
            ra.load_model(f"timm:test_vit:{tmp_path / 'mine.safetensors'}")


class TestTorchvision:
    def test_its_weights_by_url_and_hash(self, shelf, monkeypatch, tmp_path):
        zoo = need("torchvision.models", "torchvision")
        torch.manual_seed(0)
        network = zoo.get_model("squeezenet1_1", weights=None, num_classes=10).eval()
        torch.save(network.state_dict(), tmp_path / "w.pth")
        content = (tmp_path / "w.pth").read_bytes()
        url = f"{shelf.url}/squeezenet-{hashlib.sha256(content).hexdigest()[:8]}.pth"
        shelf.files[url.removeprefix(shelf.url)] = content
        theirs = zoo.get_model_weights("squeezenet1_1").DEFAULT
        monkeypatch.setattr(theirs.value, "url", url)
        model = ra.load_model("torchvision:squeezenet1_1")
        x = torch.rand(1, 3, 224, 224)
        torch.testing.assert_close(model(x), logits(network, x, *IMAGENET))
        assert model.preparation == Preparation((224, 224), 256, "bilinear", *IMAGENET)

    def test_a_file_of_the_users_gives_the_same(self, tmp_path):
        zoo = need("torchvision.models", "torchvision")
        network = zoo.get_model("squeezenet1_1", weights=None, num_classes=7).eval()
        save_file(network.state_dict(), tmp_path / "w.safetensors")
        model = ra.load_model(f"torchvision:squeezenet1_1:{tmp_path / 'w.safetensors'}")
        x = torch.rand(1, 3, 224, 224)
        torch.testing.assert_close(model(x), logits(network, x, *IMAGENET))

    @pytest.mark.parametrize(("spec", "words"), [("resnet19", "resnet18"), ("resnet18:BEST", "IMAGENET1K_V1")])
    def test_unknown_names(self, spec, words):
        with pytest.raises(UnknownName, match=words):
            ra.load_model(f"torchvision:{spec}")

    def test_a_pickle_with_more_than_tensors_is_not_run(self, tmp_path):
        torch.save({"weight": torch.zeros(1), "hook": print}, tmp_path / "w.pth")
        with pytest.raises(BadWeights, match="not loaded for safety"):
            ra.load_model(f"torchvision:resnet18:{tmp_path / 'w.pth'}")


def fill_hub(shelf: Shelf, name: str, scratch: Path, network: nn.Module, documents: dict[str, Any]) -> None:
    """Offer a repository the way the hub does: an index with hashes, and files by commit."""
    save_file(network.state_dict(), scratch / "hub.safetensors")
    weights = (scratch / "hub.safetensors").read_bytes()
    files = {"model.safetensors": weights} | {key: json.dumps(value).encode() for key, value in documents.items()}
    siblings = [
        {"rfilename": key, "lfs": {"sha256": hashlib.sha256(value).hexdigest()} if key.endswith("tensors") else None}
        for key, value in files.items()
    ]
    index = json.dumps({"sha": "c0ffee", "siblings": siblings}).encode()
    shelf.files[f"/api/models/{name}/revision/main?blobs=true"] = index
    for key, value in files.items():
        shelf.files[f"/{name}/resolve/c0ffee/{key}"] = value


def timm_config(network: nn.Module) -> dict[str, Any]:
    """config.json as timm writes it."""
    keys = ("input_size", "interpolation", "crop_pct", "mean", "std")
    settings = {key: network.pretrained_cfg[key] for key in keys}  # type: ignore[index]
    return {"architecture": "test_resnet", "num_classes": 10, "pretrained_cfg": settings | {"num_classes": 10}}


class TestHub:
    def test_timms_layout_online_then_offline(self, timm_network, shelf, monkeypatch, tmp_path):
        fill_hub(shelf, "me/net", tmp_path, timm_network, {"config.json": timm_config(timm_network)})
        monkeypatch.setenv("HF_ENDPOINT", shelf.url)
        x = torch.rand(2, 3, 160, 160)
        settings = timm_network.pretrained_cfg
        expected = logits(timm_network, x, settings["mean"], settings["std"])
        torch.testing.assert_close(ra.load_model("hf:me/net")(x), expected)
        monkeypatch.setenv("ASSAY_OFFLINE", "1")
        shelf.asked.clear()
        torch.testing.assert_close(ra.load_model("hf:me/net")(x), expected)
        assert shelf.asked == []

    def test_weights_other_than_the_index_promises_are_refused(self, timm_network, shelf, monkeypatch, tmp_path):
        fill_hub(shelf, "me/net", tmp_path, timm_network, {"config.json": timm_config(timm_network)})
        monkeypatch.setenv("HF_ENDPOINT", shelf.url)
        place = "/me/net/resolve/c0ffee/model.safetensors"
        shelf.files[place] = shelf.files[place][:-1] + bytes([shelf.files[place][-1] ^ 1])
        with pytest.raises(BadWeights, match="promised"):
            ra.load_model("hf:me/net")

    def test_transformers_layout_in_a_folder(self, tmp_path):
        transformers = need("transformers", "transformers")
        torch.manual_seed(0)
        shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        config = transformers.ViTConfig(**shape, image_size=16, patch_size=8, num_labels=10)
        network = transformers.ViTForImageClassification(config).eval()
        transformers.utils.logging.disable_progress_bar()
        network.save_pretrained(tmp_path)
        with pytest.raises(BadWeights, match=r"preprocessor_config\.json"):
            ra.load_model(f"hf:{tmp_path}")
        wanted = {"size": {"height": 16, "width": 16}, "resample": 2, "image_mean": [0.4] * 3, "image_std": [0.3] * 3}
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(wanted))
        model = ra.load_model(f"hf:{tmp_path}")
        x = torch.rand(2, 3, 16, 16)
        torch.testing.assert_close(model(x), logits(network, x, [0.4] * 3, [0.3] * 3))
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)

    def test_only_safetensors_and_known_layouts(self, timm_network, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps(timm_config(timm_network)))
        torch.save(timm_network.state_dict(), tmp_path / "pytorch_model.bin")
        with pytest.raises(BadWeights, match="safetensors"):
            ra.load_model(f"hf:{tmp_path}")
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(BadModel, match="layout"):
            ra.load_model(f"hf:{tmp_path}")
        with pytest.raises(BadRequest, match="ORG/REPO"):
            ra.load_model("hf:nothing")


ROBUSTBENCH = """
import enum, pkg_resources, torch
from torch import nn

class Data(enum.Enum):
    cifar_10 = "cifar10"
    cifar_100 = "cifar100"

class Threat(enum.Enum):
    Linf = "Linf"

class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.register_buffer("mu", torch.full((3, 1, 1), 0.5))
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        return self.head((x - self.mu).flatten(1))

entries = {"Small2021": {"model": Net, "gdrive_id": "abc"}, "Deck2021": {"model": Net, "gdrive_id": ["a", "b"]}}
many = {"Wide2021": {"model": lambda: Net(100), "gdrive_id": "abc"}}
model_dicts = {Data.cifar_10: {Threat.Linf: entries}, Data.cifar_100: {Threat.Linf: many}}
"""


class TestRobustBench:
    @pytest.fixture
    def installed(self, tmp_path, monkeypatch):
        """A package in RobustBench's layout, whose own start fails as the published one's does."""
        package = tmp_path / "site" / "robustbench"
        (package / "model_zoo").mkdir(parents=True)
        (package / "__init__.py").write_text("import autoattack_that_nobody_has")
        (package / "model_zoo" / "__init__.py").write_text("from robustbench.model_zoo.models import model_dicts")
        (package / "model_zoo" / "models.py").write_text(ROBUSTBENCH)
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("ASSAY_OFFLINE", "1")
        yield tmp_path / "cache" / "robustbench" / "cifar10" / "Linf"
        for name in [name for name in sys.modules if name.split(".")[0] == "robustbench"]:
            del sys.modules[name]

    @pytest.mark.parametrize("prefix", ["", "module.", "model.", "module.model."])
    @pytest.mark.parametrize("inside", [None, "state_dict", "last"])
    def test_checkpoints_in_every_spelling(self, installed, prefix, inside):
        weight, bias = torch.rand(10, 12), torch.rand(10)
        state: dict[str, Any] = {f"{prefix}head.weight": weight, f"{prefix}head.bias": bias}
        installed.mkdir(parents=True)
        torch.save(state if inside is None else {inside: state, "epoch": 3}, installed / "Small2021.pt")
        model = ra.load_model("robustbench:Small2021:Linf")
        x = torch.rand(2, 3, 2, 2)
        torch.testing.assert_close(model(x), (x - 0.5).flatten(1) @ weight.T + bias)

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ("Smal2021", "Small2021"),
            ("Small2021:L2", "cifar10/Linf"),
            ("Deck2021", "several"),
            ("Small2021", "OFFLINE"),
        ],
    )
    def test_what_cannot_be_loaded_is_said(self, installed, spec, words):
        with pytest.raises(BadRequest, match=words):
            ra.load_model(f"robustbench:{spec}")

    def test_a_model_for_cifar100_has_a_hundred_classes(self, installed):
        place = installed.parents[1] / "cifar100" / "Linf"
        place.mkdir(parents=True)
        torch.save({"head.weight": torch.rand(100, 12), "head.bias": torch.rand(100)}, place / "Wide2021.pt")
        assert ra.load_model("robustbench:Wide2021:cifar100/Linf")(torch.rand(2, 3, 2, 2)).shape == (2, 100)

    def test_weights_of_another_network_are_refused(self, installed):
        installed.mkdir(parents=True)
        torch.save({"head.weight": torch.rand(10, 13), "head.bias": torch.rand(10)}, installed / "Small2021.pt")
        with pytest.raises(BadWeights, match="fit no network"):
            ra.load_model("robustbench:Small2021")


WITHOUT_EXTRAS = ("imagenet", "background", "classes")


@pytest.mark.parametrize("kind", [kind for kind in SOURCES if kind not in WITHOUT_EXTRAS])
def test_a_missing_extra_is_one_sentence(kind, monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text('{"architecture": "resnet18"}')
    (tmp_path / "file.onnx").write_bytes(b"")
    for package in ("torchvision", "timm", "transformers", "onnxruntime", "onnx", "robustbench"):
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
    rest = {"hf": str(tmp_path), "onnx": str(tmp_path / "file.onnx"), "onnx-scores": str(tmp_path / "file.onnx")}
    with pytest.raises(BadRequest, match=r"needs the package \w+: pip install 'robustassay\[\w+\]'\.$"):
        ra.load_model(f"{kind}:{rest.get(kind, 'resnet18')}")


def test_an_unknown_place_names_the_nearest():
    with pytest.raises(UnknownName, match="timm"):
        ra.load_model("tim:resnet18")


def test_identity_is_that_of_the_file(timm_network, tmp_path):
    save_file(timm_network.state_dict(), tmp_path / "w.safetensors")
    model_ref = ModelRef.of(f"timm:test_resnet:{tmp_path / 'w.safetensors'}")
    assert model_ref.identity["source"] == hashlib.sha256((tmp_path / "w.safetensors").read_bytes()).hexdigest()


def test_a_loaded_model_is_judged_behind_a_defense(timm_network, tmp_path):
    save_file(timm_network.state_dict(), tmp_path / "w.safetensors")
    spec = f"bit-depth:bits=4|timm:test_resnet:{tmp_path / 'w.safetensors'}"
    result = ra.evaluate(spec, "cifar10-1k", ra.LInf(8 / 255), "fgsm", limit=2)
    assert len(result.records) == 2
