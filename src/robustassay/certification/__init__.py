"""Certificates: lower bounds on robustness that hold against every attack.

`interval_bounds` certifies plain networks by interval and CROWN-IBP bounds; `randomized_smoothing` certifies smoothed
classifiers from their votes under noise.
"""
