"""What may go wrong in the middle of a run, each with what is left of it afterwards."""

import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay import errors
from robustassay.cli import main
from robustassay.data import from_arrays, load
from robustassay.leaderboard import records_file
from robustassay.records import TIMING
from robustassay.store import Store

N = 40
THREAT = ra.LInf(1 / 255)
ATTACK = "pgd:steps=5"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10))
        self.eval()

    def forward(self, x):
        return self.layers(x)


class Fussy(Net):
    """Answers as the plain net does, and raises or returns NaN where an image looks like one it cannot bear."""

    def __init__(self, bad: torch.Tensor, nan: bool = False) -> None:
        super().__init__()
        self.bad, self.nan = bad, nan

    def forward(self, x):
        hurt = torch.zeros(len(x), dtype=torch.bool)
        for image in self.bad:
            hurt |= (x - image).abs().amax((1, 2, 3)) < 3 / 255
        if hurt.any() and not self.nan:
            raise ArithmeticError("this image is too much")
        return torch.where(hurt[:, None], torch.nan, self.layers(x))


class Steep(Fussy):
    """Answers as the net does; near some images its gradient is NaN, as that of torch.where(x > 0, x.sqrt(), 0)."""

    def forward(self, x):
        hurt = torch.zeros(len(x), dtype=torch.bool)
        for image in self.bad:
            hurt |= (x - image).abs().amax((1, 2, 3)) < 3 / 255
        zero = 0 * x.flatten(1).sum(1)
        root = torch.where(hurt, zero, 1 + zero)
        return self.layers(x) + 0 * torch.where(root > 0, root.sqrt(), 0)[:, None]


@pytest.fixture(scope="module")
def data():
    """Images with the labels the net gives them, so that each is right before an attack."""
    x = load("cifar10-1k").images(slice(0, N))
    with torch.no_grad():
        return from_arrays(x, Net()(x).argmax(1), ids=[f"s{row}" for row in range(N)])


@pytest.fixture(scope="module")
def whole(data):
    return ra.evaluate(Net(), data, THREAT, ATTACK)


def comparable(records: pd.DataFrame) -> pd.DataFrame:
    return records.drop(columns=list(TIMING)).set_index("sample_id").sort_index()


# ------------------------------------------------------------- a model that fails on some samples


@pytest.mark.parametrize(
    ("nan", "how"),
    [
        (False, {}),
        (True, {}),
        (True, {"wave_size": 7}),
        (False, {"wave_size": 1}),
        (False, {"workers": 2, "wave_size": 16}),
    ],
    ids=str,
)
def test_a_sample_the_model_fails_on_is_recorded_with_its_error_and_the_rest_goes_on(data, whole, tmp_path, nan, how):
    bad = [12, 39]
    out = tmp_path / "run"
    result = ra.evaluate(
        Fussy(data.images(bad), nan), data, THREAT, ATTACK, out=out, name="Net", execution=ra.Execution(**how)
    )
    assert result.failures.keys() == {"s12", "s39"}
    assert all(("NaN" if nan else "too much") in why for why in result.failures.values())
    expected = whole.records[~whole.records["sample_id"].isin(result.failures)]
    pd.testing.assert_frame_equal(comparable(result.records), comparable(expected))
    assert "failed on 2 of 40 samples" in result.flags["unjudged"]
    assert "failed on 2 more" in str(result)
    again = ra.Result.load(out)
    assert again.failures == result.failures
    assert again.flags == result.flags


@pytest.mark.parametrize("bad", [[0], [3, 7], [20, 39]], ids=str)
def test_a_sample_whose_gradient_is_nan_is_recorded_and_the_rest_goes_on(data, whole, bad):
    """Also one of the first images, on which the flags of a model are found."""
    result = ra.evaluate(Steep(data.images(bad)), data, THREAT, ATTACK, name="Net")
    assert result.failures.keys() == {f"s{row}" for row in bad}
    assert all("gradient is NaN" in why for why in result.failures.values())
    expected = whole.records[~whole.records["sample_id"].isin(result.failures)]
    pd.testing.assert_frame_equal(comparable(result.records), comparable(expected))
    assert result.flags.keys() == {"unjudged", *whole.flags}


def test_a_model_whose_gradient_is_nan_on_all_first_images_is_refused_before_the_run(data):
    with pytest.raises(errors.BadModel, match="gradient is NaN on many"):
        ra.evaluate(Steep(data.images(slice(None))), data, THREAT, ATTACK)


