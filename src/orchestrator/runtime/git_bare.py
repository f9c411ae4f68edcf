"""Making a bare repository so that a half-made one never has the final name."""

import shutil
import tempfile
from pathlib import Path

from orchestrator.runtime.files import make_private_folder
from orchestrator.runtime.git import Git


def make_bare(git: Git, path: Path, config: bytes) -> None:
    """An empty bare repository with this configuration, where there is none; repeating is harmless.

    :raises GitError: git failed.
    :raises OSError: the disk is full or read-only.
    """
    if (path / "HEAD").is_file():
        return
    make_private_folder(path.parent)
    aside = Path(tempfile.mkdtemp(prefix="clone-", dir=path.parent))
    try:
        git.run(["init", "-q", "--bare", "--template=", "--", str(aside)], cwd=path.parent)
        (aside / "config").write_bytes(config)
        if not (path / "HEAD").is_file():  # another thread may have been faster
            aside.rename(path)
    except OSError:
        if not (path / "HEAD").is_file():
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
