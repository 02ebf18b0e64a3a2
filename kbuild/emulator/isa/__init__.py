"""The instructions of PTX: a file for each family, with what its instructions mean."""
