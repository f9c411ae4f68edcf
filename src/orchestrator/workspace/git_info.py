"""What every git folder that we make says about files, beside and above what the repository says.

Attributes: what is checked out is, byte for byte, what is committed. Files are neither converted nor filtered on their
way in or out, whatever ``.gitattributes`` asks for, so that ``git add --all`` touches no file that nobody has changed
and no filter program runs, be it named by the tree and defined in somebody's global configuration. How files are
compared and merged stays the repository's business.

Excludes: what tools leave beside the work is not work. Only untracked files are affected, and a ``!`` line in the
repository's own ``.gitignore`` has the last word.

Must hold: the clone, the agents' repositories and the clean checkouts say the same; else a file that is untouched for
one of them would be changed for another.
"""

from pathlib import Path

# `text` decides over `eol` and `crlf`. An encoding cannot be unset with "-", only be left unspecified.
ATTRIBUTES = b"* -text -filter -ident !working-tree-encoding\n"

EXCLUDES = b"""\
__pycache__/
*.py[cod]
.pytest_cache/
.mypy_cache/
.ruff_cache/
.hypothesis/
.coverage
.coverage.*
htmlcov/
.venv/
.tox/
.nox/
.eggs/
*.egg-info/
node_modules/
.DS_Store
Thumbs.db
"""

INFO = {"info/attributes": ATTRIBUTES, "info/exclude": EXCLUDES}


def write_info(git_dir: Path) -> None:
    """Say it in a git folder that is being made.

    :raises OSError: the disk is full or read-only.
    """
    (git_dir / "info").mkdir(exist_ok=True)
    for name, content in INFO.items():
        (git_dir / name).write_bytes(content)
