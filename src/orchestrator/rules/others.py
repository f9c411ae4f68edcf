"""Whether what others say at the forge lets a change pass: named checks and people's reviews, each about one commit.

Must hold: absent is not passed; a commit that was not judged is not spoken for; of each check and each person the
newest word counts. Nothing here raises.
"""

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.domain.gate import Finding, GateResult, failed, passed, waiting
from orchestrator.domain.others import CheckState, ForgeCheck, ForgeReview, Remark, ReviewState, Said
from orchestrator.domain.spelling import did_you_mean
from orchestrator.rules.trailers import one_line

SHOWN = 12  # characters of a commit, for people
NAME_LIMIT = 100  # characters of a stranger's name, or of a word of the forge
WORDS_LIMIT = 4_000  # of what one review or check says
REMARK_LIMIT = 1_000
URL_LIMIT = 500


def failures(wanted: Sequence[str], said: Said) -> list[ForgeCheck]:
    """The wanted checks that have failed."""
    bad = [check for check in _newest_checks(said.checks) if check.state is CheckState.FAILED]
    return [check for check in bad if check.name in wanted]


def judge_checks(wanted: Sequence[str], said: Said) -> GateResult:
    """Every wanted check has passed on exactly the subject: reported, ended, and well."""
    newest = _newest_checks(said.checks)
    bad = failures(wanted, said)
    open_: list[str] = []
    told: dict[str, str] = {}
    for name in wanted:
        mine = [check for check in newest if check.name == name]
        missing = [check for check in mine if check.state in (CheckState.PENDING, CheckState.STOPPED)]
        told[name] = ", ".join(_name(check.said) for check in mine) or "not there"
        if not mine or missing:
            open_.append(f"{name} ({told[name]})")
    facts: dict[str, object] = {"sha": said.subject, "checks": told}
    if bad:
        names = ", ".join(dict.fromkeys(check.name for check in bad))
        return failed(
            f"Checks at the forge that have to pass did not: {names}.",
            *(finding for check in bad for finding in _of_check(check, said)),
            **facts,
        )
    if open_:
        return waiting(
            f"waits for checks at the forge on {said.subject[:SHOWN]}: {', '.join(open_)}", **facts
        )
    return passed(f"the checks at the forge passed on {said.subject}", **facts)


def other_names(wanted: Sequence[str], said: Said, limit: int = 10) -> str:
    """Which checks the forge shows instead of those that are not there: a name may be misspelled. Empty: none is."""
    seen = sorted({_name(check.name) for check in said.checks} - set(wanted))
    absent = [name for name in wanted if all(check.name != name for check in said.checks)]
    if not absent:
        return ""
    if not seen:
        return "The forge shows no other check of this commit: does one run on pull requests, or on pushes?"
    close = " ".join(filter(None, (did_you_mean(name, seen) for name in absent[:limit])))
    return f"The forge shows: {', '.join(seen[:limit])}. {close}".rstrip()


def objections(said: Said) -> list[ForgeReview]:
    """Requests for changes that nobody has dealt with: the newest word of whoever may say so, about any commit."""
    return [
        review
        for review in _opinions(said.reviews)
        if review.state is ReviewState.CHANGES and review.counts and review.number not in said.dealt_with
    ]


def judge_reviews(wanted: int, said: Said) -> GateResult:
    """As many people as are wanted have approved the subject, and nobody has asked for changes since."""
    against = objections(said)
    if against:
        names = ", ".join(_name(review.person) for review in against)
        found = [finding for review in against for finding in _of_review(review, said)]
        return failed(f"Changes were requested by {names}.", *found, sha=said.subject)
    opinions = [review for review in _opinions(said.reviews) if review.state is ReviewState.APPROVED]
    counted = [review for review in opinions if review.counts and review.commit in said.about]
    if len(counted) >= wanted:
        people = [_name(review.person) for review in counted]
        return passed(f"approved by {', '.join(people)}", sha=said.subject, people=people)
    aside = [_why_not(review) for review in opinions if review not in counted]
    where = f" at {said.pull_request}" if said.pull_request else ""
    needs = "an approval" if wanted == 1 else f"{wanted} approvals ({len(counted)} given)"
    reason = f"waits for {needs} of {said.subject[:SHOWN]}{where}"
    return waiting("; ".join([reason, *aside[:5]]), sha=said.subject)


def _newest_checks(checks: Iterable[ForgeCheck]) -> list[ForgeCheck]:
    newest: dict[tuple[str, str], ForgeCheck] = {}
    for check in checks:
        known = newest.get((check.name, check.source))
        if known is None or check.order > known.order:
            newest[check.name, check.source] = check
    return list(newest.values())


def _opinions(reviews: Iterable[ForgeReview]) -> list[ForgeReview]:
    newest: dict[str, ForgeReview] = {}
    for review in sorted(reviews, key=lambda review: review.number):
        newest[review.person] = review
    return sorted(newest.values(), key=lambda review: review.number)


def _why_not(review: ForgeReview) -> str:
    what = "may not approve here" if not review.counts else f"approved {_name(review.commit)[:SHOWN]}"
    return f"{_name(review.person)} {what}"


def _of_check(check: ForgeCheck, said: Said) -> Iterator[Finding]:
    says = f'The check "{_name(check.name)}" says {_name(check.said)} about {said.subject}.'
    yield Finding(" ".join(filter(None, [says, _link(check.url), _words(check.summary, WORDS_LIMIT)])))
    yield from (_of_remark(remark) for remark in said.remarks.get(check.order, ()))


def _of_review(review: ForgeReview, said: Said) -> Iterator[Finding]:
    words = _words(review.words, WORDS_LIMIT)
    says = f"{_name(review.person)} asks for changes{':' if words else '.'}"
    yield Finding(" ".join(filter(None, [says, words, _link(review.url)])))
    yield from (_of_remark(remark) for remark in said.remarks.get(review.number, ()))


def _of_remark(remark: Remark) -> Finding:
    return Finding(_words(remark.words, REMARK_LIMIT), one_line(remark.path)[:URL_LIMIT] or None, remark.line)


def _name(text: str) -> str:
    return one_line(text[: 4 * NAME_LIMIT])[:NAME_LIMIT]


def _link(url: str) -> str:
    return f"({one_line(url[:URL_LIMIT])})" if url else ""


def _words(text: str, limit: int) -> str:
    """A stranger's text in its lines, without what could steer a terminal, and cut."""
    lines = [one_line(line) for line in text[: 2 * limit].splitlines()]
    told = "\n".join(lines).strip()
    return told if len(told) <= limit else f"{told[:limit]} … (cut)"
