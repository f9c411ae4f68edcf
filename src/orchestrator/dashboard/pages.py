"""The board's pages: the first page, a task's story, and the way in where a token is asked for.

What must hold: everything shown goes through Jinja's escaping (tickets and agents' words are hostile); no script at
all, so the content security policy can forbid them; a task is looked up in the database by its number.
"""

import functools
from http import HTTPStatus
from importlib.resources import files
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from orchestrator.dashboard import views
from orchestrator.db.events import PAGE
from orchestrator.domain.errors import NotFound
from orchestrator.operations.desk import Operations
from orchestrator.runtime.clock import Clock
from orchestrator.web.guard import LOGIN_PATH, SESSION_COOKIE, Door

STYLE_PATH = "/board.css"
OPEN_PATHS = frozenset({STYLE_PATH, LOGIN_PATH})  # hand these to `create_api`: they ask for no token
TASKS_SHOWN = 300
RECENT_READ = 60  # newest tasks looked through for those that have ended
REFRESH_S = 10
SESSION_S = 30 * 86_400


def add_board(api: FastAPI, operations: Operations, *, clock: Clock) -> None:
    """Add the pages to the application that ``create_api`` has made."""

    @api.get("/", include_in_schema=False)
    def first_page() -> Response:
        """The board."""
        view = views.board(
            operations.tasks(open_only=True, limit=TASKS_SHOWN),
            operations.tasks(limit=RECENT_READ),
            operations.queue(),
            clock.utc(),
            TASKS_SHOWN,
        )
        return _page("board.html", board=view, refresh=REFRESH_S)

    @api.get("/board", include_in_schema=False)
    def short_address() -> Response:
        """The address that people guess from those of the tasks' pages."""
        return RedirectResponse("/")

    @api.get("/board/{work_item}", include_in_schema=False)
    def task_page(work_item: str, after: int = 0) -> Response:
        """A task's story, a page of events at a time."""
        try:
            after = min(max(after, 0), 2**62)
            story = operations.story(work_item, events_after=after)
            why, queue = operations.why(work_item), operations.queue()
        except NotFound as error:
            return _page("missing.html", HTTPStatus.NOT_FOUND, message=error.message)
        view = views.task_page(story, why, queue, clock.utc(), PAGE)
        last = story.events[-1].id if story.events else after
        return _page("task.html", task=view, last=last, first=after == 0)

    @api.get(STYLE_PATH, include_in_schema=False)
    def style() -> Response:
        """The stylesheet."""
        return Response(_style(), media_type="text/css", headers={"cache-control": "max-age=60"})

    _add_login(api, api.state.door)


def _add_login(api: FastAPI, door: Door) -> None:
    @api.get(LOGIN_PATH, include_in_schema=False)
    def login_page() -> Response:
        """Asks for the token."""
        return _page("login.html", wrong=False)

    @api.post(LOGIN_PATH, include_in_schema=False)
    async def login(request: Request) -> Response:
        """Let a browser in that knows the token; the cookie reads, it never acts."""
        form = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=4)
        session = door.session()
        if session is None or not door.knows(form.get("token", [""])[0].strip()):
            return _page("login.html", HTTPStatus.UNAUTHORIZED, wrong=True)
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            SESSION_COOKIE,
            session,
            max_age=SESSION_S,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer


def _page(template: str, status: int = HTTPStatus.OK, **values: object) -> HTMLResponse:
    text = _templates().get_template(template).render(**values)
    return HTMLResponse(text.encode("utf-8", "replace"), status)


@functools.cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("orchestrator.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@functools.cache
def _style() -> str:
    return files("orchestrator.dashboard").joinpath("static", "board.css").read_text(encoding="utf-8")
