"""Other libraries behind one interface: from a model, images and labels to adversarial images.

Each table maps an attack's name to what every library calls it, with settings equal to those of ours wherever both
have them. Only tools and tests import other libraries; the package never does.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Peer = Callable[[nn.Module, Tensor, Tensor], Tensor]

oracles: Any = importlib.import_module("tests.attacks.test_oracles")  # it knows how to import what asks for too much
oracles._Absent.packages += ("torchvision", "visdom")
try:
    importlib.import_module("torchvision")
except (ImportError, RuntimeError):  # absent, or built for another torch: in either case none of these attacks needs it
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    sys.meta_path.insert(0, oracles._Absent())
with oracles._absent_packages_stubbed():
    adv_lib = importlib.import_module("adv_lib.attacks")
    reference_apgd = importlib.import_module("pyautoattack.autopgd_base")
    reference_fab = importlib.import_module("pyautoattack.fab_pt")
    reference_square = importlib.import_module("pyautoattack.square")
foolbox, torchattacks, art = oracles.foolbox.attacks, oracles.torchattacks, oracles.evasion

PACKAGES = {
    "foolbox": "foolbox",
    "torchattacks": "torchattacks",
    "ART": "adversarial-robustness-toolbox",
    "adv-lib": "adv-lib",
    "authors": "pyautoattack",
}
FAR = {"Linf": 1.0, "L2": 100.0, "L1": 1e4}
ORDER: dict[str, float] = {"Linf": np.inf, "L2": 2, "L1": 1, "L0": 0}


def versions() -> str:
    """Name every library with its version."""
    return ", ".join(f"{name} {version(package)}" for name, package in PACKAGES.items())


def by_foolbox(attack: Any, eps: float | None = None) -> Peer:
    """Run an attack of foolbox; a minimum is sought where no eps is given."""

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        bounded = oracles.foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
        budget = {} if eps is None else {"epsilon": eps}
        found: Tensor = attack.run(bounded, x, oracles.foolbox.criteria.Misclassification(y), **budget)
        return found

    return run


def by_torchattacks(make: Callable[[nn.Module], Any]) -> Peer:
    """Run an attack of torchattacks, on a copy of the images, as one of them changes what it is given."""

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = make(model)(x.clone(), y)
        return found

    return run


def by_art(make: Callable[..., Any]) -> Peer:
    """Run an attack of ART."""

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        classifier = oracles.PyTorchClassifier(
            model, nn.CrossEntropyLoss(), x.shape[1:], 10, clip_values=(0.0, 1.0), device_type="cpu"
        )
        return torch.from_numpy(make(classifier, batch_size=len(x)).generate(x.numpy(), np.eye(10)[y.numpy()]))

    return run


def by_adv_lib(name: str, **settings: Any) -> Peer:
    """Run an attack of adv-lib."""

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = getattr(adv_lib, name)(model, x.clone(), y, **settings)
        return found

    return run


def by_authors(make: Callable[[nn.Module], Any]) -> Peer:
    """Run a part of the authors' AutoAttack."""

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = make(model).perturb(x, y)
        return found

    return run


def nearest_of_classes(make: Callable[[nn.Module], Any], norm: str, targets: int) -> Peer:
    """Run FAB towards the likeliest classes and keep the nearest point; by itself it stops at the first success."""

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        attack, best, least = make(model), x.clone(), torch.full((len(x),), torch.inf, dtype=torch.float64)
        attack.device = x.device
        towards = getattr(attack, "attack_single_run_targeted", None) or partial(
            attack.attack_single_run, is_targeted=True
        )
        for rank in range(2, targets + 2):
            attack.target_class = rank
            found = towards(x, y).detach()
            size = torch.linalg.vector_norm((found - x).flatten(1).double(), ORDER[norm], dim=1)
            better = (model(found).argmax(1) != y) & (size < least)
            best[better], least[better] = found[better], size[better]
        return best

    return run


def minimum_norm(norm: str, steps: int, searches: int, initial_c: float, targets: int) -> Mapping[str, dict[str, Peer]]:
    """Attacks that seek the nearest point, under one norm."""
    order = ORDER[norm]
    fmn = {"L0": "L0", "L1": "L1", "L2": "L2", "Linf": "LInf"}[norm] + "FMNAttack"
    table = {
        "fmn": {
            "foolbox": by_foolbox(getattr(foolbox, fmn)(steps=steps)),
            "adv-lib": by_adv_lib("fmn", norm=order, steps=steps),
        }
    }
    if norm != "L0":
        half = steps // 2  # each step asks twice
        table["fab"] = {
            "torchattacks": nearest_of_classes(
                lambda model: torchattacks.FAB(model, norm, FAR[norm], half, multi_targeted=True), norm, targets
            ),
            "adv-lib": by_adv_lib("fab", norm=order, n_iter=half, restarts=targets, targeted_restarts=True),
            "authors": nearest_of_classes(
                lambda model: reference_fab.FABAttack_PT(model, norm, 1, half, FAR[norm], device="cpu"), norm, targets
            ),
        }
    if norm in ("L2", "Linf"):
        table["deepfool"] = {
            "foolbox": by_foolbox(getattr(foolbox, ("L2" if norm == "L2" else "Linf") + "DeepFoolAttack")(steps=50)),
            "adv-lib": by_adv_lib("df", steps=50, norm=order),
        }
    if norm == "L2":
        table["deepfool"] |= {
            "torchattacks": by_torchattacks(lambda model: torchattacks.DeepFool(model, steps=50)),
            "ART": by_art(lambda model, **kw: art.DeepFool(model, 50, 0.02, 10, verbose=False, **kw)),
        }
        table["ddn"] = {
            "foolbox": by_foolbox(foolbox.DDNAttack(steps=steps)),
            "adv-lib": by_adv_lib("ddn", steps=steps, levels=None),
        }
        table["cw"] = table["cw-fast"] = _carlini_wagner(steps, searches, initial_c)
    if norm == "L1":
        table["ead"] = table["ead-fast"] = _elastic_net(steps, searches, initial_c)
    return table


