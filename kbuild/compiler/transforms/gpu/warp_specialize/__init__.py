"""Loops whose copies are issued by a warp of their own."""
