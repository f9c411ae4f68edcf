"""A list that changes while it is read, the oldest change first, so that nothing in it is passed over.

What changes goes to the end of such a list, and what is closed may leave it: all behind it moves up, and a page asked
for by its number alone begins too late.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta

from orchestrator.runtime.clock import parse_stamp, stamp
from orchestrator.trackers.github_records import Issue

SECOND = timedelta(seconds=1)  # "since" a second may or may not mean that second, too

Page = Callable[[str, int], tuple[list[Issue], bool]]


def by_change(page: Page, since: str, stretches: int) -> Iterator[Issue]:
    """What has changed from a moment on, or all where that is empty; some of it twice, the later reading later.

    ``page`` is told since when and which page of that, and says whether more follow. Each stretch begins with the
    second in which the last one has ended. Where that second has more than a page, its next pages are read, and then
    all before the last of them once more, backwards: moving up, nothing gets past us. After so many ``stretches`` it
    stops, with nothing left out before the last one.
    """
    number = 1
    for _ in range(stretches):
        found, more = page(_before(since), number)
        yield from found
        ended = not found or found[-1].changed_at > since
        if ended or not more:
            for again in range(number - 1, 0, -1):
                yield from page(_before(since), again)[0]
        if not more or not found:
            return
        since, number = (found[-1].changed_at, 1) if ended else (since, number + 1)


def _before(since: str) -> str:
    return stamp(parse_stamp(since) - SECOND) if since else ""
