"""The entry point of the `orch` command and of `python -m orchestrator`.

Importing this module does nothing; the command line is loaded when `main` is called.
"""


def main() -> None:
    """Run the command line and exit with its code."""
    from orchestrator.cli import main as cli_main

    cli_main()


if __name__ == "__main__":
    main()
