"""The options that every study takes."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, final

from cyclopts import Parameter

if TYPE_CHECKING:
    from robustassay.studies.scope import ExtraData, Scope


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """How much of a paper to repeat, on which images, and where."""

    limit: Annotated[int | None, Parameter(help="Images, at most; as many as the study takes by default.")] = None
    quick: Annotated[bool, Parameter(help="A small part that two cores finish in about ten minutes.")] = False
    dataset: Annotated[
        Literal["cifar10", "imagenet"],
        Parameter(help="What the models are for: CIFAR-10 (this zoo) or ImageNet (photographs)."),
    ] = "cifar10"
    data: Annotated[
        str | None,
        Parameter(help="Images of the models' classes (see `assay list datasets`); cifar10-1k or imagenet by default."),
    ] = None
    weights: Annotated[Path | None, Parameter(help="Folder of weights of networks for ImageNet.")] = None
    device: Annotated[Literal["cpu", "cuda"] | None, Parameter(help="Where to compute; a GPU if there is one.")] = None
    seed: Annotated[int, Parameter(help="Seed of all random numbers.")] = 0
    publish: Annotated[
        Path | None,
        Parameter(help="Compute nothing: write the page, tables and figures of finished work into this folder."),
    ] = None
    quiet: Annotated[bool, Parameter(help="Print the tables and findings only.")] = False

    def scope(self, models: list[str] | None, out: Path, extra: "ExtraData | None" = None) -> "Scope":
        """Return what the study is asked to do."""
        from robustassay.studies.scope import ExtraData, Scope

        if self.weights is not None:
            # In the environment, as models are loaded by name everywhere, in worker processes too.
            os.environ["ASSAY_WEIGHTS"] = str(self.weights)
        return Scope(
            out=out,
            dataset=self.dataset,
            quick=self.quick,
            data=self.data,
            limit=self.limit,
            models=tuple(models or ()),
            seed=self.seed,
            device=self.device,
            extra=extra or ExtraData(),
        )


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExtraDataOptions:
    """Data beside the test images."""

    members: Annotated[
        str | None,
        Parameter(
            help="A dataset that the models were trained on, such as `cifar10:FOLDER/data_batch_1`: Figure 7 needs one."
        ),
    ] = None
    shift: Annotated[
        list[str] | None,
        Parameter(consume_multiple=True, help="Other datasets of the same classes, beside corruptions."),
    ] = None
    ood: Annotated[
        list[str] | None,
        Parameter(consume_multiple=True, help="Out-of-distribution datasets, instead of those made from the images."),
    ] = None
    published: Annotated[
        list[Path] | None,
        Parameter(
            consume_multiple=True,
            help="Folders in RobustBench's `model_info` form, to join the leaderboard beside the embedded entries.",
        ),
    ] = None
    robust_limit: Annotated[
        int | None,
        Parameter(
            help="Images under attack, at most, for models of the zoo that PGD does not break at once: on these an "
            "attack takes its full length."
        ),
    ] = None

    def extra_data(self) -> "ExtraData":
        """Return the data as a study takes them."""
        from robustassay.studies.scope import ExtraData

        data = self.members, tuple(self.shift or ()), tuple(self.ood or ()), tuple(self.published or ())
        return ExtraData(*data, self.robust_limit)


DEFAULT = StudyOptions()
NO_EXTRA_DATA = ExtraDataOptions()
