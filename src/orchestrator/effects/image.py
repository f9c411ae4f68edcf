"""The effect ``image``: the artefact of M in the store, named by its digest."""

import json
from collections.abc import Mapping
from pathlib import Path

from orchestrator.domain.effect import Applied, EffectName, Intent, NotApplied, Probe, Unknown
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import Digest, Sha
from orchestrator.effects import judged
from orchestrator.images.builder import BuildFailed, ImageBuilder
from orchestrator.images.store import ImageStore, image_tag
from orchestrator.places import Folders, Places
from orchestrator.repo_config.records import ImageConfig
from orchestrator.runtime.entropy import Entropy
from orchestrator.workspace.folders import remove_tree


class ImageEffect:
    """Builds under a tag nobody else uses; or, for production, sees that the tested digest is there."""

    name = EffectName.IMAGE

    def __init__(
        self,
        places: Places,
        store: ImageStore,
        builder: ImageBuilder,
        folders: Folders,
        environ: Mapping[str, str],
        *,
        entropy: Entropy,
    ) -> None:
        self._places = places
        self._store = store
        self._builder = builder
        self._folders = folders
        self._environ = folders.environ(environ)
        self._entropy = entropy

    def probe(self, intent: Intent) -> Probe:
        """The store's own word: the tag's digest, with its content checked."""
        try:
            digest = self._digest(intent)
            if digest is None or not self._store.has(digest):
                return NotApplied({"digest": digest})
            return Applied({"digest": digest, "sha": judged.text(intent, "sha")})
        except (OutsideError, OSError) as error:
            return Unknown(str(error))

    def act(self, intent: Intent) -> None:
        """Build in a clean checkout of exactly M and publish."""
        if "promote" in intent.judged:
            raise OutsideError(
                f"The tested artefact {intent.judged['promote']} is no longer in the store.",
                hint=f"Is the store lost for good? `orch effect resolve {intent.effect_id} retry` has it built again.",
            )
        sha = Sha(judged.text(intent, "sha"))
        config = image_config(judged.mapping(intent, "image"))
        place = self._places.of(judged.text(intent, "repo"))
        # Every try has a place of its own: an earlier one may have been killed, or may still be at work.
        attempt = f"image-{intent.effect_id}-{intent.token}-{self._entropy.token(4)}"
        target = self._folders.checkouts / attempt
        log = self._folders.logs / f"image-{intent.task_id}-{intent.round}.log"
        with place.clone.export(sha, target) as checkout:
            if config is None:  # nothing to build: the tree of M itself is what gets deployed
                remove_tree(checkout / ".git")
                artifact = checkout
            else:
                env = {**self._environ, **self._folders.marks()}
                artifact = self._builder.build(checkout, config, env, log, sha=sha)
            self._store.publish(artifact, image_tag(sha, intent.token))

    def said(self, intent: Intent) -> Mapping[str, object] | None:
        """The tested digest where there is one; that of a new build is the store's to tell."""
        promoted = judged.optional_text(intent, "promote")
        return {"digest": promoted, "sha": judged.text(intent, "sha")} if promoted is not None else None

    def turned(self, intent: Intent, failure: Exception | None) -> str | None:
        """A build that fails fails again: the change is given up, with the build's last lines as finding."""
        if isinstance(failure, BuildFailed):
            return f"{failure}\n{failure.log_tail}".strip()
        return None

    def revoke(self, intent: Intent) -> None:
        """Nothing to send: a late push arrives under a tag that nobody deploys."""

    def _digest(self, intent: Intent) -> Digest | None:
        promoted = judged.optional_text(intent, "promote")
        if promoted is not None:
            return Digest(promoted)
        return self._store.resolve(image_tag(judged.text(intent, "sha"), intent.token))


def of_config(config: ImageConfig) -> dict[str, object]:
    """The build configuration as an intent carries it: what was judged is what is built."""
    record: dict[str, object] = json.loads(
        json.dumps({"command": config.command, "artifact": config.artifact, "timeout_s": config.timeout_s})
    )
    return record


def image_config(record: Mapping[str, object]) -> ImageConfig | None:
    """The build configuration that an intent carries; None where nothing has to be built."""
    command = record.get("command")
    if command is None:
        return None
    argv = tuple(str(word) for word in command) if isinstance(command, list) else ()
    return ImageConfig(argv, str(Path(str(record["artifact"]))), float(str(record["timeout_s"])))
