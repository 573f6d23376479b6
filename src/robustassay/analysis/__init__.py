"""Pure functions of record tables."""
