"""One file, one command: NAME, HELP, arguments(parser) and execute(args) -> Outcome."""
