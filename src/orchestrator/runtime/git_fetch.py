"""Bringing references of another repository up to what it has now, while others do the same."""

import threading
from collections.abc import Mapping, Sequence

from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.git import git_error
from orchestrator.runtime.git_refs import ANY, References

FETCH_TIMEOUT_S = 600.0
FETCH_TRIES = 5  # each costs one fetch of another process that was faster
OVERTAKEN_S = 0.05
REMOTE_PROTOCOLS = ("file", "https", "http", "ssh")
_OVERTAKEN = (b"but expected", b"reference already exists")


class Fetcher:
    """Fetches into one repository. Safe to use from many threads and processes."""

    def __init__(self, refs: References, clock: Clock, entropy: Entropy) -> None:
        self._refs = refs
        self._clock = clock
        self._entropy = entropy

    def fetch(
        self,
        url: str,
        refspecs: Mapping[str, str],
        *,
        env: Mapping[str, str],
        settings: Sequence[str] = (),
    ) -> None:
        """Make what is below each of our prefixes exactly what the other has below its own, such as
        ``{"refs/heads/": "refs/forge/heads/"}``; tags, where named, are added to.

        :raises GitError: the other repository cannot be reached, or the fetch failed.
        :raises AuthorityUnreachable: a stranger's lock stays in ours.
        """
        args = ["fetch", "-q", "--prune", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]
        args += ["--no-recurse-submodules", "--upload-pack=git-upload-pack", "--", url]
        args += [f"+{theirs}*:{ours}*" for theirs, ours in refspecs.items()]
        for last in (*[False] * (FETCH_TRIES - 1), True):
            done = self._refs.writing(
                args,
                dict.fromkeys(refspecs.values(), ANY),
                protocols=REMOTE_PROTOCOLS,
                env=env,
                settings=settings,
                timeout=FETCH_TIMEOUT_S,
            )
            if done.returncode == 0:
                return
            # Another process has fetched at the same time and was faster: what it wrote is read anew.
            if last or not any(word in done.stderr for word in _OVERTAKEN):
                raise git_error("git fetch", done)
            self._clock.wait(threading.Event(), self._entropy.jitter(OVERTAKEN_S))
