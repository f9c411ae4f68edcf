"""The store on a real disk: tags never move, content never changes unseen, publishers do not meet."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.domain.errors import AuthorityUnreachable, ConfigError
from orchestrator.domain.ids import Digest
from orchestrator.images.store import ArtifactGone, LocalImageStore, TagTaken, image_tag
from tests.waiting import wait_until

SHA = "c0ffee" + "0" * 34
NOTHING = Digest("sha256:" + "0" * 64)


@pytest.fixture
def store(tmp_path: Path) -> LocalImageStore:
    return LocalImageStore(tmp_path / "state" / "images")


def artefact(folder: Path, text: str = "content") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "run").write_text(text)
    (folder / "bin" / "run").chmod(0o755)
    return folder


def test_what_is_published_is_found_by_tag_and_digest(store: LocalImageStore, tmp_path: Path) -> None:
    tag = image_tag(SHA, "7")
    assert store.resolve(tag) is None
    digest = store.publish(artefact(tmp_path / "dist"), tag)
    assert tag == f"{SHA}-e7"
    assert store.resolve(tag) == digest
    assert store.has(digest)
    assert (store.path(digest) / "bin" / "run").read_text() == "content"
    assert os.access(store.path(digest) / "bin" / "run", os.X_OK)
    assert LocalImageStore(tmp_path / "state" / "images").resolve(tag) == digest


def test_what_is_not_there_is_not_there(store: LocalImageStore, tmp_path: Path) -> None:
    assert not store.has(NOTHING)
    with pytest.raises(ArtifactGone, match="is not in the image store any more"):
        store.path(NOTHING)  # nor a store: nothing was ever published in this state folder
    digest = store.publish(artefact(tmp_path / "dist"), image_tag(SHA, "7"))
    shutil.rmtree(store.path(digest).parent)
    with pytest.raises(ArtifactGone):
        store.path(digest)


def test_a_store_that_is_not_mounted_says_nothing_of_what_it_has(tmp_path: Path) -> None:
    def there() -> None:
        raise AuthorityUnreachable("Is it mounted?")

    with pytest.raises(AuthorityUnreachable, match="mounted"):
        LocalImageStore(tmp_path / "images", there=there).path(NOTHING)
    (tmp_path / "images").mkdir()
    with pytest.raises(AuthorityUnreachable, match="cannot be used"):
        LocalImageStore(tmp_path / "images").path(NOTHING)


def test_the_source_may_go_and_change_afterwards(store: LocalImageStore, tmp_path: Path) -> None:
    source = artefact(tmp_path / "dist")
    digest = store.publish(source, image_tag(SHA, "7"))
    (source / "bin" / "run").write_text("changed")
    assert store.has(digest)
    assert (store.path(digest) / "bin" / "run").read_text() == "content"


def test_the_same_push_again_changes_nothing(store: LocalImageStore, tmp_path: Path) -> None:
    source, tag = artefact(tmp_path / "dist"), image_tag(SHA, "7")
    assert store.publish(source, tag) == store.publish(source, tag)
    assert list((tmp_path / "state" / "images" / "incoming").iterdir()) == []


def test_a_tag_never_moves(store: LocalImageStore, tmp_path: Path) -> None:
    tag = image_tag(SHA, "7")
    digest = store.publish(artefact(tmp_path / "one", "one"), tag)
    with pytest.raises(TagTaken, match=str(digest)):
        store.publish(artefact(tmp_path / "two", "two"), tag)
    assert store.resolve(tag) == digest


def test_a_late_push_is_another_tag(store: LocalImageStore, tmp_path: Path) -> None:
    first = store.publish(artefact(tmp_path / "one", "one"), image_tag(SHA, "7"))
    late = store.publish(artefact(tmp_path / "two", "two"), image_tag(SHA, "8"))
    assert first != late
    assert store.resolve(image_tag(SHA, "7")) == first


@pytest.mark.parametrize("damage", ["changed", "added", "removed", "mode"])
def test_damage_is_seen_and_repaired_by_publishing_again(
    store: LocalImageStore, tmp_path: Path, damage: str
) -> None:
    source, tag = artefact(tmp_path / "dist"), image_tag(SHA, "7")
    digest = store.publish(source, tag)
    stored = store.path(digest)
    if damage == "changed":
        (stored / "bin" / "run").chmod(0o755)
        (stored / "bin" / "run").write_text("Content")
    elif damage == "added":
        (stored / "bin" / "cache").write_text("")
    elif damage == "removed":
        (stored / "bin" / "run").unlink()
    else:
        (stored / "bin" / "run").chmod(0o644)
    assert not store.has(digest)
    assert store.publish(source, tag) == digest
    assert store.has(digest)


def together(*acts: threading.Thread) -> None:
    for act in acts:
        act.start()
    for act in acts:
        act.join()


def test_many_publish_the_same_at_once(tmp_path: Path) -> None:
    source, tag = artefact(tmp_path / "dist"), image_tag(SHA, "7")
    barrier, got = threading.Barrier(6), []

    def publish() -> None:
        barrier.wait()
        got.append(LocalImageStore(tmp_path / "images").publish(source, tag))

    together(*(threading.Thread(target=publish) for _ in range(6)))
    assert len(got) == 6
    assert len(set(got)) == 1
    assert LocalImageStore(tmp_path / "images").has(got[0])


def test_many_publish_different_things_under_one_tag(tmp_path: Path) -> None:
    tag = image_tag(SHA, "7")
    barrier = threading.Barrier(6)
    won: list[Digest] = []
    refused: list[TagTaken] = []

    def publish(number: int) -> None:
        source = artefact(tmp_path / f"dist{number}", str(number))
        barrier.wait()
        try:
            won.append(LocalImageStore(tmp_path / "images").publish(source, tag))
        except TagTaken as error:
            refused.append(error)

    together(*(threading.Thread(target=publish, args=(number,)) for number in range(6)))
    assert (len(won), len(refused)) == (1, 5)
    assert LocalImageStore(tmp_path / "images").resolve(tag) == won[0]


def test_a_publisher_killed_half_way_leaves_no_tag_and_no_hindrance(
    store: LocalImageStore, tmp_path: Path
) -> None:
    source, tag = artefact(tmp_path / "dist"), image_tag(SHA, "7")
    code = (
        "import os, signal, sys, pathlib\n"
        "from orchestrator.images import store\n"
        "def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)\n"
        "store.publish_exclusive = die\n"  # the object is in place, the tag is not
        "store.LocalImageStore(pathlib.Path(sys.argv[1])).publish(pathlib.Path(sys.argv[2]), sys.argv[3])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "state" / "images"), str(source), tag],
        check=False, capture_output=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert store.resolve(tag) is None
    assert store.has(store.publish(source, tag))


def test_pruning_keeps_what_it_is_told_and_no_tag_without_object(
    store: LocalImageStore, tmp_path: Path
) -> None:
    kept = store.publish(artefact(tmp_path / "one", "one"), image_tag(SHA, "1"))
    gone = store.publish(artefact(tmp_path / "two", "two"), image_tag(SHA, "2"))
    (tmp_path / "state" / "images" / "incoming" / "push-left").mkdir()
    assert store.prune({kept}) == 1
    assert store.has(kept)
    assert store.resolve(image_tag(SHA, "1")) == kept
    assert not store.has(gone)
    assert store.resolve(image_tag(SHA, "2")) is None
    assert list((tmp_path / "state" / "images" / "incoming").iterdir()) == []
    assert store.prune({kept}) == 0


def test_pruning_waits_for_a_publisher(store: LocalImageStore, tmp_path: Path) -> None:
    source = tmp_path / "dist"
    source.mkdir()
    kept = store.publish(artefact(tmp_path / "one"), image_tag(SHA, "1"))
    code = (
        "import pathlib, sys\n"
        "from orchestrator.images import store\n"
        "real = store.publish_exclusive\n"
        "def slow(*args):\n"
        "    print('placed', flush=True)\n"
        "    sys.stdin.read()\n"
        "    return real(*args)\n"
        "store.publish_exclusive = slow\n"
        "print(store.LocalImageStore(pathlib.Path(sys.argv[1])).publish(pathlib.Path(sys.argv[2]), sys.argv[3]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "state" / "images"), str(source), image_tag(SHA, "2")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as publisher:  # fmt: skip
        assert publisher.stdout is not None
        assert publisher.stdin is not None
        assert publisher.stdout.readline() == "placed\n"
        removed: list[int] = []
        pruning = threading.Thread(target=lambda: removed.append(store.prune({kept})))
        pruning.start()
        wait_until(lambda: waiting_for_a_lock(os.getpid()))
        assert removed == []
        publisher.stdin.close()
        pruning.join()
        published = Digest(publisher.stdout.readline().strip())
    assert removed == [1]  # pruned only after it was whole: object and tag went together
    assert store.resolve(image_tag(SHA, "2")) is None
    assert not store.has(published)


def waiting_for_a_lock(pid: int) -> bool:
    """True where a thread of the process waits in flock(2), by the kernel's own list."""
    return any("->" in line and f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines())


