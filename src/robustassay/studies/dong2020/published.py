"""The numbers that Dong et al. print: Table 3, of untargeted attacks on CIFAR-10 under L∞ at eps 8/255."""

from typing import Final

ROWS: Final = ("Res-56", "PGD-AT", "DeepDefense", "TRADES", "Convex", "JPEG", "RSE", "ADP")
_TABLE3: Final = """
white-box FGSM 0.005/21.6 0.039/56.0 0.001/9.2 0.047/60.9 0.017/36.6 0.012/31.2 0.020/29.0 0.037/56.0
white-box BIM 0.002/0.0 0.030/48.3 0.001/0.0 0.037/56.8 0.016/34.3 0.008/3.2 0.018/23.5 0.008/12.2
white-box MIM 0.003/0.0 0.032/50.9 0.001/0.0 0.040/58.1 0.016/34.9 0.008/6.1 0.019/25.1 0.010/16.7
white-box DeepFool 0.003/0.0 0.040/56.5 0.001/0.0 0.047/60.6 0.015/32.9 0.007/3.1 0.021/35.9 0.016/28.7
transfer FGSM 0.067/72.9 0.067/71.3 0.048/62.1 0.087/73.6 0.050/57.5 0.051/62.8 0.048/62.0 0.066/73.4
transfer BIM 0.049/70.3 0.055/70.2 0.041/58.8 0.069/72.2 0.044/56.7 0.039/58.9 0.041/60.0 0.048/71.4
transfer MIM 0.052/71.5 0.056/70.4 0.041/59.4 0.067/72.2 0.045/56.6 0.041/59.9 0.043/59.8 0.050/70.4
transfer DIM 0.052/73.3 0.056/70.0 0.043/58.8 0.063/70.5 0.044/55.3 0.043/61.1 0.043/60.2 0.051/73.4
score NES 0.004/0.0 0.048/65.5 0.002/0.0 0.055/66.7 0.025/44.0 0.001/2.1 0.293/79.7 0.007/12.1
score SPSA 0.003/0.0 0.042/61.1 0.002/0.0 0.049/64.9 0.021/39.7 0.001/2.1 0.208/78.7 0.007/9.7
score NAttack 0.002/0.0 0.030/48.6 0.001/0.0 0.037/55.8 0.016/33.1 0.000/0.0 0.031/48.6 0.005/2.4
"""

TABLE3: Final = {
    (group, attack, row): (float(cell.partition("/")[0]), float(cell.partition("/")[2]) / 100)
    for group, attack, *cells in map(str.split, _TABLE3.strip().splitlines())
    for row, cell in zip(ROWS, cells, strict=True)
}
"""Median distance and accuracy by group, attack and row."""
