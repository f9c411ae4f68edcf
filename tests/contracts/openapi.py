"""Requests and answers held against a published description, Swagger 2.0 or OpenAPI 3.0.

Their schemas are JSON Schema (draft 4), so the usual validator judges them. One thing it cannot say: the servers send
`null` for what is absent, so fields that are null are left out first.
"""

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

from jsonschema import Draft4Validator


class Description:
    """One description file."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._all: dict[str, Any] = _nullable_left_out(json.loads(path.read_text()))

    def request(self, method: str, path: str, query: dict[str, str], body: Any) -> None:
        """The call exists, each parameter is known, the body fits and has no field that nobody reads."""
        wanted = self._operation(method, path)
        known = {p["name"]: p for p in map(self._resolved, wanted.get("parameters", []))}
        unknown = set(query) - {name for name, p in known.items() if p["in"] == "query"}
        assert not unknown, f"{self.name}: {method} {path} has no parameter {sorted(unknown)}"
        for name, value in query.items():
            assert value in known[name].get("enum", [value]), f"{self.name}: {method} {path}: {name}={value}"
        if body is None:
            return
        schema = self._body_of(wanted, known)
        assert schema is not None, f"{self.name}: {method} {path} takes no body"
        self._fits(schema, body, f"{method} {path}")
        fields = self._resolved(schema).get("properties", {})
        assert set(body) <= set(fields), f"{self.name}: {method} {path}: {sorted(set(body) - set(fields))}"

    def answer(self, method: str, path: str, status: int, body: Any) -> bool:
        """Whether this status is documented; its body then fits."""
        told = self._operation(method, path)["responses"].get(str(status))
        if told is None:
            return False
        schema = self._schema_of(self._resolved(told))
        if schema is not None:
            self._fits(schema, body, f"{method} {path} {status}")
        return True

    def _body_of(self, operation: dict[str, Any], known: dict[str, Any]) -> dict[str, Any] | None:
        if "requestBody" in operation:
            return self._schema_of(operation["requestBody"])
        return next((p["schema"] for p in known.values() if p["in"] == "body"), None)

    def _schema_of(self, part: dict[str, Any]) -> dict[str, Any] | None:
        return part.get("schema") or part.get("content", {}).get("application/json", {}).get("schema")

    def _operation(self, method: str, path: str) -> dict[str, Any]:
        for pattern, operations in self._paths:
            if pattern.fullmatch(path) and method.lower() in operations:
                return operations[method.lower()]  # type: ignore[no-any-return]
        raise AssertionError(f"{self.name} knows no {method} {path}")

    @cached_property
    def _paths(self) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
        """Fixed words win over parameters."""
        ordered = sorted(self._all["paths"].items(), key=lambda item: (item[0].count("{"), item[0]))
        return [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), ops) for path, ops in ordered]

    def _resolved(self, part: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in part:
            _, *way = part["$ref"].split("/")
            part = self._all
            for name in way:
                part = part[name]
        return part

    def _fits(self, schema: dict[str, Any], value: Any, what: str) -> None:
        shared = {name: self._all[name] for name in ("definitions", "components") if name in self._all}
        judge = Draft4Validator({**schema, **shared})
        wrong = [f"{list(e.path)}: {e.message[:200]}" for e in judge.iter_errors(_without_nulls(value))]
        assert not wrong, f"{self.name}: {what}: {wrong}"


def _nullable_left_out(part: Any) -> Any:
    """What may be null need not be there once nulls are left out."""
    if isinstance(part, list):
        return [_nullable_left_out(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {name: _nullable_left_out(one) for name, one in part.items()}
    if isinstance(found.get("required"), list) and isinstance(found.get("properties"), dict):
        nullable = {
            n for n, one in found["properties"].items() if isinstance(one, dict) and one.get("nullable")
        }
        found["required"] = [name for name in found["required"] if name not in nullable]
        if not found["required"]:  # an empty list is no schema in draft 4
            del found["required"]
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