@pytest.mark.parametrize(
    "tag", ["latest", SHA, f"../{SHA}-e1", f"{SHA}-e", f"{SHA[:12]}-e1", f"{SHA}-e1/../x", ""]
)
def test_what_is_no_tag_is_refused(store: LocalImageStore, tmp_path: Path, tag: str) -> None:
    with pytest.raises(ConfigError):
        store.publish(artefact(tmp_path / "dist"), tag)
    with pytest.raises(ConfigError):
        store.resolve(tag)


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "sha256:../../etc", "md5:" + "0" * 64, "sha256:" + "0" * 63]
)
def test_what_is_no_digest_is_refused(store: LocalImageStore, digest: str) -> None:
    for ask in (store.has, store.path):
        with pytest.raises(ConfigError):
            ask(Digest(digest))


@pytest.mark.parametrize("content", [b"", b"sha256:short\n", b"x" * 1000])
def test_a_damaged_tag_is_in_doubt(store: LocalImageStore, tmp_path: Path, content: bytes) -> None:
    tag = image_tag(SHA, "7")
    store.publish(artefact(tmp_path / "dist"), tag)
    (tmp_path / "state" / "images" / "tags" / tag).write_bytes(content)
    with pytest.raises(AuthorityUnreachable):
        store.resolve(tag)


def test_a_store_that_cannot_be_used_is_an_unreachable_authority(tmp_path: Path) -> None:
    (tmp_path / "images").write_text("a file where the folder should be")
    store = LocalImageStore(tmp_path / "images")
    with pytest.raises(AuthorityUnreachable, match="cannot be used"):
        store.publish(artefact(tmp_path / "dist"), image_tag(SHA, "7"))
    with pytest.raises(AuthorityUnreachable, match="cannot be used"):
        store.resolve(image_tag(SHA, "7"))
    with pytest.raises(AuthorityUnreachable, match="cannot be used"):
        store.has(NOTHING)
