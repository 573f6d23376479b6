"""The ninth part of the collection: ordinary and slightly odd honest classifiers, as strangers bring them."""
