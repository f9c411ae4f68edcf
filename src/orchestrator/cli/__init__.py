"""The `orch` command. Importing this package loads no command and starts nothing."""


def main() -> None:
    """Run the command line and exit with its code."""
    import sys

    from orchestrator.cli.entry import run

    sys.exit(run(sys.argv[1:]))
