"""Attacks that follow gradients inside a ball of fixed radius."""
