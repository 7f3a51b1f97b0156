"""What editors, agents and web pages send, field by field, where the program itself is not run here: Zed and Open WebUI
over chat completions, Codex over responses, Claude Code over messages, each in two turns around a call of a tool. Each
reader takes only what its program takes, and as strictly. Scripted tokens stand in for the model; that the second turn
reads only what is new is asked of the demo model, since scripted tokens have no cache.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/client_requests_test.py

coding_agents_test.py runs Codex and Claude Code themselves.
"""
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import Server, line  # noqa: E402

THINK = "<|channel|>analysis<|message|>I look into the file.<|end|><|start|>assistant"
CALL = THINK + "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s<|call|>"
FINAL = THINK + "<|channel|>final<|message|>It says hello.<|return|>"
PATH = json.dumps({"path": "note.txt"})
PARAMETERS = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {
    "path": {"type": "string", "description": "Which file."}}, "required": ["path"], "additionalProperties": False}
FILE = "hello\n"


@pytest.fixture(scope="module")
def demo():
    with Server("--ctx", "4096", "--cache-mib", "64") as server:
        yield server


def goes_on(demo, path, first, second):
    """Whether the second request's prompt begins with all of the first one's."""
    limit = {"/v1/responses": "max_output_tokens", "/v1/messages?beta=true": "max_tokens"}.get(path, "max_completion_tokens")
    one, two = (demo.post(path, {**body, "stream": False, limit: 1}).json()["usage"] for body in (first, second))
    if limit == "max_tokens":
        return two["cache_read_input_tokens"] >= one["input_tokens"] + one["cache_read_input_tokens"]
    name = "input_tokens" if limit == "max_output_tokens" else "prompt_tokens"
    return two[name + "_details"]["cached_tokens"] >= one[name]


def scripted(*texts):
    return Server("--ctx", "4096", script=[line(text) for text in texts])


def function(name):
    return {"name": name, "description": "The text of a file.", "parameters": PARAMETERS}


# ---------------------------------------------------------------- chat completions


def counts(usage):
    return all(type(usage[name]) is int and usage[name] >= 0 for name in ("prompt_tokens", "completion_tokens", "total_tokens"))


def read_chat(events):
    """As a client with types reads a stream: every chunk has choices, roles are known, usage is whole numbers."""
    message = {"content": "", "reasoning_content": "", "calls": {}, "finish": None, "usage": None}
    assert events[-1] == "[DONE]"
    for chunk in events[:-1]:
        assert isinstance(chunk["choices"], list) and "error" not in chunk
        if chunk["usage"] is not None:
            assert counts(chunk["usage"])
            message["usage"] = chunk["usage"]
        for choice in chunk["choices"]:
            assert type(choice["index"]) is int
            delta = choice["delta"]
            assert delta.get("role") in (None, "assistant") and delta.get("tool_calls") != []
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls", ()):
                call = message["calls"].setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] = piece.get("id") or call["id"]
                call["name"] = piece["function"].get("name") or call["name"]
                call["arguments"] += piece["function"].get("arguments") or ""
            message["finish"] = choice["finish_reason"] or message["finish"]
    assert message["usage"]
    return message


def test_zed(demo):
    body = {"model": "gpt-oss-20b", "stream": True, "stream_options": {"include_usage": True}, "temperature": 1.0, "tool_choice": "auto",
            "max_completion_tokens": 900, "parallel_tool_calls": True, "prompt_cache_key": "a-thread", "reasoning_effort": "medium",
            "tools": [{"type": "function", "function": function("read_file")}]}
    messages = [{"role": "system", "content": "You edit files."},
                {"role": "user", "content": [{"type": "text", "text": "<context>src/a.c</context>"}, {"type": "text", "text": "What is in note.txt?"}]}]
    with scripted(CALL % ("read_file", PATH), FINAL, FINAL) as server:
        first = read_chat(server.stream("/v1/chat/completions", {**body, "messages": messages}))
        call = first["calls"][0]
        assert first["reasoning_content"] == "I look into the file."
        assert first["finish"] == "tool_calls" and call["id"] and call["name"] == "read_file" and json.loads(call["arguments"]) == json.loads(PATH)
        asked = {**body, "messages": list(messages)}
        messages += [{"role": "assistant", "content": None, "reasoning_content": first["reasoning_content"], "tool_calls": [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}]},
            {"role": "tool", "content": FILE, "tool_call_id": call["id"]}]
        second = read_chat(server.stream("/v1/chat/completions", {**body, "messages": messages}))
        assert (second["content"], second["finish"]) == ("It says hello.", "stop")
        assert goes_on(demo, "/v1/chat/completions", asked, {**body, "messages": messages})
        messages[-1]["content"] = []  # of a tool that had nothing to say
        assert read_chat(server.stream("/v1/chat/completions", {**body, "messages": messages}))["finish"] == "stop"


