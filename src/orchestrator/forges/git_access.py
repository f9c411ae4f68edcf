"""How git is let in at a forge over HTTP, so that the token stands in no address, argument, file or message."""

import base64
from dataclasses import dataclass

from orchestrator.config.secret import Secret

# A redirect would carry the header elsewhere, and hide that a repository was renamed; a stalled line is given up.
SETTINGS = ("http.followRedirects=false", "http.lowSpeedLimit=1", "http.lowSpeedTime=60")
PROTOCOLS = ("http", "https")
USER = "orchestrator"  # any will do: the forge looks at the token


@dataclass(frozen=True, slots=True)
class GitAccess:
    """One repository's address, and the token that opens it."""

    url: str
    token: Secret

    def environment(self) -> dict[str, str]:
        """What git's environment needs; its scope is this one address."""
        known = base64.b64encode(f"{USER}:{self.token.reveal()}".encode()).decode("ascii")
        return {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{self.url}.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {known}",
        }
