"""Examples of every command, as its help shows them."""

from typing import Final

EXAMPLES: Final = {
    "run": ("assay run", "assay run --limit 50 --out runs/showcase"),
    "eval": (
        "assay eval resnet20-pgd --attack pgd express --limit 100",
        "assay eval resnet20-natural resnet20-pgd --attack express --limit 100",
        "assay eval my_model.py:make --data images/ --norm L2 --eps 0.5",
        "assay eval 'bit-depth|resnet20-natural' --adaptive auto --limit 50",
        "assay eval resnet20-pgd --attack autoattack --dry-run",
        "assay eval http://127.0.0.1:8000 --limit 20 --max-queries 5000",
    ),
    "doctor": ("assay doctor my_model.py:make", "assay doctor resnet20-natural --defense bit-depth --limit 16"),
    "list": ("assay list attacks", "assay list attacks pgd", "assay list attacks scores L2", "assay list models"),
    "report": ("assay report runs/ -o report/",),
    "curve": ("assay curve runs/ --versus eps -o curve.png", "assay curve runs/ --versus queries --at 100 1000"),
    "corruptions": ("assay corruptions resnet20-natural resnet20-pgd --kind fog snow --limit 100",),
    "analyze": ("assay analyze resnet20-natural resnet20-pgd --what calibration,fairness --limit 200",),
    "show": ("assay show runs/showcase/pgd",),
    "compare": ("assay compare runs/showcase/pgd runs/showcase/alp",),
    "view": ("assay view report/", "assay view runs/"),
    "train": ("assay train natural --data cifar10.npz --name my-resnet20 --epochs 2",),
    "serve": ("assay serve resnet20-natural --port 8000",),
    "bench": ("assay bench resnet20-pgd --attack pgd express --limit 32",),
}


def examples_of(command: str) -> str:
    """Return the examples of a command as Markdown."""
    return "Examples:\n\n```\n" + "\n".join(EXAMPLES[command]) + "\n```\n"
