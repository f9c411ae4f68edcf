"""What the server writes: the bodies of its API and of its webhooks, with the fields that it was seen to write."""

from typing import Any

from orchestrator.played.plane.world import (
    Activity,
    Comment,
    Happened,
    Item,
    Label,
    Link,
    Project,
    State,
    User,
    World,
)

MISSING = {"error": "The requested resource does not exist."}
FORBIDDEN = {"detail": "You do not have permission to perform this action."}
BROKEN = {"error": "Something went wrong please try again later"}
TOO_MANY = {"error_code": 5900, "error_message": "RATE_LIMIT_EXCEEDED"}


def user(one: User) -> dict[str, Any]:
    return {
        "id": one.id,
        "first_name": one.first_name,
        "last_name": one.last_name,
        "email": one.email,
        "avatar": "",
        "avatar_url": None,
        "display_name": one.display_name,
    }


def project(world: World, one: Project, asking: User) -> dict[str, Any]:
    return {
        "id": one.id,
        "total_members": len(one.members),
        "total_cycles": 0,
        "total_modules": 0,
        "is_member": asking in one.members,
        "sort_order": 65535.0,
        "member_role": 15,
        "is_deployed": False,
        "cover_image_url": None,
        "created_at": one.created,
        "updated_at": one.created,
        "deleted_at": None,
        "name": one.name,
        "description": "",
        "description_text": None,
        "description_html": None,
        "network": 2,
        "identifier": one.identifier,
        "emoji": None,
        "icon_prop": None,
        "module_view": False,
        "cycle_view": False,
        "issue_views_view": False,
        "page_view": True,
        "intake_view": False,
        "is_time_tracking_enabled": False,
        "is_issue_type_enabled": False,
        "guest_view_all_features": False,
        "cover_image": None,
        "archive_in": 0,
        "close_in": 0,
        "logo_props": {"icon": {"name": "favorite", "color": "#95999f"}, "in_use": "icon"},
        "archived_at": one.archived,
        "timezone": "UTC",
        "external_source": None,
        "external_id": None,
        "created_by": one.members[0].id,
        "updated_by": None,
        "workspace": world.id,
        "default_assignee": None,
        "project_lead": None,
        "cover_image_asset": None,
        "estimate": None,
        "default_state": None,
    }


def state(world: World, of: Project, one: State) -> dict[str, Any]:
    return {
        "id": one.id,
        "created_at": one.created,
        "updated_at": one.created,
        "deleted_at": None,
        "name": one.name,
        "description": "",
        "color": one.color,
        "slug": "",
        "sequence": one.sequence,
        "group": one.group,
        "is_triage": False,
        "default": one.default,
        "external_source": one.external_source,
        "external_id": one.external_id,
        "created_by": of.members[0].id,
        "updated_by": None,
        "project": of.id,
        "workspace": world.id,
    }


def label(world: World, of: Project, one: Label) -> dict[str, Any]:
    return {
        "id": one.id,
        "created_at": one.created,
        "updated_at": one.created,
        "deleted_at": None,
        "name": one.name,
        "description": "",
        "color": one.color,
        "sort_order": 75535.0,
        "external_source": None,
        "external_id": None,
        "created_by": of.members[0].id,
        "updated_by": None,
        "workspace": world.id,
        "project": of.id,
        "parent": None,
    }


def item(world: World, of: Project, one: Item, expand: set[str]) -> dict[str, Any]:
    return {
        "id": one.id,
        "type_id": None,
        "created_at": one.created,
        "updated_at": one.updated,
        "deleted_at": None,
        "point": None,
        "name": one.name,
        "description_html": one.html,
        "description_binary": None,
        "priority": one.priority,
        "start_date": None,
        "target_date": None,
        "sequence_id": one.sequence,
        "sort_order": 65535.0 + 10000 * one.sequence,
        "completed_at": one.completed,
        "archived_at": one.archived,
        "is_draft": False,
        "external_source": one.external_source,
        "external_id": one.external_id,
        "created_by": one.by.id,
        "updated_by": one.updated_by.id if one.updated_by else None,
        "project": of.id,
        "workspace": world.id,
        "parent": None,
        "state": _state(one.state) if "state" in expand else one.state.id,
        "estimate_point": None,
        "type": None,
        "assignees": [],
        "labels": [_label(each) if "labels" in expand else each.id for each in one.labels],
    }


