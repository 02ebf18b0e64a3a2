"""What several passes use and what is no pass itself."""
