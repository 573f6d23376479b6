"""Attacks that see the scores of all classes and no gradients."""
