"""The pages in a real browser: they render at desk and phone width, and hostile text stays text.

Chromium's own command line renders and prints the page: nothing has to drive it.
"""

import re
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from orchestrator.domain.effect import EffectName
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage, Track
from orchestrator.domain.task import Hold
from tests.fixtures_desk import Desk, Serve

FLAGS = [
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
]
MEASURE = """<script>
const columns = [...document.querySelectorAll(".column")], told = document.body.dataset;
told.columns = columns.length;
told.right = Math.ceil(Math.max(...columns.map(one => Math.max(one.getBoundingClientRect().right,
    one.getBoundingClientRect().left + one.scrollWidth))));
told.room = document.documentElement.clientWidth;
</script>"""
HOSTILE = [
    "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">",
    "\u202egnp.exe \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u202d reversed",
    "W" * 5000,
    "👩‍👩‍👧‍👦🏳️‍🌈 " * 40,
    "{{ 7 * 7 }} {% raw %} </style></title><base href=//evil.example>",
    "Zalgo " + "h\u0335\u0321\u0340\u0341\u0353" * 60,
]


def chromium(profile: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*FLAGS, f"--user-data-dir={profile}", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@dataclass
class Page:
    """What the browser made of a page."""

    dom: str
    text: str
    tags: dict[str, int]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def visit(profile: Path, url: str) -> Page:
    dom = chromium(profile, "--dump-dom", url)
    reader = _Reader()
    reader.feed(dom)
    return Page(dom, " ".join(" ".join(reader.texts).split()), reader.tags)


def size_of(png: Path) -> tuple[int, int]:
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def fill(desk: Desk) -> None:
    """A board with something in every place."""
    desk.file(
        "Take coupons at checkout", labels=("fast", "customer"), body="Three of ten carts are left.\nHelp."
    )
    desk.move("SHOP-1", Stage.DEVELOPMENT)
    desk.run("SHOP-1", JobKind.DEVELOPER, "Wrote the coupon rule and its tests.")
    desk.work("SHOP-1", JobKind.CI)
    desk.file("Добавить корзину и показать сумму заказа")
    desk.move("SHOP-2", Stage.ANALYSIS)
    desk.hold("SHOP-2", Hold.PERSON, "the analysis at 3f2a9c1d waits for a person: orch task approve SHOP-2")
    desk.file("Stop the search from timing out on long words")
    desk.move("SHOP-3", Stage.REVIEW, Track.FAST)
    desk.hold(
        "SHOP-3",
        Hold.ESCALATED,
        "review has sent it back 3 times; the last finding: no test for the time-out",
    )
    desk.file("Send the receipt once")
    desk.move("SHOP-4", Stage.DEPLOY_STAGING)
    desk.effect("SHOP-4", EffectName.PUSH, "9c0ffee1234567890abcdef1234567890abcdef1")
    desk.effect("SHOP-4", EffectName.DEPLOY_INIT, "staging/9c0ffee/1", settled=False)
    desk.file("Show stock before the cart")
    desk.hold("SHOP-5", Hold.BLOCKED, "waits for SHOP-1")
    desk.file("Rename the shipping page")
    desk.move("SHOP-6", Stage.DONE)


@pytest.mark.timeout(240)
class TestBoard:
    def test_shows_every_task_in_its_column(self, desk: Desk, serve: Serve, tmp_path: Path) -> None:
        fill(desk)
        desk.freeze("SHOP-4", "production did not come back")
        page = visit(tmp_path / "profile", serve() + "/")
        for words in (
            "Take coupons at checkout",
            "Добавить корзину",
            "needs approval",
            "escalated",
            "waits for SHOP-1",
            "shop is frozen",
            "2 need a person",
            "At work",
        ):
            assert words in page.text
        assert page.tags.get("script", 0) == 0

    @pytest.mark.parametrize("width", [1440, 390], ids=["desk", "phone"])
    def test_fits_its_window(self, desk: Desk, serve: Serve, tmp_path: Path, width: int) -> None:
        fill(desk)
        shot = tmp_path / "board.png"
        url = serve()
        chromium(tmp_path / "profile", f"--window-size={width},1000", f"--screenshot={shot}", url + "/")
        assert size_of(shot) == (width, 1000)
        assert len(shot.read_bytes()) > 10_000

    @pytest.mark.parametrize("width", [1280, 1440, 800])
    def test_cuts_no_column_off(self, desk: Desk, serve: Serve, tmp_path: Path, width: int) -> None:
        """Every stage has a task. The page's policy allows no script, so a copy of it is measured."""
        for number, stage in enumerate(Stage, 1):
            desk.file(f"Ticket {number} with a title of an ordinary length")
            desk.move(f"SHOP-{number}", stage)
            if not stage.terminal:
                desk.hold(f"SHOP-{number}", Hold.ESCALATED, "it has been sent back 3 times")
        url = serve()
        page = httpx.get(url + "/", trust_env=False).text
        style = httpx.get(url + "/board.css", trust_env=False).text
        copy = tmp_path / "copy.html"
        copy.write_text(
            re.sub("<link[^>]*>|<meta http-equiv[^>]*>", "", page) + f"<style>{style}</style>" + MEASURE,
            encoding="utf-8",
        )
        dom = chromium(tmp_path / "profile", f"--window-size={width},900", "--dump-dom", copy.as_uri())
        (found,) = re.findall(r'data-columns="(\d+)" data-right="(\d+)" data-room="(\d+)"', dom)
        columns, right, room = map(int, found)
        assert columns == len(Stage)
        assert right <= room <= width

    def test_hostile_titles_stay_text(self, desk: Desk, serve: Serve, tmp_path: Path) -> None:
        for title in HOSTILE:
            desk.file(title, body=title, labels=(title[:100],))
        desk.hold("SHOP-1", Hold.ESCALATED, HOSTILE[0])
        url = serve()
        for path in ("/", *(f"/board/SHOP-{number}" for number in range(1, len(HOSTILE) + 1))):
            page = visit(tmp_path / "profile", url + path)
            assert page.tags.get("script", 0) == page.tags.get("img", 0) == page.tags.get("base", 0) == 0
            assert "<title>pwned" not in page.dom
        assert "{{ 7 * 7 }}" in visit(tmp_path / "profile", url + "/board/SHOP-5").text


@pytest.mark.timeout(240)
class TestTaskPage:
    def test_tells_the_story(self, desk: Desk, serve: Serve, tmp_path: Path) -> None:
        fill(desk)
        page = visit(tmp_path / "profile", serve() + "/board/SHOP-1")
        for words in (
            "created → analysis",
            "Wrote the coupon rule",
            "$0.1234",
            "Three of ten carts",
            "runs ci",
        ):
            assert words in page.text

    @pytest.mark.parametrize("frozen", [True, False])
    def test_an_escalated_task_shows_what_can_be_done(
        self, desk: Desk, serve: Serve, tmp_path: Path, frozen: bool
    ) -> None:
        fill(desk)
        url = serve()
        assert "orch task cancel SHOP-3" in visit(tmp_path / "profile", url + "/board/SHOP-3").text
        desk.file("Ship it")
        desk.move("SHOP-7", Stage.DEPLOY)
        desk.hold("SHOP-7", Hold.ESCALATED, "production did not come back: " + "exit code 1; " * 100)
        if frozen:
            desk.freeze("SHOP-7", "production did not come back")
        page = visit(tmp_path / "profile", url + "/board/SHOP-7")
        assert "orch task retry SHOP-7" in page.text and "cancel" not in page.text
        assert ("orch unfreeze shop" in page.text) is frozen
        assert ("docs/how-to/frozen-repository.md" in page.text) is frozen

    def test_shows_effects(self, desk: Desk, serve: Serve, tmp_path: Path) -> None:
        fill(desk)
        page = visit(tmp_path / "profile", serve() + "/board/SHOP-4")
        assert "deploy_init" in page.text
        assert "drives deploy_init (intended)" in page.text
