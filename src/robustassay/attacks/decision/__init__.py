"""Attacks that see labels only."""
