"""The three wire protocols that agent programs speak: an answer as a JSON body, as a stream of events, and a
refusal.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Protocol

from orchestrator.scripted_model.answer import Answer, Call, new_id

Json = dict[str, object]
Event = tuple[str | None, Json | str]  # name and data


class WireProtocol(Protocol):
    """How one service talks."""

    overflow: tuple[str, str]  # type and message of a prompt that is too long

    def problem(self, status: int, kind: str | None, message: str) -> Json:
        """The body of a refusal."""
        ...

    def whole(self, answer: Answer) -> Json:
        """The answer in one body."""
        ...

    def events(self, answer: Answer) -> Iterator[Event]:
        """The answer as a stream."""
        ...


class Messages:
    """Anthropic Messages."""

    overflow = ("invalid_request_error", "prompt is too long: 214213 tokens > 200000 maximum")
    kinds: Mapping[int, str] = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        429: "rate_limit_error",
        529: "overloaded_error",
    }

    def problem(self, status: int, kind: str | None, message: str) -> Json:
        """An error object."""
        error = {"type": kind or self.kinds.get(status, "api_error"), "message": message}
        return {"type": "error", "error": error, "request_id": new_id("req")}

    def whole(self, answer: Answer) -> Json:
        """A message object."""
        return {
            "id": new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": [whole for _, _, whole in self._blocks(answer)],
            "stop_reason": answer.stop or ("tool_use" if answer.calls else "end_turn"),
            "stop_sequence": None,
            "usage": self._usage(answer, answer.output),
        }

    def events(self, answer: Answer) -> Iterator[Event]:
        """``message_start`` to ``message_stop``; the opening one knows one token of output only."""
        message = self.whole(answer)
        opening = message | {"content": [], "stop_reason": None, "usage": self._usage(answer, 1)}
        yield "message_start", {"message": opening}
        for index, (block, deltas, _) in enumerate(self._blocks(answer)):
            yield "content_block_start", {"index": index, "content_block": block}
            for delta in deltas:
                yield "content_block_delta", {"index": index, "delta": delta}
            yield "content_block_stop", {"index": index}
        ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield "message_delta", {"delta": ending, "usage": message["usage"]}
        yield "message_stop", {}

    def _usage(self, answer: Answer, output: int) -> Json:
        return {
            "input_tokens": answer.input,
            "cache_creation_input_tokens": answer.cache_write,
            "cache_read_input_tokens": answer.cache_read,
            "output_tokens": output,
        }

    def _blocks(self, answer: Answer) -> Iterator[tuple[Json, list[Json], Json]]:
        """Each block as it opens, in pieces, and whole."""
        if answer.text:
            deltas: list[Json] = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
            yield {"type": "text", "text": ""}, deltas, {"type": "text", "text": answer.text}
        for call in answer.calls:
            block: Json = {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": {}}
            yield (
                block,
                [{"type": "input_json_delta", "partial_json": call.arguments}],
                block | {"input": _arguments(call)},
            )


class Responses:
    """OpenAI Responses."""

    overflow = ("context_length_exceeded", "Your input exceeds the context window of this model.")
    kinds: Mapping[int, str] = {
        401: "invalid_api_key",
        429: "rate_limit_exceeded",
        500: "server_error",
        529: "overloaded",
    }

    def problem(self, status: int, kind: str | None, message: str) -> Json:
        """An error object."""
        code = kind or self.kinds.get(status, "invalid_request_error")
        return {"type": "error", "error": {"message": message, "type": code, "code": code, "param": None}}

    def whole(self, answer: Answer) -> Json:
        """A response object."""
        return self._response(answer, list(self._items(answer)))

    def events(self, answer: Answer) -> Iterator[Event]:
        """``response.created`` to ``response.completed``."""
        items = list(self._items(answer))
        opening = self._response(answer, []) | {"status": "in_progress", "usage": None}
        yield "response.created", {"response": opening}
        for index, item in enumerate(items):
            spoken = item["type"] == "message"
            opened = item | {"status": "in_progress"} | ({"content": []} if spoken else {})
            yield "response.output_item.added", {"output_index": index, "item": opened}
            for piece in answer.pieces if spoken else ():
                place = {"output_index": index, "content_index": 0, "item_id": item["id"]}
                yield "response.output_text.delta", {**place, "delta": piece}
            yield "response.output_item.done", {"output_index": index, "item": item}
        yield "response.completed", {"response": self._response(answer, items)}

    def _response(self, answer: Answer, items: list[Json]) -> Json:
        read = answer.input + answer.cache_read
        return {
            "id": new_id("resp"),
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": answer.model,
            "output": items,
            "usage": {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": answer.cache_read},
                "output_tokens": answer.output,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": read + answer.output,
            },
        }

    def _items(self, answer: Answer) -> Iterator[Json]:
        if answer.text:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            yield {
                "type": "message",
                "id": new_id("msg"),
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        for call in answer.calls:
            space = next((name for name in answer.namespaces if call.name.startswith(f"{name}__")), None)
            named = (
                {"namespace": space, "name": call.name[len(space) + 2 :]} if space else {"name": call.name}
            )
            yield {
                "type": "function_call",
                "id": new_id("fc"),
                "call_id": call.id,
                **named,
                "arguments": call.arguments,
                "status": "completed",
            }


class Chat(Responses):
    """OpenAI Chat Completions."""

    def whole(self, answer: Answer) -> Json:
        """A completion object."""
        calls, finish = self._parts(answer)
        message = {"role": "assistant", "content": answer.text or None, **calls}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return self._body(answer, "chat.completion", [choice]) | {"usage": self._usage(answer)}

    def events(self, answer: Answer) -> Iterator[Event]:
        """Chunks, then the usage, then ``[DONE]``."""
        calls, finish = self._parts(answer)
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in answer.pieces]
        for delta in (*deltas, *([calls] if calls else []), {}):
            choice = {"index": 0, "delta": delta, "finish_reason": None if delta else finish}
            yield None, self._body(answer, "chat.completion.chunk", [choice])
        yield None, self._body(answer, "chat.completion.chunk", []) | {"usage": self._usage(answer)}
        yield None, "[DONE]"

    def _parts(self, answer: Answer) -> tuple[Json, str]:
        calls = [
            {
                "index": index,
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(answer.calls)
        ]
        return ({"tool_calls": calls} if calls else {}), answer.stop or ("tool_calls" if calls else "stop")

    def _body(self, answer: Answer, kind: str, choices: list[Json]) -> Json:
        return {
            "id": new_id("chatcmpl"),
            "object": kind,
            "created": 0,
            "model": answer.model,
            "choices": choices,
        }

    def _usage(self, answer: Answer) -> Json:
        read = answer.input + answer.cache_read
        return {
            "prompt_tokens": read,
            "completion_tokens": answer.output,
            "total_tokens": read + answer.output,
            "prompt_tokens_details": {"cached_tokens": answer.cache_read},
        }


PROTOCOLS: Mapping[str, WireProtocol] = {
    "messages": Messages(),
    "responses": Responses(),
    "completions": Chat(),
}


def _arguments(call: Call) -> object:
    """The arguments as an object; empty where the script breaks them on purpose."""
    try:
        return json.loads(call.arguments)
    except ValueError:
        return {}
