"""Manifests made from captures: `kbuild import`."""
