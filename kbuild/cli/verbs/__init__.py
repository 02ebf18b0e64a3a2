"""The verbs of the command line, one module each, with `run(options) -> exit code`; a verb's modules are
loaded when it runs."""