def _carlini_wagner(steps: int, searches: int, initial_c: float) -> dict[str, Peer]:
    return {
        "foolbox": by_foolbox(
            foolbox.L2CarliniWagnerAttack(binary_search_steps=searches, steps=steps, initial_const=initial_c)
        ),
        # It searches for no c, so it gets all steps at one.
        "torchattacks": by_torchattacks(lambda model: torchattacks.CW(model, c=1, steps=searches * steps)),
        "ART": by_art(
            lambda model, **kw: art.CarliniL2Method(
                model, 0.0, False, 0.01, searches, steps, initial_c, verbose=False, **kw
            )
        ),
        "adv-lib": by_adv_lib(
            "carlini_wagner_l2", binary_search_steps=searches, max_iterations=steps, initial_const=initial_c
        ),
    }


def _elastic_net(steps: int, searches: int, initial_c: float) -> dict[str, Peer]:
    return {
        "foolbox": by_foolbox(
            foolbox.EADAttack(searches, steps, initial_const=initial_c, regularization=1e-3, decision_rule="L1")
        ),
        "torchattacks": by_torchattacks(
            lambda model: torchattacks.EADL1(
                model, binary_search_steps=searches, max_iterations=steps, initial_const=initial_c
            )
        ),
        "ART": by_art(
            lambda model, **kw: art.ElasticNet(
                model, 0.0, False, 1e-2, searches, steps, 1e-3, initial_c, decision_rule="L1", verbose=False, **kw
            )
        ),
    }


def fixed_budget(eps: float, steps: int, targets: int, queries: int) -> Mapping[str, dict[str, Peer]]:
    """Attacks within an L∞ ball."""
    inf, step = np.inf, 0.1 * eps
    apgd = {name: _auto_pgd(name, eps, steps) for name in ("ce", "dlr")}
    return {
        "pgd": {
            "foolbox": by_foolbox(foolbox.LinfPGD(rel_stepsize=0.1, steps=steps), eps),
            "torchattacks": by_torchattacks(lambda model: torchattacks.PGD(model, eps, step, steps)),
            "ART": by_art(
                lambda model, **kw: art.ProjectedGradientDescent(
                    model, inf, eps, step, max_iter=steps, num_random_init=1, verbose=False, **kw
                )
            ),
            "adv-lib": by_adv_lib("pgd_linf", ε=eps, steps=steps, relative_step_size=0.1),
        },
        "mim": {
            "foolbox": by_foolbox(
                foolbox.LinfMomentumIterativeFastGradientMethod(
                    abs_stepsize=eps / steps, steps=steps, random_start=False
                ),
                eps,
            ),
            "torchattacks": by_torchattacks(lambda model: torchattacks.MIFGSM(model, eps, eps / steps, steps)),
            "ART": by_art(
                lambda model, **kw: art.MomentumIterativeMethod(
                    model, inf, eps, eps / steps, 1.0, steps, verbose=False, **kw
                )
            ),
        },
        "apgd": apgd["ce"],
        "apgd:loss=dlr": apgd["dlr"],
        "apgd-t": {
            "torchattacks": by_torchattacks(
                lambda model: torchattacks.APGDT(model, eps=eps, steps=steps, n_classes=targets + 1)
            ),
            "adv-lib": by_adv_lib("apgd_targeted", eps=eps, norm=inf, n_iter=steps, num_targets=targets),
            "authors": by_authors(
                lambda model: reference_apgd.APGDAttack_targeted(
                    model, steps, "Linf", eps=eps, seed=0, n_target_classes=targets, device="cpu"
                )
            ),
        },
        "square": {
            "torchattacks": by_torchattacks(lambda model: torchattacks.Square(model, eps=eps, n_queries=queries)),
            "ART": by_art(
                lambda model, **kw: art.SquareAttack(model, eps=eps, max_iter=queries, p_init=0.8, verbose=False, **kw)
            ),
            "authors": by_authors(
                lambda model: reference_square.SquareAttack(model, "Linf", queries, eps, seed=0, device="cpu")
            ),
        },
    }


def _auto_pgd(loss: str, eps: float, steps: int) -> dict[str, Peer]:
    long_name = {"ce": "cross_entropy", "dlr": "difference_logits_ratio"}[loss]
    return {
        "torchattacks": by_torchattacks(lambda model: torchattacks.APGD(model, eps=eps, steps=steps, loss=loss)),
        "ART": by_art(
            lambda model, **kw: art.AutoProjectedGradientDescent(
                model, np.inf, eps, 2 * eps, steps, nb_random_init=1, loss_type=long_name, verbose=False, **kw
            )
        ),
        "adv-lib": by_adv_lib("apgd", eps=eps, norm=np.inf, n_iter=steps, loss_function=loss),
        "authors": by_authors(
            lambda model: reference_apgd.APGDAttack(model, steps, "Linf", 1, eps, 0, loss, device="cpu")
        ),
    }
