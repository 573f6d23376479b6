"""Architectures for ImageNet, for published weights that the user provides."""