def test_a_model_whose_gradient_is_always_nan_is_attacked_without_gradients(data):
    """The attack moves too little to leave the neighbourhoods in which the gradient is NaN."""
    model = Steep(data.images(slice(None)))
    result = ra.evaluate(model, data, THREAT, "square:steps=50")
    assert not result.failures
    assert "NaN" in result.flags["no-gradients"]
    assert len(result.doubtful) == int((result.records["clean_ok"] & ~result.records["success"]).sum())
    plain = ra.evaluate(Net(), data, THREAT, "square:steps=50", name=type(model).__name__)
    assert result.robust_accuracy == plain.robust_accuracy


def test_a_model_whose_gradient_is_nan_on_many_images_is_refused_by_attacks_with_gradients_only(data, whole):
    model = Steep(data.images(slice(0, 12)))
    with pytest.raises(errors.BadModel, match="gradient is NaN on many"):
        ra.evaluate(model, data, THREAT, ATTACK, name="Net")
    result = ra.evaluate(model, data, THREAT, ATTACK, name="Net", search=ra.Search(despite_flags=True))
    assert not result.failures
    assert "NaN on 12 of 32" in result.flags["no-gradients"]
    standing = result.records["clean_ok"] & ~result.records["success"]
    assert set(result.doubtful) == set(result.records["sample_id"][standing])
    assert result.records["success"][12:].equals(whole.records["success"][12:])


def test_an_attack_without_gradients_judges_samples_whose_gradient_is_nan(data):
    result = ra.evaluate(Steep(data.images([0, 20])), data, THREAT, "square:steps=5", limit=24)
    assert not result.failures
    assert len(result.records) == 24


def first_of_each(stands: "pd.Series[bool]") -> tuple[int, int]:
    """Return a row that stands and one that falls, behind those that a model is first looked at with."""
    late = stands[8:]
    return 8 + int(late.to_numpy().argmax()), 8 + int(late.to_numpy().argmin())


def test_such_samples_count_neither_as_robust_nor_as_broken(data, whole):
    """Of one that would stand and one that would fall, neither is in any numerator or denominator."""
    one, other = first_of_each(whole.records["success"].eq(False))
    result = ra.evaluate(Fussy(data.images([one, other])), data, THREAT, ATTACK)
    assert result.failures.keys() == {f"s{one}", f"s{other}"}
    robust = round(whole.robust_accuracy * N)
    assert result.robust_accuracy == pytest.approx((robust - 1) / (N - 2))
    assert result.clean_accuracy == 1
    low, high = (robust - 1) / N, (robust + 1) / N
    assert f"between {low:.1%} and {high:.1%}" in result.flags["unjudged"]


def test_of_several_attacks_a_success_counts_though_the_model_failed_under_another(data, whole):
    one, other = first_of_each(whole.records["success"].eq(False))
    attacked = {
        bad: ra.evaluate(Fussy(data.images(bad)), data, THREAT, ATTACK, name="Net") for bad in ((), (one, other))
    }
    merged = ra.Result.worst_of({"failing": attacked[one, other], "sure": attacked[()]})
    assert merged.failures.keys() == {f"s{one}"}, "it stood once, and might have fallen where the model failed"
    assert f"s{other}" in set(merged.records["sample_id"][merged.records["success"]])
    assert len(merged.records) == N - 1
    assert merged.x_adv is not None
    assert len(merged.x_adv) == N - 1
    assert "failed on 1 of 40" in merged.flags["unjudged"]
    assert not [sample for sample in merged.doubtful if sample == f"s{one}"]


def test_a_resumed_run_tries_such_samples_again_and_forgets_their_errors(data, whole, tmp_path):
    first = ra.evaluate(Fussy(data.images([12])), data, THREAT, ATTACK, out=tmp_path / "run", name="Net")
    assert first.failures.keys() == {"s12"}
    mended = Fussy(data.images([])).eval()
    second = ra.evaluate(mended, data, THREAT, ATTACK, out=tmp_path / "run", name="Net")
    assert not second.failures
    assert "unjudged" not in second.flags
    pd.testing.assert_frame_equal(comparable(second.records), comparable(whole.records))


def test_a_model_that_fails_on_many_samples_ends_the_run_and_keeps_what_is_finished(data, tmp_path):
    with pytest.raises(
        errors.ModelFailed, match=r"more than one sample in 10, such as 's1\d' .*too much.*mend the model"
    ):
        ra.evaluate(
            Fussy(data.images(range(10, 20))),
            data,
            THREAT,
            ATTACK,
            out=tmp_path / "run",
            name="Net",
            execution=ra.Execution(wave_size=16),
        )
    store = Store.at(tmp_path / "run")
    assert {f"s{row}" for row in range(10)} <= store.done()
    assert not store.done() & store.failures().keys()


