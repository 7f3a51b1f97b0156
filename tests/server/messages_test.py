"""/v1/messages as anthropic's library uses it: against the demo model, and against scripted tokens where the demo model
cannot do what is tested.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/messages_test.py
"""
import json
import signal
import sys
from pathlib import Path

import anthropic
import pydantic
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import Server, line, read_event  # noqa: E402

WEATHER = {"name": "get_weather", "description": "The weather in a place.",
           "input_schema": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}}
CALL = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>%s<|call|>"


@pytest.fixture(scope="module")
def demo():
    with Server("--ctx", "2048") as server:
        yield server


@pytest.fixture
def client(demo):
    return client_of(demo)


def client_of(server, **options):
    return anthropic.Anthropic(**({"base_url": server.url, "api_key": "any", "max_retries": 0} | options))


def scripted(*texts):
    return Server("--ctx", "4096", script=[line(text) for text in texts])


def ask(text):
    return [{"role": "user", "content": text}]


def check_events(events):
    """Every rule of the dialect's events; returns the message as its blocks add up."""
    events = [event for event in events if event["type"] != "ping"]
    types = [event["type"] for event in events]
    assert types[0] == "message_start" and types[-2:] == ["message_delta", "message_stop"]
    message = events[0]["message"]
    assert message["content"] == [] and message["stop_reason"] is None and message["usage"]["input_tokens"] > 0
    blocks, open_block = [], None
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert open_block is None and event["index"] == len(blocks)
            open_block = dict(event["content_block"])
            if open_block["type"] == "tool_use":
                assert open_block["input"] == {}
                open_block["input"] = ""
        elif event["type"] == "content_block_delta":
            assert event["index"] == len(blocks)
            delta = event["delta"]
            key = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature",
                   "input_json_delta": "partial_json"}[delta["type"]]
            open_block["input" if key == "partial_json" else key] += delta[key]
        else:
            assert event["type"] == "content_block_stop" and event["index"] == len(blocks)
            if open_block["type"] == "tool_use":
                open_block["input"] = json.loads(open_block["input"])
            blocks.append(open_block)
            open_block = None
    assert open_block is None
    return {**message, "content": blocks, **events[-2]["delta"], "usage": events[-2]["usage"]}


# ---------------------------------------------------------------- the demo model


def test_a_fact(client):
    message = client.messages.create(model="claude-any", max_tokens=200, messages=ask("What is the capital of France?"), extra_body={"temperature": 0})
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[1].text == "The capital of France is Paris."
    assert message.content[0].signature and message.stop_reason == "end_turn" and message.stop_sequence is None
    assert message.model == "claude-any" and message.id.startswith("msg_")
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 90


def test_a_stream_through_the_library(client):
    with client.messages.stream(model="m", max_tokens=200, messages=ask("What is the capital of Japan?"), extra_body={"temperature": 0}) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == "The capital of Japan is Tokyo."
    assert message.content[0].type == "thinking" and "Tokyo" in message.content[0].thinking
    assert message.usage.output_tokens > 10


def test_a_stream_says_what_the_whole_answer_says(demo):
    body = {"model": "m", "max_tokens": 200, "messages": ask("What is the capital of Italy?"), "temperature": 0}
    whole = demo.post("/v1/messages", body).json()
    streamed = check_events(demo.stream("/v1/messages", body))
    for block in whole["content"] + streamed["content"]:
        block.pop("signature", None)
    assert streamed["content"] == whole["content"] and streamed["stop_reason"] == whole["stop_reason"] == "end_turn"


