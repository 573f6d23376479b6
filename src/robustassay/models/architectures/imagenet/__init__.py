"""Networks for ImageNet: architectures of ours for weights that others have published; the files are the user's."""