def comment(world: World, of: Project, about: Item, one: Comment) -> dict[str, Any]:
    return {
        "id": one.id,
        "created_at": one.created,
        "updated_at": one.updated,
        "deleted_at": None,
        "comment_html": one.html,
        "attachments": [],
        "access": one.access,
        "external_source": one.external_source,
        "external_id": one.external_id,
        "edited_at": None,
        "created_by": one.actor.id,
        "updated_by": one.actor.id,
        "project": of.id,
        "workspace": world.id,
        "description": one.id,
        "issue": about.id,
        "actor": one.actor.id,
        "parent": None,
    }


def activity(world: World, of: Project, about: Item, one: Activity) -> dict[str, Any]:
    return {
        "id": one.id,
        "created_at": one.at,
        "updated_at": one.at,
        "deleted_at": None,
        "verb": one.verb,
        "field": one.field,
        "old_value": one.old,
        "new_value": one.new,
        "comment": one.said,
        "attachments": [],
        "old_identifier": one.old_id,
        "new_identifier": one.new_id,
        "epoch": 1795969540.0,
        "project": of.id,
        "workspace": world.id,
        "issue": about.id,
        "issue_comment": None,
        "actor": one.actor.id,
    }


def link(world: World, of: Project, about: Item, one: Link) -> dict[str, Any]:
    return {
        "id": one.id,
        "created_at": one.created,
        "updated_at": one.created,
        "deleted_at": None,
        "title": one.title,
        "url": one.url,
        "metadata": {},
        "created_by": one.by.id,
        "updated_by": None,
        "project": of.id,
        "workspace": world.id,
        "issue": about.id,
    }


def page(results: list[Any], everything: int, size: int, number: int) -> dict[str, Any]:
    last = max(1, -(-everything // size))
    return {
        "grouped_by": None,
        "sub_grouped_by": None,
        "total_count": everything,
        "next_cursor": f"{size}:{number + 1}:0",
        "prev_cursor": f"{size}:{number - 1}:1",
        "next_page_results": number + 1 < last,
        "prev_page_results": number > 0,
        "count": len(results),
        "total_pages": last,
        "total_results": everything,
        "extra_stats": None,
        "results": results,
    }


def delivery(world: World, told: Happened, hook: str) -> dict[str, Any]:
    """One webhook's body; `data` shows how things are now, not how they were."""
    if told.event == "project" or told.item is None:
        data: dict[str, Any] = {"id": told.project.id}
    elif told.comment is not None:
        data = comment(world, told.project, told.item, told.comment)
    else:
        data = _data_of_item(world, told.project, told.item)
    return {
        "event": told.event,
        "action": told.action,
        "webhook_id": hook,
        "workspace_id": world.id,
        "data": data,
        "activity": {
            "field": told.field,
            "new_value": told.new,
            "old_value": told.old,
            "actor": user(told.actor),
            "old_identifier": None,
            "new_identifier": None,
        },
    }


def _data_of_item(world: World, of: Project, one: Item) -> dict[str, Any]:
    shown = item(world, of, one, {"state", "labels"})
    text = one.html.replace("<p>", "").replace("</p>", "")
    return {
        **{name: shown[name] for name in ("id", "labels", "assignees", "state")},
        "description": {},
        **{name: shown[name] for name in ("created_at", "updated_at", "deleted_at", "point", "name")},
        "description_json": {},
        "description_html": one.html,
        "description_stripped": text,
        **{name: value for name, value in shown.items() if name not in ("type_id", "description_html")},
    }


def _state(one: State) -> dict[str, Any]:
    return {"id": one.id, "name": one.name, "color": one.color, "group": one.group}


def _label(one: Label) -> dict[str, Any]:
    return {"id": one.id, "name": one.name, "color": one.color}
