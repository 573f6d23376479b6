"""Groups of command-line options, as `assay eval --help` shows them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

from cyclopts import Group, Parameter

import robustassay as ra
from robustassay.errors import BadRequest, UnknownName

if TYPE_CHECKING:
    from robustassay.data import Dataset
    from robustassay.threat import Norm, TargetRule, ThreatModel


@final
@Parameter(name="*", group=Group("Threat", sort_key=1))
@dataclass(frozen=True)
class ThreatOptions:
    """What an attacker may do."""

    norm: str | None = None
    """Norm of the perturbation: Linf (the default), L2, L1 or L0."""

    eps: str | None = None
    """Radius on the [0, 1] pixel scale, such as `8/255`; by default 8/255 (Linf), 0.5 (L2), 12 (L1), 20 (L0)."""

    threat: str | None = None
    """A known norm and radius instead: cifar10-linf, cifar10-l2, cifar100-linf, cifar100-l2, imagenet-linf (4/255) or
    imagenet-linf-16 (Dong et al. 2020)."""

    targeted: str | None = None
    """`random`, `least-likely`, `given` (targets that come with the images), or a file with one line
    `sample_id,target` (or just `target`) per sample."""

    def threat_model(self, dataset: "Dataset") -> "ThreatModel":
        """Return the threat model for this dataset."""
        from robustassay.threat import ThreatModel

        return ThreatModel(self._norm(), _target_rule(self.targeted, dataset))

    def _norm(self) -> "Norm":
        from robustassay.threat import preset

        if self.threat is None:
            return norm_of(self.norm or "Linf", self.eps)
        if self.norm is not None or self.eps is not None:
            raise BadRequest("--threat names a norm and a radius: leave out --norm and --eps, or --threat.")
        return preset(self.threat)


@final
@Parameter(name="*", group=Group("Search", sort_key=2))
@dataclass(frozen=True)
class SearchOptions:
    """How samples are attacked."""

    precision: Literal["fast", "exact"] = "fast"
    """Search on a faster surrogate of the model where there is one, or on the model itself. Successes are verified on
    the model itself in either case."""

    eot: int | None = None
    """Draws per gradient, where the model draws random numbers; by default 20, 40 or 80, the fewest that make the
    direction of the gradient steady."""

    query_budget: int | None = None
    """Maximum number of images that an attack may send per sample."""

    max_queries: int | None = None
    """Maximum number of images that may be sent to a service in all; cached answers are free."""

    smallest_eps: bool = False
    """Search the smallest radius at which the attack succeeds, per sample, starting from --eps."""

    adaptive: Literal["auto"] | None = None
    """`auto` diagnoses the model first, as `assay doctor` does, and applies the remedies it names; the worst case of
    all attacks counts."""

    confirm: bool = False
    """Afterwards, run AutoAttack on the samples that are left in doubt."""

    despite_flags: bool = False
    """Evaluate even a model on which the attack must fail, such as one that returns probabilities."""

    self_test: int | None = None
    """Number of samples on which the attack must afterwards find a planted adversarial example (8 by default); 0
    switches this self-test and the cross-check off. It changes no record."""

    def search(self) -> "ra.Search":
        """Return the same as `evaluate` takes it."""
        return ra.Search(
            precision=self.precision,
            eot=self.eot,
            query_budget=self.query_budget,
            smallest_eps=self.smallest_eps,
            adaptive=self.adaptive,
            confirm=self.confirm,
            despite_flags=self.despite_flags,
            self_test=self.self_test,
        )

    @property
    def labels(self) -> list[str]:
        """What the name of a run folder says about these options."""
        queries = [f"queries{self.query_budget}"] if self.query_budget else []
        switches = {"confirm": self.confirm, "smallest": self.smallest_eps, "adaptive": self.adaptive}
        return queries + [name for name, chosen in switches.items() if chosen]


@final
@Parameter(name="*", group=Group("Execution", sort_key=3))
@dataclass(frozen=True)
class ExecutionOptions:
    """How the work is done; nothing here changes results."""

    batch_size: int | None = None
    """Images per model call."""

    workers: int = 1
    """Processes on this machine."""

    ray: str | None = None
    """Address of a Ray cluster that does the work instead, or `local`."""

    shard: str = "1/1"
    """Do the i-th of n parts of the samples, as `i/n`; the parts share one output folder."""

    def execution(self) -> "ra.Execution":
        """Return the same as `evaluate` takes it."""
        part, _, parts = self.shard.partition("/")
        if not (part.isdigit() and parts.isdigit()):
            raise BadRequest(f"A shard is written i/n, such as 1/4, not {self.shard!r}.")
        return ra.Execution(self.batch_size, workers=self.workers, ray=self.ray, shard=(int(part), int(parts)))


@final
@Parameter(name="*", group=Group("Output", sort_key=4))
@dataclass(frozen=True)
class OutputOptions:
    """What is saved and printed."""

    out: Path | None = None
    """Output folder; by default one below `runs/`, named after the command and the key of the run."""

    keep_images: bool = False
    """Save the adversarial images too."""

    uint8: bool = False
    """Count a success only if its image still reaches the goal when rounded to 8 bits."""

    log: Literal["tensorboard", "wandb", "mlflow"] | None = None
    """Also write the robust accuracy so far to TensorBoard (in `logs/`), Weights & Biases or MLflow."""

    quiet: bool = False
    """Print the final table only."""

    json: bool = False
    """Print the final numbers as JSON instead of a table."""


def norm_of(name: str, eps: str | None, among: tuple[str, ...] = ("Linf", "L2", "L1", "L0")) -> "Norm":
    """Return the norm of this name, in any case of letters, with its default radius where none is given."""
    from robustassay import threat  # registers the norms
    from robustassay.eps import parse_eps
    from robustassay.registry import lookup

    if name.lower() not in map(str.lower, among):
        raise UnknownName("norm", name, among)
    chosen: type[threat.Norm] = lookup("norm", name)
    return chosen(parse_eps(chosen.default_eps if eps is None else eps))


def _target_rule(targeted: str | None, dataset: "Dataset") -> "TargetRule | None":
    from robustassay.threat import LabelList, LeastLikely, RandomTarget

    if targeted is None:
        return None
    if targeted in ("random", "least-likely"):
        return RandomTarget() if targeted == "random" else LeastLikely()
    if targeted == "given":
        from robustassay.data.photo_frames import target_labels_of

        named = target_labels_of(dataset)
        if named is None:
            raise BadRequest("These images have no targets: use --targeted random, least-likely or a file of targets.")
        return LabelList(named)
    path = Path(targeted)
    if not path.is_file():
        raise BadRequest(f"--targeted takes random, least-likely or a file of targets; there is no file {targeted}.")
    return LabelList.from_file(path, dataset.ids)
