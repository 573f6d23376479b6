"""Attacks that search for the nearest adversarial point."""
