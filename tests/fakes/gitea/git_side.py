"""Smart HTTP over the real ``git http-backend``."""

import os
import subprocess
from dataclasses import dataclass

from tests.fakes.gitea.repository import Repository, environment


@dataclass(frozen=True)
class GitAnswer:
    """What git's own program answers."""

    status: int
    headers: dict[str, str]
    body: bytes


def serve_git(
    repo: Repository, method: str, service: str, query: str, headers: dict[str, str], body: bytes, login: str
) -> GitAnswer:
    """One request; ``service`` is what follows the repository's address, such as ``/info/refs``."""
    given = {
        **environment(),
        "GIT_PROJECT_ROOT": str(repo.path.parent),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": f"/{repo.path.name}{service}",
        "QUERY_STRING": query,
        "REQUEST_METHOD": method,
        "REMOTE_USER": login,
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(["git", "http-backend"], env=given, input=body, capture_output=True, check=False)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    told = dict(line.split(": ", 1) for line in head.decode("latin-1").splitlines() if ": " in line)
    status = int(told.pop("Status", "200" if done.returncode == 0 else "500").split()[0])
    return GitAnswer(status, told, content)
