"""The API of the server: which request gets which status and body, in the order in which the server looks."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from orchestrator.played.common.served import Answer
from orchestrator.played.plane import bodies
from orchestrator.played.plane.world import Comment, Item, Label, Project, State, User, World

MOST = 1000
ORDERS = ("created_at", "updated_at", "name", "sequence_id")


@dataclass(frozen=True)
class Request:
    """One request of somebody whose key is known."""

    user: User
    query: dict[str, str]
    body: Any

    @property
    def fields(self) -> dict[str, Any]:
        return self.body if isinstance(self.body, dict) else {}


Endpoint = Callable[..., Answer]
ROUTES: list[tuple[str, re.Pattern[str], Endpoint]] = []
P = "/workspaces/<slug>/projects/<pid>"
I = f"{P}/(?:work-items|issues)"  # noqa: E741 - work items are called issues still


def route(method: str, path: str) -> Callable[[Endpoint], Endpoint]:
    pattern = re.compile(re.sub(r"(?<!P)<(\w+)>", r"(?P<\1>[^/]+)", path) + r"/\Z")

    def add(endpoint: Endpoint) -> Endpoint:
        ROUTES.append((method, pattern, endpoint))
        return endpoint

    return add


def answer(world: World, method: str, path: str, asked: Request) -> Answer:
    """The answer to one request below ``/api/v1``; versions before 1.1 know no ``work-items``."""
    known = [(wanted, match, endpoint) for wanted, p, endpoint in ROUTES if (match := p.match(path))]
    if not known:
        return Answer(404, "<!doctype html>\n<title>Not Found</title>\n")
    for wanted, match, endpoint in known:
        if wanted == method:
            with world.lock:
                return _called(world, endpoint, asked, match.groupdict())
    return Answer(405, {"detail": f'Method "{method}" not allowed.'})


def _called(world: World, endpoint: Endpoint, asked: Request, named: dict[str, str]) -> Answer:
    if named.pop("slug", world.slug) != world.slug:
        return Answer(403, bodies.FORBIDDEN)
    project = None
    if "pid" in named:
        pid = named.pop("pid")
        project = next((one for one in world.projects if one.id == pid and not one.deleted), None)
        if project is None or asked.user not in project.members:
            found = endpoint is one_project and project is None
            return Answer(404, bodies.MISSING) if found else Answer(403, bodies.FORBIDDEN)
        named["project"] = project  # type: ignore[assignment]
    if "item" in named:
        wanted = named.pop("item")
        seen = project.visible() if project is not None else []
        item = next((one for one in seen if one.id == wanted), None)
        if item is None:
            return Answer(404, bodies.MISSING)
        named["item"] = item  # type: ignore[assignment]
    return endpoint(world, asked, **named)


def _page(asked: Request, everything: list[Any], shown: Callable[[Any], Any]) -> Answer:
    """A page. ``page`` is no parameter: it is passed over without a word."""
    size, number = int(asked.query.get("per_page") or MOST), 0
    if size > MOST:
        return Answer(400, {"detail": "Invalid per_page value. Cannot exceed 1000."})
    if size <= 0:
        return Answer(500, bodies.BROKEN)
    if cursor := asked.query.get("cursor"):
        try:
            size, number, _ = (int(part) for part in cursor.split(":"))
        except ValueError:
            return Answer(400, {"detail": "Invalid cursor parameter."})
    found = everything[number * size : (number + 1) * size]
    wanted = {name for name in asked.query.get("fields", "").split(",") if name}
    rows = [shown(one) for one in found]
    if wanted:
        rows = [{name: value for name, value in row.items() if name in wanted} for row in rows]
    return Answer(200, bodies.page(rows, len(everything), size, number))


def _expanded(asked: Request) -> set[str]:
    return set(asked.query.get("expand", "").split(","))


@route("GET", "/users/me")
def myself(world: World, asked: Request) -> Answer:
    return Answer(200, bodies.user(asked.user))


# -- projects, states, labels ------------------------------------------------------------------------------------------


@route("GET", "/workspaces/<slug>/projects")
def list_projects(world: World, asked: Request) -> Answer:
    mine = [one for one in world.projects if asked.user in one.members and not one.deleted]
    return _page(asked, mine, lambda one: bodies.project(world, one, asked.user))


@route("POST", "/workspaces/<slug>/projects")
def new_project(world: World, asked: Request) -> Answer:
    name, identifier = asked.fields["name"], asked.fields["identifier"]
    known = [one for one in world.projects if not one.deleted]
    if any(one.name == name for one in known):
        return Answer(409, {"name": "The project name is already taken"})
    if any(one.identifier == identifier for one in known):
        return Answer(409, {"identifier": "The project identifier is already taken"})
    made = world.new_project(identifier, name, asked.user)
    return Answer(201, bodies.project(world, made, asked.user))


@route("GET", P)
def one_project(world: World, asked: Request, project: Project) -> Answer:
    return Answer(200, bodies.project(world, project, asked.user))


@route("DELETE", P)
def drop_project(world: World, asked: Request, project: Project) -> Answer:
    world.delete_project(project, asked.user)
    return Answer(204)


@route("GET", f"{P}/members")
def list_members(world: World, asked: Request, project: Project) -> Answer:
    return Answer(200, [bodies.user(one) for one in project.members])


@route("GET", f"{P}/states")
def list_states(world: World, asked: Request, project: Project) -> Answer:
    known = [] if project.archived else project.states
    return _page(asked, known, lambda one: bodies.state(world, project, one))


@route("POST", f"{P}/states")
def new_state(world: World, asked: Request, project: Project) -> Answer:
    name = asked.fields["name"]
    same = next((one for one in project.states if one.name == name), None)
    if same is not None:
        said = "State with the same name already exists in the project"
        return Answer(409, {"error": said, "id": same.id})
    made = world.new_state(project, name, asked.fields.get("group", "backlog"), asked.fields["color"])
    return Answer(200, bodies.state(world, project, made))


@route("GET", f"{P}/labels")
def list_labels(world: World, asked: Request, project: Project) -> Answer:
    known = [] if project.archived else project.labels
    return _page(asked, known, lambda one: bodies.label(world, project, one))


@route("POST", f"{P}/labels")
def new_label(world: World, asked: Request, project: Project) -> Answer:
    same = next((one for one in project.labels if one.name == asked.fields["name"]), None)
    if same is not None:
        said = "Label with the same name already exists in the project"
        return Answer(409, {"error": said, "id": same.id})
    made = world.new_label(project, asked.fields["name"], asked.fields.get("color", ""))
    return Answer(201, bodies.label(world, project, made))


# -- work items --------------------------------------------------------------------------------------------------------


@route("GET", I)
def list_items(world: World, asked: Request, project: Project) -> Answer:
    """Unknown filters are passed over without a word; an external id gives the one item, not a list."""
    external = (asked.query.get("external_source"), asked.query.get("external_id"))
    if all(external):
        found = [one for one in project.items if (one.external_source, one.external_id) == external]
        if len(found) > 1:
            return Answer(500, bodies.BROKEN)
        if not found:
            return Answer(404, bodies.MISSING)
        return Answer(200, bodies.item(world, project, found[0], _expanded(asked)))
    order = asked.query.get("order_by") or "-created_at"
    name = order.removeprefix("-") if order.removeprefix("-") in ORDERS else "created_at"
    rows = sorted(
        project.visible(),
        key=lambda one: str(bodies.item(world, project, one, set())[name]),
        reverse=order.startswith("-"),
    )
    return _page(asked, rows, lambda one: bodies.item(world, project, one, _expanded(asked)))


@route("POST", I)
def new_item(world: World, asked: Request, project: Project) -> Answer:
    wanted = asked.fields
    if "name" not in wanted:
        return Answer(400, {"name": ["This field is required."]})
    read, wrong = _read(project, wanted)
    if wrong is not None:
        return wrong
    external = (wanted.get("external_source"), wanted.get("external_id"))
    same = next((i for i in project.items if (i.external_source, i.external_id) == external), None)
    if all(external) and same is not None:
        said = "Issue with the same external id and external source already exists"
        return Answer(409, {"error": said, "id": same.id})
    more = {"html": wanted.get("description_html", "<p></p>"), "priority": wanted.get("priority", "none")}
    more |= {name: read[name] for name in ("state", "labels") if name in read}
    more |= {"external_source": external[0], "external_id": external[1]}
    made = world.new_item(project, asked.user, wanted["name"], **more)
    return Answer(201, bodies.item(world, project, made, set()))


@route("GET", f"{I}/<item>")
def one_item(world: World, asked: Request, project: Project, item: Item) -> Answer:
    return Answer(200, bodies.item(world, project, item, _expanded(asked)))


@route("PATCH", f"{I}/<item>")
def edit_item(world: World, asked: Request, project: Project, item: Item) -> Answer:
    """What the API does not know, `state_id` among it, is passed over without a word."""
    read, wrong = _read(project, asked.fields)
    if wrong is not None:
        return wrong
    world.change(project, item, asked.user, read, page=False)
    return Answer(200, bodies.item(world, project, item, set()))


@route("DELETE", f"{I}/<item>")
def drop_item(world: World, asked: Request, project: Project, item: Item) -> Answer:
    project.items.remove(item)
    return Answer(204)


@route("GET", "/workspaces/<slug>/(?:work-items|issues)/(?P<key>[A-Z0-9]+-[0-9]+)")
def item_by_key(world: World, asked: Request, key: str) -> Answer:
    prefix, _, number = key.rpartition("-")
    for project in world.projects:
        if project.identifier == prefix and asked.user in project.members and not project.deleted:
            for item in project.visible():
                if str(item.sequence) == number:
                    return Answer(200, bodies.item(world, project, item, _expanded(asked)))
    return Answer(404, bodies.MISSING)


def _read(project: Project, wanted: dict[str, Any]) -> tuple[dict[str, Any], Answer | None]:
    """The fields that the server knows, as its own things; or what it says of a wrong one."""
    read: dict[str, Any] = {}
    if "state" in wanted:
        found = _by_id(project.states, wanted["state"])
        if not isinstance(found, State):
            return {}, Answer(400, {"state": [found]})
        read["state"] = found
    if "labels" in wanted:  # ids of another project are dropped without a word
        read["labels"] = [one for one in project.labels if one.id in wanted["labels"]]
    if "name" in wanted:
        name = wanted["name"]
        if not name or len(name) > 255:
            said = (
                "Ensure this field has no more than 255 characters."
                if name
                else "This field may not be blank."
            )
            return {}, Answer(400, {"name": [said]})
        read["name"] = name
    for name in ("description_html", "priority"):
        if name in wanted:
            read[name] = wanted[name]
    return read, None


def _by_id(known: list[Any], wanted: object) -> State | Label | str:
    try:
        UUID(str(wanted))
    except ValueError:
        return f"“{wanted}” is not a valid UUID."
    found = next((one for one in known if one.id == wanted), None)
    return found if found is not None else f'Invalid pk "{wanted}" - object does not exist.'


# -- what belongs to a work item ---------------------------------------------------------------------------------------


@route("GET", f"{I}/<item>/comments")
def list_comments(world: World, asked: Request, project: Project, item: Item) -> Answer:
    """The newest first, whatever order is asked for."""
    rows = sorted(item.comments, key=lambda one: one.created, reverse=True)
    return _page(asked, rows, lambda one: bodies.comment(world, project, item, one))


@route("POST", f"{I}/<item>/comments")
def new_comment(world: World, asked: Request, project: Project, item: Item) -> Answer:
    wanted = asked.fields
    external = (wanted.get("external_source"), wanted.get("external_id"))
    everywhere = (one for each in project.items for one in each.comments)
    same = next((one for one in everywhere if (one.external_source, one.external_id) == external), None)
    if all(external) and same is not None:
        said = "Work item comment with the same external id and external source already exists"
        return Answer(409, {"error": said, "id": same.id})
    more = {"external_source": external[0], "external_id": external[1]}
    made = world.comment(project, item, asked.user, wanted.get("comment_html", "<p></p>"), **more)
    return Answer(201, bodies.comment(world, project, item, made))


def _comment(item: Item, wanted: str) -> Comment | None:
    return next((one for one in item.comments if one.id == wanted), None)


@route("PATCH", f"{I}/<item>/comments/<comment>")
def edit_comment(world: World, asked: Request, project: Project, item: Item, comment: str) -> Answer:
    found = _comment(item, comment)
    if found is None:
        return Answer(404, bodies.MISSING)
    world.edit_comment(project, item, found, asked.user, asked.fields["comment_html"])
    return Answer(200, bodies.comment(world, project, item, found))


@route("DELETE", f"{I}/<item>/comments/<comment>")
def drop_comment(world: World, asked: Request, project: Project, item: Item, comment: str) -> Answer:
    found = _comment(item, comment)
    if found is None:
        return Answer(404, bodies.MISSING)
    world.drop_comment(item, found)
    return Answer(204)


@route("GET", f"{I}/<item>/activities")
def list_activities(world: World, asked: Request, project: Project, item: Item) -> Answer:
    order = asked.query.get("order_by") or "created_at"
    rows = sorted(item.activities, key=lambda one: one.at, reverse=order.startswith("-"))
    return _page(asked, rows, lambda one: bodies.activity(world, project, item, one))


@route("GET", f"{I}/<item>/links")
def list_links(world: World, asked: Request, project: Project, item: Item) -> Answer:
    return _page(asked, item.links, lambda one: bodies.link(world, project, item, one))


@route("POST", f"{I}/<item>/links")
def new_link(world: World, asked: Request, project: Project, item: Item) -> Answer:
    url = asked.fields.get("url", "")
    if not re.match(r"https?://", url):
        return Answer(400, {"url": ["Invalid URL format."]})
    if any(one.url == url for one in item.links):
        return Answer(400, {"error": ["URL already exists for this Issue"]})
    made = world.link(item, asked.user, url, asked.fields.get("title"))
    return Answer(201, bodies.link(world, project, item, made))