@pytest.mark.parametrize("streaming", [False, True])
def test_a_loop_of_tools(client, streaming):
    messages = ask("What is the weather in Tokyo?")
    for _ in range(4):
        body = dict(model="m", max_tokens=300, messages=messages, tools=[WEATHER], extra_body={"temperature": 0})
        if streaming:
            with client.messages.stream(**body) as stream:
                message = stream.get_final_message()
        else:
            message = client.messages.create(**body)
        messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
        if message.stop_reason != "tool_use":
            break
        uses = [block for block in message.content if block.type == "tool_use"]
        assert uses[0].name == "get_weather" and uses[0].input == {"location": "Tokyo"} and uses[0].id.startswith("toolu_")
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": '{"temperature": 21, "sky": "sunny"}'}]}
            for use in uses]})
    text = message.content[-1].text
    assert "sunny" in text and "21" in text
    assert message.usage.cache_read_input_tokens > 0


def test_what_is_dropped_from_a_loop_is_remembered(demo):
    """A client that sends no thinking back gets the same prompt, found by the id of the call."""
    body = {"model": "m", "max_tokens": 300, "messages": ask("What is the weather in Tokyo?"), "tools": [WEATHER], "temperature": 0}
    first = demo.post("/v1/messages", body).json()
    use = first["content"][-1]
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "x"}]}

    def count(content):
        return demo.post("/v1/messages/count_tokens", {**body, "messages": body["messages"] + [
            {"role": "assistant", "content": content}, result]}).json()["input_tokens"]
    assert len(first["content"]) == 2
    assert count([use]) == count(first["content"])


def test_the_limit(client):
    message = client.messages.create(model="m", max_tokens=6, messages=ask("What is the capital of France?"), extra_body={"temperature": 0})
    assert message.stop_reason == "max_tokens" and [block.type for block in message.content] == ["thinking"]


def test_a_stop_sequence(demo, client):
    message = client.messages.create(model="m", max_tokens=200, messages=ask("What is the capital of France?"), extra_body={"temperature": 0},
                                     stop_sequences=["Paris", "nothing"])
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == "Paris"
    assert message.content[1].text == "The capital of France is "
    streamed = check_events(demo.stream("/v1/messages", {"model": "m", "max_tokens": 200, "temperature": 0, "stop_sequences": ["Paris"],
                                                         "messages": ask("What is the capital of France?")}))
    assert streamed["stop_sequence"] == "Paris" and streamed["content"][1]["text"] == "The capital of France is "


def test_counting(demo, client):
    count = client.messages.count_tokens(model="m", messages=ask("What is the capital of France?"))
    message = client.messages.create(model="m", max_tokens=1, messages=ask("What is the capital of France?"))
    assert count.input_tokens == message.usage.input_tokens + message.usage.cache_read_input_tokens
    with_tools = client.messages.count_tokens(model="m", messages=ask("x"), tools=[WEATHER], system="Be brief.")
    assert with_tools.input_tokens > count.input_tokens
    for more in ({"thinking": {"type": "enabled", "budget_tokens": 20000}}, {"thinking": {"type": "disabled"}}, {"tool_choice": {"type": "none"}},
                 {"tool_choice": {"type": "any"}}, {"output_config": {"effort": "low"}}):
        body = {"model": "m", "messages": [*ask("x"), {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "a thought", "signature": "s"}, {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"location": "Rom"}}]}, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun"}]}], "tools": [WEATHER], "system": "Be brief.", **more}
        used = demo.post("/v1/messages", {**body, "max_tokens": 1}).json()["usage"]
        counted = demo.post("/v1/messages/count_tokens", body).json()
        assert counted == {"input_tokens": used["input_tokens"] + used["cache_read_input_tokens"]}
    assert client.messages.count_tokens(model="m", messages=ask("word " * 5000)).input_tokens > 5000


def test_the_changing_block_does_not_disable_the_cache(client):
    def cached(number):
        return client.messages.create(model="m", max_tokens=1, messages=ask("What is the capital of Spain?"), system=[
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={number};"},
            {"type": "text", "text": "You are a careful assistant.", "cache_control": {"type": "ephemeral"}}]).usage
    first, second = cached(1), cached(2)
    assert second.input_tokens == 1 and second.cache_read_input_tokens == first.input_tokens + first.cache_read_input_tokens - 1