def test_open_webui(demo):
    """The list of models, a turn with a call, the answer to its result, and the titles asked for behind it."""
    extra = {"chat_id": "c-1", "session_id": "s-1", "id": "m-1", "filter_ids": [], "variables": {"{{USER_NAME}}": "A"}, "model_item": {"id": "demo"},
             "background_tasks": {"title_generation": True}, "features": {"web_search": False}, "user": {"name": "A", "role": "admin"}}
    body = {"model": "demo", "stream": True, "stream_options": {"include_usage": True}, "params": {}, **extra,
            "tools": [{"type": "function", "function": function("read_file")}]}
    messages = [{"role": "user", "content": "What is in note.txt?"}]
    title = THINK + '<|channel|>final<|message|>{"title": "A note"}<|return|>'
    with scripted(CALL % ("read_file", PATH), FINAL, title) as server:
        listed = server.client.get("/v1/models", headers={"Authorization": "Bearer any", "X-OpenWebUI-User-Name": "A"}).json()
        assert [model["id"] for model in listed["data"]] == ["demo"] and "error" not in listed
        first = read_chat(server.stream("/v1/chat/completions", {**body, "messages": messages}))
        assert first["reasoning_content"] == "I look into the file." and first["calls"][0]["name"] == "read_file"
        call, asked = first["calls"][0], {**body, "messages": list(messages)}
        messages += [{"role": "assistant", "content": "", "reasoning_content": first["reasoning_content"], "tool_calls": [
            {"index": 0, "id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}]},
            {"role": "tool", "tool_call_id": call["id"], "content": [{"type": "text", "text": FILE, "cache_control": {"type": "ephemeral"}}]}]
        second = read_chat(server.stream("/v1/chat/completions", {**body, "messages": messages}))
        assert second["content"] == "It says hello." and goes_on(demo, "/v1/chat/completions", asked, {**body, "messages": messages})
        reply = server.post("/v1/chat/completions", {"model": "demo", "stream": False, "max_completion_tokens": 1000, "metadata": {"task": "title_generation"},
                                                     "messages": [{"role": "user", "content": "Name this: ..."}]}).json()
        assert json.loads(reply["choices"][0]["message"]["content"]) == {"title": "A note"} and counts(reply["usage"])


# ---------------------------------------------------------------- responses, as Codex


def read_codex(events):
    """Codex takes whole items from output_item.done, text from deltas, and its usage from response.completed."""
    items, texts, ended = [], {}, None
    assert events[0]["type"] == "response.created" and isinstance(events[0]["response"]["id"], str)
    for event in events:
        kind = event["type"]
        assert kind not in ("response.failed", "response.incomplete", "error")
        if kind == "response.output_item.done":
            items.append(event["item"])
        elif kind in ("response.output_text.delta", "response.reasoning_text.delta"):
            texts[kind] = texts.get(kind, "") + event["delta"]
            assert kind != "response.reasoning_text.delta" or type(event["content_index"]) is int
        elif kind == "response.completed":
            ended = event["response"]
    usage = ended["usage"]
    assert ended["id"] == events[0]["response"]["id"] and usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens_details"]["reasoning_tokens"] > 0 and "cached_tokens" in usage["input_tokens_details"]
    return items, texts


def test_codex(demo):
    def message(role, *texts):
        return {"type": "message", "id": f"msg_{role}", "role": role, "content": [{"type": "input_text", "text": text} for text in texts]}
    window = {"session_id": "s-1", "thread_id": "s-1", "turn_id": "t-1"}
    body = {"model": "gpt-oss-20b", "tool_choice": "auto", "parallel_tool_calls": True, "reasoning": {"summary": "auto"}, "store": False,
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "s-1", "client_metadata": window, "instructions": "",
            "tools": [{"type": "function", "strict": False, **function("exec_command")}, {"type": "web_search", "external_web_access": True},
                      {"type": "namespace", "name": "agents", "tools": [{"type": "function", **function("close")}]},
                      {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}}]}
    headers = {"Accept": "text/event-stream", "originator": "codex_exec", "session-id": "s-1", "x-codex-turn-metadata": json.dumps(window)}
    history = [message("developer", "You work in a shell."), message("developer", "<skills>none</skills>", "<permissions>all</permissions>"),
               message("user", "<environment>here</environment>"), message("user", "What is in note.txt?")]
    with scripted(CALL % ("exec_command", PATH), FINAL) as server:
        asked = {**body, "input": list(history)}
        items, texts = read_codex(server.stream("/v1/responses", asked, headers=headers))
        assert [item["type"] for item in items] == ["reasoning", "function_call"] and texts["response.reasoning_text.delta"] == "I look into the file."
        reasoning, call = items
        assert reasoning["summary"] == [] and reasoning["encrypted_content"] and json.loads(call["arguments"]) == json.loads(PATH)
        assert call["call_id"] != call["id"] and call["status"] == "completed"
        sealed = {key: reasoning[key] for key in ("type", "id", "summary", "encrypted_content")} | {"content": None}
        history += [sealed, call, {"type": "function_call_output", "id": "fco_1", "call_id": call["call_id"], "output": FILE}]
        items, texts = read_codex(server.stream("/v1/responses", {**body, "input": history}, headers=headers))
        assert items[-1]["content"][0]["text"] == texts["response.output_text.delta"] == "It says hello."
        assert goes_on(demo, "/v1/responses", asked, {**body, "input": history})
        assert server.client.get("/v1/models?client_version=0.163.0").status_code == 200


def test_codex_is_told_when_the_context_is_full():
    with scripted(FINAL) as server:
        reply = server.post("/v1/responses", {"model": "m", "stream": True, "input": "word " * 5000})
        assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded"


# ---------------------------------------------------------------- messages, as Claude Code

BETAS = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24"


def read_claude(events):
    blocks, usage, stop = [], {}, None
    for event in events:
        kind = event["type"]
        assert kind in ("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop", "ping")
        if kind == "message_start":
            usage.update(event["message"]["usage"])
        elif kind == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append({**event["content_block"], "json": ""})
        elif kind == "content_block_delta":
            delta = event["delta"]
            name = {"thinking_delta": "thinking", "signature_delta": "signature", "text_delta": "text", "input_json_delta": "json"}[delta["type"]]
            blocks[event["index"]][name] += delta["partial_json" if name == "json" else name]
        elif kind == "message_delta":
            stop = event["delta"]["stop_reason"]
            usage.update(event["usage"])
    assert events[-1]["type"] == "message_stop"
    for block in blocks:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return blocks, stop, usage


def claude_body(number, messages):
    mark = {"cache_control": {"type": "ephemeral"}}
    return {"model": "claude-any", "max_tokens": 2000, "messages": messages, "metadata": {"user_id": json.dumps({"device_id": "d"})},
            "system": [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={number};"},
                       {"type": "text", "text": "You work in a shell.", **mark}, {"type": "text", "text": "Be brief.", **mark}],
            "tools": [{"name": "Read", "description": "The text of a file.", "input_schema": PARAMETERS},
                      {"name": "Later", "description": "Not yet.", "input_schema": {"type": "object", "properties": {}}, "defer_loading": True},
                      {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
            "thinking": {"type": "adaptive", "display": "updates"}, "output_config": {"effort": "high"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}


@pytest.mark.parametrize("failed", [False, True])
def test_claude_code(demo, failed):
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": BETAS, "x-api-key": "any", "x-app": "cli", "Accept": "application/json"}
    messages = [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>none</system-reminder>"}, {"type": "text", "text": "What is in note.txt?"}]},
                {"role": "system", "content": f"# Environment\nhere {failed}"}]
    with scripted(CALL % ("Read", PATH), FINAL) as server:
        path = "/v1/messages?beta=true"
        counted = server.post("/v1/messages/count_tokens?beta=true", {k: v for k, v in claude_body(1, messages).items() if k != "max_tokens"}, headers=headers)
        asked = claude_body(1, list(messages))
        blocks, stop, usage = read_claude(server.stream(path, asked, headers=headers))
        assert [block["type"] for block in blocks] == ["thinking", "tool_use"] and stop == "tool_use"
        assert blocks[0]["thinking"] == "I look into the file." and blocks[0]["signature"] and blocks[1]["input"] == json.loads(PATH)
        assert counted.json() == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}
        result = {"type": "tool_result", "tool_use_id": blocks[1]["id"], "cache_control": {"type": "ephemeral"}}
        result |= {"content": "no such file", "is_error": True} if failed else {"content": [{"type": "text", "text": FILE}]}
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
        blocks, stop, usage = read_claude(server.stream(path, claude_body(2, messages), headers=headers))
        assert blocks[-1] == {"type": "text", "text": "It says hello."} and stop == "end_turn"
        assert usage["output_tokens"] > 0 and goes_on(demo, path, asked, claude_body(3, messages))