class Vanishing(Net):
    """Works for some calls and then never again, as on a GPU that has fallen off its bus."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    def forward(self, x):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("CUDA error: device lost")
        return self.layers(x)


def test_a_device_that_disappears_is_no_samples_fault(data, whole, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(errors.ModelFailed, match="device lost"):
        ra.evaluate(
            Vanishing(30),
            data,
            THREAT,
            ATTACK,
            out=out,
            name="Net",
            search=ra.Search(precision="exact"),
            execution=ra.Execution(wave_size=8),
        )
    store = Store.at(out)
    assert not store.failures()
    assert 0 < len(store.done()) < N
    resumed = ra.evaluate(
        Vanishing(10**6),
        data,
        THREAT,
        ATTACK,
        out=out,
        name="Net",
        search=ra.Search(precision="exact"),
        execution=ra.Execution(wave_size=8),
    )
    pd.testing.assert_frame_equal(comparable(resumed.records), comparable(whole.records))


def test_a_lack_of_memory_is_no_samples_fault(data, tmp_path):
    class Hungry(Net):
        def forward(self, x):
            if len(x) >= 8 and (x[0] - x[0].mean()).abs().max() > 0 and torch.is_grad_enabled():
                raise torch.OutOfMemoryError("all of it is taken")
            return self.layers(x)

    with pytest.raises(errors.AssayError, match=r"memory|taken"):
        ra.evaluate(Hungry(), data, THREAT, ATTACK, out=tmp_path / "run")
    assert not (tmp_path / "run" / "failures").exists()


def test_a_model_that_fails_only_when_claims_are_verified_is_found_too(data):
    class Late(Net):
        def forward(self, x):
            if len(x) == 32 and not torch.is_grad_enabled():
                raise ArithmeticError("not that many")
            return self.layers(x)

    with pytest.raises(
        errors.ModelFailed, match=r"more than one sample in 10.*while claims were verified: not that many"
    ):
        ra.evaluate(Late(), data, THREAT, ATTACK, execution=ra.Execution(batch_size=8))


def test_a_leaderboard_takes_no_run_with_such_samples(data, tmp_path):
    ra.evaluate(Fussy(data.images([12])), data, THREAT, ATTACK, out=tmp_path / "run")
    with pytest.raises(errors.BadData, match="failed on 1 samples, such as 's12'"):
        records_file.read(tmp_path / "run")
    with pytest.raises(errors.BadData, match="ranks models on all samples"):
        records_file.pack(tmp_path / "run", tmp_path / "packed")


# ------------------------------------------------------------- the machine around it

MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10)).eval()
"""
# Hard targets keep every row at work, and small waves make many shards.
RUN = """
import sys
import robustassay as ra
from robustassay.errors import AssayError
threat = ra.ThreatModel(ra.LInf(0.5 / 255), ra.LeastLikely())
try:
    ra.evaluate(sys.argv[1], "cifar10-1k", threat, "pgd:steps=40", limit=64, execution=ra.Execution(wave_size=4),
                out=sys.argv[2])
except AssayError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.py"
    path.write_text(MODEL)
    return f"{path}:make"


@pytest.fixture(scope="module")
def untouched(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("untouched") / "run"
    run_here(model, out)
    return out


def run_here(model: str, out: Path) -> None:
    threat = ra.ThreatModel(ra.LInf(0.5 / 255), ra.LeastLikely())
    ra.evaluate(model, "cifar10-1k", threat, "pgd:steps=40", limit=64, execution=ra.Execution(wave_size=4), out=out)


def start(model: str, out: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, model, str(out)], stderr=subprocess.PIPE, text=True, env=environment
    )


def shards(out: Path) -> set[Path]:
    return {*out.glob("shards/*.parquet")}


def same(out: Path, other: Path) -> None:
    pd.testing.assert_frame_equal(comparable(ra.Result.load(out).records), comparable(ra.Result.load(other).records))


def test_sigterm_stops_politely_and_two_runs_on_one_folder_finish_it_together(model, untouched, tmp_path):
    out = tmp_path / "run"
    with start(model, out) as process:
        while process.poll() is None and not shards(out):
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert "run the same command again to resume" in said
    kept = shards(out)
    assert 0 < len(kept) < 16
    with start(model, out) as one, start(model, out) as other:
        assert (one.wait(), other.wait()) == (0, 0)
    assert kept < shards(out), "what was finished is neither lost nor done again"
    same(out, untouched)


def test_a_file_that_cannot_grow_leaves_nothing_half_written(model, tmp_path):
    """As on a full disk: the operating system itself refuses the bytes, in the middle of the file."""
    out = tmp_path / "run"
    limit = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
{RUN}"""
    done = subprocess.run([sys.executable, "-c", limit, model, str(out)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "free some space and run the same command again to resume" in done.stderr
    assert [path.name for path in out.rglob("*") if path.is_file()] == ["manifest.json"]
    run_here(model, out)
    assert len(ra.Result.load(out).records) == 64


@pytest.mark.parametrize("out", ["/proc/nothing/run", "/dev/null/run", "taken/run"])
def test_a_folder_that_cannot_be_made_is_a_sentence(model, tmp_path, capsys, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file of the user's")
    code = main(["eval", model, "--attack", "fgsm", "--limit", "8", "--out", out, "--quiet"])
    assert code in (1, 2)
    assert re.search(r"choose another (folder )?with --out", capsys.readouterr().err)
    assert Path("taken").read_text() == "a file of the user's"


@pytest.mark.parametrize("suffix", [".parquet", ".safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_shard_is_named_and_only_its_samples_are_redone(model, untouched, tmp_path, suffix, damage):
    out = tmp_path / "run"
    shutil.copytree(untouched, out)
    shard = sorted(out.glob(f"shards/*{suffix}"))[3]
    content = bytearray(shard.read_bytes())
    content[len(content) // 3] ^= 1 << 4
    shard.write_bytes(content if damage == "flip" else content[: len(content) // 2])
    with pytest.raises(errors.StoreFailed, match=f"{shard.stem}.*delete .* again to redo its samples; all other"):
        ra.Result.load(out)
    for path in out.glob(f"shards/{shard.stem}.*"):
        path.unlink()
    others = shards(out)
    run_here(model, out)
    new = [path for path in shards(out) - others if pq.read_metadata(path).num_rows]
    assert len(new) == 1, "beside a note that nothing is missing any more"
    same(out, untouched)


def test_every_flipped_bit_of_a_shard_is_noticed(data, whole, tmp_path):
    """Parquet and safetensors check nothing themselves: a flipped verdict would be a result like any other."""
    ra.evaluate(Net(), data, THREAT, ATTACK, out=tmp_path / "run", limit=8)
    for shard in (tmp_path / "run" / "shards").iterdir():
        content = shard.read_bytes()
        for place in range(0, len(content), max(1, len(content) // 60)):
            shard.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :])
            with pytest.raises(errors.StoreFailed, match="not those that were written"):
                ra.Result.load(tmp_path / "run")
        shard.write_bytes(content)
    assert len(ra.Result.load(tmp_path / "run").records) == 8


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"text"', '{"key": 1}', "[" * 10_000])
def test_a_damaged_manifest_is_named_by_every_command(tmp_path, capsys, model, content):
    (tmp_path / "run" / "shards").mkdir(parents=True)
    (tmp_path / "run" / "manifest.json").write_text(content)
    request = ["eval", model, "--attack", "fgsm", "--limit", "8", "--quiet", "--out", str(tmp_path / "run")]
    assert main(request) in (1, 2)
    said = capsys.readouterr().err
    assert said.startswith("assay: ")
    assert "delete" in said
    assert (tmp_path / "run" / "manifest.json").read_text() == content


def test_a_clock_that_goes_backwards_changes_nothing(data, whole, tmp_path, monkeypatch):
    hours = iter(range(10**6, 0, -1))

    class Backwards(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.fromtimestamp(3600 * next(hours), tz)

    monkeypatch.setattr(
        "robustassay.evaluation.manifest.datetime", SimpleNamespace(datetime=Backwards, UTC=datetime.UTC)
    )
    monkeypatch.setattr(time, "time", lambda: 3600.0 * next(hours))
    ra.evaluate(Net(), data, THREAT, ATTACK, limit=20, out=tmp_path / "run")
    started = Store.at(tmp_path / "run").manifest()["started"]
    result = ra.evaluate(Net(), data, THREAT, ATTACK, out=tmp_path / "run")
    assert Backwards.now(datetime.UTC).isoformat() < started, "the clock did go backwards"
    pd.testing.assert_frame_equal(comparable(result.records), comparable(whole.records))
    assert (result.records["seconds"] >= 0).all()


def test_a_model_that_overflows_only_when_claims_are_verified_is_not_broken(data):
    """Where all scores are infinite the first is the highest: claims would verify if that were believed."""

    class Overflowing(Net):
        def forward(self, x):
            z = self.layers(x)
            return torch.full_like(z, torch.inf) if len(x) == 32 and not torch.is_grad_enabled() else z

    with pytest.raises(errors.ModelFailed, match=r"more than one sample in 10.*NaN while claims were verified"):
        ra.evaluate(Overflowing(), data, THREAT, ATTACK, execution=ra.Execution(batch_size=8))