def test_thinking_can_be_switched_off(demo, client):
    message = client.messages.create(model="m", max_tokens=200, messages=ask("What is the capital of France?"), extra_body={"temperature": 0},
                                     thinking={"type": "disabled"})
    assert [block.type for block in message.content] == ["text"]
    streamed = check_events(demo.stream("/v1/messages", {"model": "m", "max_tokens": 200, "temperature": 0, "thinking": {"type": "disabled"},
                                                         "messages": ask("What is the capital of France?")}))
    assert [block["type"] for block in streamed["content"]] == ["text"]


def test_beta_queries_and_both_kinds_of_keys():
    with Server("--ctx", "2048", key="a key that is long") as server:
        for options in ({"api_key": "a key that is long"}, {"api_key": None, "auth_token": "a key that is long"}):
            message = client_of(server, **options).beta.messages.create(
                model="m", max_tokens=3, messages=ask("hi"), betas=["interleaved-thinking-2025-05-14"])
            assert message.type == "message"
        with pytest.raises(anthropic.AuthenticationError) as error:
            client_of(server, api_key="wrong").messages.create(model="m", max_tokens=3, messages=ask("hi"))
        assert error.value.body["type"] == "error" and error.value.body["error"]["type"] == "authentication_error"


# ---------------------------------------------------------------- scripted tokens


@pytest.mark.parametrize("arguments,expected", [
    ('{"location": "Rom"}', {"location": "Rom"}), ("", {}), ('{"a":1]}', {"INVALID_JSON": '{"a":1]}'}),
    ("[1]", {"INVALID_JSON": "[1]"}), ('{"x": 35.68948712345678}', {"x": 35.68948712345678}), ('{"n": 36893488147419103232}', {"n": 2 ** 65}), ('{"a": "\\u20ac <b>"}', {"a": "\u20ac <b>"})])
def test_arguments_never_break_a_client(arguments, expected):
    with scripted(CALL % arguments, CALL % arguments, CALL % arguments) as server:
        body = {"model": "m", "max_tokens": 300, "messages": ask("x"), "tools": [WEATHER]}
        whole = server.post("/v1/messages", body).json()
        assert whole["content"][0]["input"] == expected and whole["stop_reason"] == "tool_use"
        assert check_events(server.stream("/v1/messages", body))["content"][0]["input"] == expected
        with client_of(server).messages.stream(**body) as stream:
            assert stream.get_final_message().content[0].input == expected


def test_a_preamble_before_a_call():
    text = ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
            + CALL % "{}")
    with scripted(text) as server:
        message = check_events(server.stream("/v1/messages", {"model": "m", "max_tokens": 300, "messages": ask("x"), "tools": [WEATHER]}))
        assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
        assert message["content"][1]["text"] == "I look." and message["stop_reason"] == "tool_use"


def test_an_empty_turn():
    with scripted("<|return|>", "<|return|>") as server:
        message = client_of(server).messages.create(model="m", max_tokens=300, messages=ask("x"))
        assert message.content == [] and message.stop_reason == "end_turn"
        assert check_events(server.stream("/v1/messages", {"model": "m", "max_tokens": 300, "messages": ask("x")}))["content"] == []


def test_a_stream_that_is_cut_ends_in_an_error():
    with Server("--ctx", "131072", "--stop-seconds", "0", "--script-pause", "2",
                script=[line("<|channel|>final<|message|>" + "word " * 60000)]) as server:
        events = []
        with server.client.stream("POST", "/v1/messages", json={"max_tokens": 100000, "messages": ask("x"), "stream": True}) as response:
            for text in response.iter_lines():
                if text.startswith("data: "):
                    events.append(read_event(text))
                    if len(events) == 50:
                        server.process.send_signal(signal.SIGTERM)
        assert events[-1]["type"] == "error" and events[-1]["error"]["type"] == "overloaded_error"
        assert sum(event["type"] in ("error", "message_stop") for event in events) == 1


# ---------------------------------------------------------------- formats


class Place(pydantic.BaseModel):
    city: str
    sunny: bool


