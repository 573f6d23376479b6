"""Attacks whose examples are made on another model."""
