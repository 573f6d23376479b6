"""Studies: which models meet which attacks under which threats, declared as data."""
