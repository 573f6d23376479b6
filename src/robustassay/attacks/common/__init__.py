"""Helpers that several attacks share."""
