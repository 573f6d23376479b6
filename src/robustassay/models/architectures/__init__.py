"""Network architectures: one family per file, found by name through the registry."""