def test_an_answer_is_parsed(client):
    """The demo model has never seen JSON as an answer: what comes is valid all the same."""
    message = client.messages.parse(model="m", max_tokens=400, messages=ask("What is the capital of France?"), output_format=Place,
                                    extra_body={"temperature": 0})
    assert isinstance(message.parsed_output, Place) and message.content[0].type == "thinking"


def test_a_tool_can_be_required(client):
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        message = client.messages.create(model="m", max_tokens=400, messages=ask("What is the capital of France?"), tools=[WEATHER],
                                         tool_choice=choice, extra_body={"temperature": 0})
        assert message.content[-1].type == "tool_use" and message.content[-1].name == "get_weather"


def test_a_required_tool_asked_for_twice_has_no_negative_input(demo):
    body = {"model": "m", "messages": ask("What is the weather in Oslo?"), "tools": [WEATHER], "tool_choice": {"type": "any"}}
    counted = demo.post("/v1/messages/count_tokens", body).json()["input_tokens"]
    for _ in range(2):
        used = demo.post("/v1/messages", {**body, "max_tokens": 50, "temperature": 0}).json()["usage"]
        assert used["input_tokens"] >= 0 and used["input_tokens"] + used["cache_read_input_tokens"] == counted


# ---------------------------------------------------------------- wrong requests

IMAGE = {"type": "image", "source": {"type": "url", "url": "http://169.254.169.254/"}}
WRONG = [  # what the message names, then the body
    ("messages", {"max_tokens": 5}), ("messages", {"max_tokens": 5, "messages": []}), ("max_tokens", {"messages": ask("x")}),
    *(("max_tokens", {"max_tokens": n, "messages": ask("x")}) for n in (0, -1, "5")),
    ("messages[0].role", {"max_tokens": 5, "messages": [{"role": "robot", "content": "x"}]}),
    ("messages[0].content[0].type", {"max_tokens": 5, "messages": [{"role": "user", "content": [IMAGE]}]}),
    ("messages[0].content[0].tool_use_id",
     {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_never", "content": "x"}]}]}),
    *((name, {"max_tokens": 5, "messages": ask("x"), **body}) for name, body in (
        ("tools[0].name", {"tools": [{"name": "a b", "input_schema": {}}]}), ("system[0]", {"system": [5]}),
        ("tools[2].name", {"tools": [WEATHER, {"name": "f", "input_schema": {}}, WEATHER]}),
        ("tools[0].input_schema", {"tools": [{"name": "f", "strict": True, "input_schema": {"type": "foo"}}]}),
        ("tool_choice.name", {"tool_choice": {"type": "tool", "name": "nope"}}), ("tool_choice", {"tool_choice": {"type": "any"}}),
        ("tool_choice.disable_parallel_tool_use", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": 5}}),
        ("thinking.type", {"thinking": {"type": "x"}}), ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": "x"}}),
        ("output_config.effort", {"output_config": {"effort": "x"}}), ("metadata", {"metadata": 5}),
        ("output_config.format.schema", {"output_config": {"format": {"type": "json_schema", "schema": {"type": "foo"}}}}),
        ("stop_sequences", {"stop_sequences": ["a"] * 5}), ("temperature", {"temperature": -1}))),
    (None, {"max_tokens": 5, "messages": ask("word " * 3000)}),
]


@pytest.mark.parametrize("name,body", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_requests_are_refused(demo, name, body):
    response = demo.post("/v1/messages", {"model": "m", **body})
    assert response.status_code == 400
    assert response.json()["type"] == "error" and response.json()["error"]["type"] == "invalid_request_error"
    message = response.json()["error"]["message"]
    assert "\n" not in message and (name is None or message.startswith(name + ": "))


def test_errors_are_in_the_dialect(demo):
    response = demo.client.post("/v1/messages", content=b"{", headers={"Content-Type": "application/json"})
    assert response.status_code == 400 and response.json()["type"] == "error"
    assert demo.client.get("/v1/messages").status_code == 405
