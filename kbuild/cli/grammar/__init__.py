"""The grammar of the command line: verbs, their arguments, and the text of their `--help`."""
