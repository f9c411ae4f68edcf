"""What no committed text may hold: the hosts that packages come from, and paths of the machine it was written on."""

from collections.abc import Iterator
from pathlib import Path

from tests.project.checkout import ROOT, files

# Joined here, or this file would name them itself.
HOSTS = [".".join(host) for host in (("pypi", "org"), ("pythonhosted", "org"), ("registry", "npmjs", "org"))]


def texts() -> Iterator[tuple[Path, str]]:
    for path in files():
        try:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def places_of(needle: str) -> list[str]:
    return [
        f"{path}:{number}"
        for path, text in texts()
        if needle in text
        for number, line in enumerate(text.splitlines(), start=1)
        if needle in line
    ]


def test_no_text_names_a_package_host() -> None:
    found = {host: places for host in HOSTS if (places := places_of(host))}
    assert not found


def test_no_text_names_the_folder_of_this_checkout() -> None:
    assert not places_of(str(ROOT))


def test_no_text_names_the_folder_beside_this_checkout() -> None:
    assert not places_of(str(ROOT.parent / "shared"))
