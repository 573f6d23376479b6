"""BibTeX of a report: the report itself, and the papers of the attacks in it."""

from collections.abc import Iterable
from typing import Final

from robustassay.registry import lookup

PAPERS: Final[dict[str, tuple[str, str, int]]] = {
    "1412.6572": ("Goodfellow, Ian and Shlens, Jonathon and Szegedy, Christian", "Explaining and Harnessing Adversarial Examples", 2015),
    "1511.04599": ("Moosavi-Dezfooli, Seyed-Mohsen and Fawzi, Alhussein and Frossard, Pascal", "DeepFool: A Simple and Accurate Method to Fool Deep Neural Networks", 2016),
    "1607.02533": ("Kurakin, Alexey and Goodfellow, Ian and Bengio, Samy", "Adversarial Examples in the Physical World", 2017),
    "1608.04644": ("Carlini, Nicholas and Wagner, David", "Towards Evaluating the Robustness of Neural Networks", 2017),
    "1611.02770": ("Liu, Yanpei and Chen, Xinyun and Liu, Chang and Song, Dawn", "Delving into Transferable Adversarial Examples and Black-box Attacks", 2017),
    "1706.06083": ("Madry, Aleksander and others", "Towards Deep Learning Models Resistant to Adversarial Attacks", 2018),
    "1708.03999": ("Chen, Pin-Yu and others", "ZOO: Zeroth Order Optimization Based Black-box Attacks to Deep Neural Networks without Training Substitute Models", 2017),
    "1709.04114": ("Chen, Pin-Yu and others", "EAD: Elastic-Net Attacks to Deep Neural Networks via Adversarial Examples", 2018),
    "1710.06081": ("Dong, Yinpeng and others", "Boosting Adversarial Attacks with Momentum", 2018),
    "1712.04248": ("Brendel, Wieland and Rauber, Jonas and Bethge, Matthias", "Decision-Based Adversarial Attacks: Reliable Attacks Against Black-Box Machine Learning Models", 2018),
    "1802.05666": ("Uesato, Jonathan and others", "Adversarial Risk and the Dangers of Evaluating Against Weak Attacks", 2018),
    "1803.06978": ("Xie, Cihang and others", "Improving Transferability of Adversarial Examples with Input Diversity", 2019),
    "1804.08598": ("Ilyas, Andrew and Engstrom, Logan and Athalye, Anish and Lin, Jessy", "Black-box Adversarial Attacks with Limited Queries and Information", 2018),
    "1807.04457": ("Cheng, Minhao and others", "Query-Efficient Hard-label Black-box Attack: An Optimization-based Approach", 2019),
    "1807.07978": ("Ilyas, Andrew and Engstrom, Logan and Madry, Aleksander", "Prior Convictions: Black-Box Adversarial Attacks with Bandits and Priors", 2019),
    "1811.09600": ("Rony, J{\\'e}r{\\^o}me and others", "Decoupling Direction and Norm for Efficient Gradient-Based L2 Adversarial Attacks and Defenses", 2019),
    "1904.02144": ("Chen, Jianbo and Jordan, Michael I. and Wainwright, Martin J.", "HopSkipJumpAttack: A Query-Efficient Decision-Based Attack", 2020),
    "1904.02884": ("Dong, Yinpeng and Pang, Tianyu and Su, Hang and Zhu, Jun", "Evading Defenses to Transferable Adversarial Examples by Translation-Invariant Attacks", 2019),
    "1904.04433": ("Dong, Yinpeng and others", "Efficient Decision-based Black-box Adversarial Attacks on Face Recognition", 2019),
    "1905.00441": ("Li, Yandong and others", "NATTACK: Learning the Distributions of Adversarial Examples for an Improved Black-Box Attack on Deep Neural Networks", 2019),
    "1905.07121": ("Guo, Chuan and others", "Simple Black-box Adversarial Attacks", 2019),
    "1906.06919": ("Cheng, Shuyu and others", "Improving Black-box Adversarial Attacks with a Transfer-based Prior", 2019),
    "1907.02044": ("Croce, Francesco and Hein, Matthias", "Minimally Distorted Adversarial Examples with a Fast Adaptive Boundary Attack", 2020),
    "1909.10773": ("Cheng, Minhao and others", "Sign-OPT: A Query-Efficient Hard-label Adversarial Attack", 2020),
    "1912.00049": ("Andriushchenko, Maksym and Croce, Francesco and Flammarion, Nicolas and Hein, Matthias", "Square Attack: A Query-Efficient Black-box Adversarial Attack via Random Search", 2020),
    "1912.11852": ("Dong, Yinpeng and others", "Benchmarking Adversarial Robustness on Image Classification", 2020),
    "2003.01690": ("Croce, Francesco and Hein, Matthias", "Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse Parameter-free Attacks", 2020),
    "2003.06468": ("Rahmati, Ali and Moosavi-Dezfooli, Seyed-Mohsen and Frossard, Pascal and Dai, Huaiyu", "GeoDA: A Geometric Framework for Black-box Adversarial Attacks", 2020),
    "2006.12792": ("Chen, Jinghui and Gu, Quanquan", "RayS: A Ray Searching Method for Hard-label Adversarial Attack", 2020),
    "2102.12827": ("Pintor, Maura and Roli, Fabio and Brendel, Wieland and Biggio, Battista", "Fast Minimum-norm Adversarial Attacks through Adaptive Norm Constraints", 2021),
    "2103.01208": ("Croce, Francesco and Hein, Matthias", "Mind the Box: l1-APGD for Sparse Adversarial Attacks on Image Classifiers", 2021),
    "2407.02240": ("Melamed, Odelia and Yehudai, Gilad and Shamir, Ohad", "MALT Powers Up Adversarial Attacks", 2024),
    "2411.15210": ("Xie, Yong and others", "Towards Million-Scale Adversarial Robustness Evaluation With Stronger Individual Attacks", 2024),
}  # fmt: skip
"""Authors, title and year by number on arXiv; an attack with another paper gets an entry without them."""


def references(title: str, day: str, version: str, names: Iterable[str]) -> str:
    """Write BibTeX entries for a report and for the papers of the attacks in it."""
    report = {
        "title": f"{{{_plain(title)}}}",
        "year": day[:4],
        "note": f"Report by robustassay {version}, runs of {day}",
    }
    numbers = dict.fromkeys(number for name in names for number in _papers(name))
    entries = [_entry("robustness-report", report), *(_paper(number) for number in numbers)]
    return "\n".join(entries)


def _papers(name: str) -> tuple[str, ...]:
    """Return the arXiv numbers of an attack; one that was passed in Python names none."""
    from robustassay import attacks  # brings torch, which most pages do not need

    return tuple(lookup("attack", name).info.papers) if name in attacks.attack_names() else ()


def _paper(number: str) -> str:
    fields = {"eprint": number, "archivePrefix": "arXiv", "url": f"https://arxiv.org/abs/{number}"}
    if number in PAPERS:
        authors, title, year = PAPERS[number]
        fields = {"author": authors, "title": f"{{{title}}}", "year": str(year), **fields}
    return _entry(f"arxiv-{number}", fields)


def _entry(key: str, fields: dict[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@misc{{{key},", *lines, "}", ""])


def _plain(text: str) -> str:
    """Leave out what TeX would read as a command: a model's name may come from other people."""
    return "".join(letter if letter not in "\\{}$%&#_^~" else " " for letter in text)
