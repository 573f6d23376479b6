"""Random perturbations, which every attack must beat."""
