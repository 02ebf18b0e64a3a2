"""The verbs about what builds have made: why, how large, and a report of it all."""
