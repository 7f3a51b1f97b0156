"""/v1/responses as openai-python uses it: against the demo model, and against scripted tokens where the demo model
cannot do what is tested.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/responses_test.py
"""
import base64
import contextlib
import json
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Literal

import openai
import pydantic
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import PATIENCE, Server, line, read_event  # noqa: E402

WEATHER = {"type": "function", "name": "get_weather", "description": "The weather in a place.", "strict": False,
           "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}}


@pytest.fixture(scope="module")
def demo():
    with Server("--ctx", "2048") as server:
        yield server


@pytest.fixture
def client(demo):
    return client_of(demo)


def client_of(server, key="any"):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)


def scripted(*texts, **options):
    return Server("--ctx", "4096", *options.pop("arguments", ()), script=[line(text) for text in texts], **options)


def final(text):
    return f"<|channel|>final<|message|>{text}<|return|>"


# ---------------------------------------------------------------- the order of events


def check_events(events):
    """Every rule of the dialect's events; returns the response of the last one."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    types = [event["type"] for event in events]
    assert types[:2] == ["response.created", "response.in_progress"]
    terminal = {"response.completed", "response.incomplete", "response.failed"}
    assert sum(one in terminal for one in types) == 1 and types[-1] in terminal
    for event in events[:2] + events[-1:]:
        response = event["response"]
        assert response["id"] == events[0]["response"]["id"] and response["object"] == "response"
        assert isinstance(response["created_at"], int) and response["model"]
    output, current, text = [], None, ""
    for event in events[2:-1]:
        kind = event["type"]
        if kind in ("response.in_progress", "error"):
            continue
        assert event["output_index"] == len(output)
        if kind == "response.output_item.added":
            assert current is None
            current, text = event["item"], ""
            assert current["status"] == "in_progress"
            opened = closed = 0
            continue
        if kind == "response.output_item.done":
            item = event["item"]
            assert item["id"] == current["id"] and item["type"] == current["type"]
            assert item["status"] in ("completed", "incomplete")
            whole = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
            assert whole == text and opened == closed == (item["type"] != "function_call")
            output.append(item)
            current = None
            continue
        assert event["item_id"] == current["id"]
        if kind == "response.content_part.added":
            assert event["content_index"] == 0 and event["part"]["text"] == ""
            opened += 1
        elif kind == "response.content_part.done":
            assert event["part"]["text"] == text
            closed += 1
        elif kind.endswith(".delta"):
            expected = {"reasoning": "response.reasoning_text.delta", "message": "response.output_text.delta",
                        "function_call": "response.function_call_arguments.delta"}[current["type"]]
            assert kind == expected and isinstance(event["delta"], str)
            assert current["type"] == "function_call" or opened == 1 and closed == 0
            text += event["delta"]
        elif kind == "response.function_call_arguments.done":
            assert event["arguments"] == text and event["name"] == current["name"]
        else:
            assert kind in ("response.reasoning_text.done", "response.output_text.done")
            assert event["text"] == text
    assert current is None
    assert events[-1]["response"]["output"] == output
    return events[-1]["response"]


def stream(server, body):
    return check_events(server.stream("/v1/responses", {"temperature": 0, **body}))


# ---------------------------------------------------------------- the demo model


def test_a_fact(client):
    response = client.responses.create(model="demo", input="What is the capital of France?", temperature=0)
    assert response.output_text == "The capital of France is Paris."
    assert response.status == "completed" and response.id.startswith("resp_")
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert "Paris" in response.output[0].content[0].text
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens


def test_instructions_and_effort_reach_the_prompt(demo, client):
    def count(**fields):
        return client.responses.create(model="demo", input="What is 2 + 3?", temperature=0, max_output_tokens=1,
                                       **fields).usage.input_tokens
    plain = count()
    assert count(instructions="Answer in one word.") > plain
    assert count(reasoning={"effort": "high"}) != count(reasoning={"effort": "medium"}) == plain
    high = client.responses.create(model="demo", input="What is 23 + 45?", temperature=0, reasoning={"effort": "high"})
    assert high.output_text == "23 + 45 = 68." and high.reasoning.effort == "high"


def test_a_stream_through_the_library(client):
    with client.responses.stream(model="demo", input="What is the capital of Japan?", temperature=0) as events:
        kinds = [event.type for event in events]
        response = events.get_final_response()
    assert response.output_text == "The capital of Japan is Tokyo."
    for kind in ("response.created", "response.reasoning_text.delta", "response.reasoning_text.done",
                 "response.output_text.delta", "response.output_text.done", "response.completed"):
        assert kind in kinds


def test_a_stream_says_what_the_whole_answer_says(demo):
    body = {"input": "What is the capital of Italy?"}
    whole = demo.post("/v1/responses", {"temperature": 0, **body}).json()
    streamed = stream(demo, body)
    strip = lambda items: [{k: v for k, v in item.items() if k != "id"} for item in items]  # noqa: E731
    assert strip(streamed["output"]) == strip(whole["output"])
    assert streamed["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_a_loop_of_tools(client):
    """The model asks for the weather, is told, and says it; reasoning travels with the items."""
    items = [{"role": "user", "content": "What is the weather in Tokyo?"}]
    for _ in range(4):
        response = client.responses.create(model="demo", input=items, tools=[WEATHER], temperature=0, store=False)
        items += [item.to_dict() for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            break
        for call in calls:
            assert call.name == "get_weather" and json.loads(call.arguments) == {"location": "Tokyo"}
            assert call.id.startswith("fc_") and call.call_id.startswith("call_") and call.status == "completed"
            items.append({"type": "function_call_output", "call_id": call.call_id,
                          "output": '{"temperature": 21, "sky": "sunny"}'})
    assert "sunny" in response.output_text and "21" in response.output_text
    assert response.usage.input_tokens_details.cached_tokens > 0


def test_a_previous_response_is_gone_on_with(client):
    first = client.responses.create(model="demo", input="The password of Anna is river.", temperature=0)
    second = client.responses.create(model="demo", input="What is the password of Anna?", temperature=0,
                                     previous_response_id=first.id)
    assert "river" in second.output_text
    assert second.previous_response_id == first.id
    third = client.responses.create(model="demo", input="What is the capital of France?", temperature=0,
                                    previous_response_id=second.id)
    assert third.usage.input_tokens > second.usage.input_tokens
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="demo", input="x", previous_response_id=first.id)
    assert error.value.code == "previous_response_not_found" and error.value.param == "previous_response_id"


def test_the_input_of_a_stored_response_is_listed(demo, client):
    first = client.responses.create(model="demo", input="What is the capital of Japan?", temperature=0)
    second = client.responses.create(model="demo", previous_response_id=first.id, temperature=0, input=[
        {"role": "user", "content": [{"type": "input_text", "text": "And of France?"}]}])
    path = f"/v1/responses/{second.id}/input_items"
    latest = list(client.responses.input_items.list(second.id, limit=1))  # walks over all the pages
    oldest = list(client.responses.input_items.list(second.id, order="asc"))
    assert [one.id for one in oldest] == [one.id for one in reversed(latest)] and len({one.id for one in oldest}) == len(oldest)
    assert [one.type for one in oldest] == ["message"] + [one.type for one in first.output] + ["message"]
    assert [one.id for one in oldest[1:-1]] == [one.id for one in first.output]
    assert oldest[0].content[0].text == "What is the capital of Japan?" and oldest[-1].content[0].text == "And of France?"
    page = demo.client.get(path, params={"limit": 2}).json()
    assert page["has_more"] is True and page["last_id"] == page["data"][1]["id"] and page["first_id"] == latest[0].id
    last = demo.client.get(path, params={"after": oldest[0].id}).json()
    assert last == {"object": "list", "first_id": None, "last_id": None, "has_more": False, "data": []}
    for name, value in (("limit", "0"), ("limit", "101"), ("limit", "1x"), ("limit", "99999999999"), ("order", "up"), ("after", "none")):
        wrong = demo.client.get(path, params={name: value})
        assert wrong.status_code == 400 and wrong.json()["error"]["param"] == name
    assert demo.client.get("/v1/responses/resp_none/input_items").status_code == 404
    assert demo.client.get(f"/v1/responses/{second.id}/other").status_code == 404
    assert demo.client.delete(path).status_code == 405


def test_only_what_is_answered_is_allowed(demo):
    """At the items of a response nothing can be deleted, whatever is asked."""
    for method in ("DELETE", "OPTIONS", "POST", "PUT"):
        headers = {"Content-Type": "application/json"}
        reply = demo.client.request(method, "/v1/responses/resp_none/input_items", headers=headers)
        assert reply.status_code == 405 and reply.headers["allow"] == "GET, HEAD", method
    assert demo.client.options("/v1/responses/resp_none").headers["allow"] == "GET, HEAD, DELETE"
    assert demo.client.head("/v1/responses/resp_none/input_items").status_code == 404


def again(server, response_id, **query):
    with server.client.stream("GET", f"/v1/responses/{response_id}", params={"stream": "true", **query}) as reply:
        assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/event-stream")
        return [read_event(text) for text in reply.iter_lines() if text.startswith("data: ")]


@pytest.mark.parametrize("body", [
    {"input": "What is the capital of Japan?"}, {"input": "What is the weather in Tokyo?", "tools": [WEATHER]},
    {"input": "Tell me a story", "max_output_tokens": 30, "top_logprobs": 2,
     "include": ["message.output_text.logprobs", "reasoning.encrypted_content"]}])
def test_the_events_of_a_stored_response_are_told_again(demo, client, body):
    """The same events with the same numbers, all or from one on; of a response that was no stream those it would have had."""
    events = demo.stream("/v1/responses", {"temperature": 0, **body})
    stored = check_events(events)
    assert again(demo, stored["id"]) == events
    for after in range(len(events) + 1):
        assert again(demo, stored["id"], starting_after=after) == events[after + 1:], after
    assert [one.to_dict() for one in client.responses.retrieve(stored["id"], stream=True)] == events
    assert [one.to_dict() for one in client.responses.retrieve(stored["id"], stream=True, starting_after=7)] == events[8:]
    assert demo.client.get(f"/v1/responses/{stored['id']}?stream=false").json() == stored
    whole = demo.post("/v1/responses", {"temperature": 0, **body}).json()
    told = again(demo, whole["id"])
    assert check_events(told) == whole
    assert [one["type"] for one in told] == [one["type"] for one in events]


def test_a_long_response_is_told_again_whole():
    """Also where its events are more than what may lie unread of a stream."""
    with scripted("<|channel|>analysis<|message|>hm<|end|><|start|>assistant" + final("word " * 25000), arguments=("--ctx", "32768")) as server:
        whole = server.post("/v1/responses", {"input": "x", "max_output_tokens": 30000}).json()
        events = again(server, whole["id"])
        assert check_events(events) == whole
        assert sum(len(json.dumps(one)) for one in events) > 4 << 20


def test_events_that_nobody_reads_are_not_made():
    """They are made while they are sent: all of them at once would be 12 MB a client."""
    with scripted(final("a b " * 30000), arguments=("--ctx", "131072")) as server, contextlib.ExitStack() as clients:
        whole = server.post("/v1/responses", {"input": "x", "max_output_tokens": 130000}).json()
        before = server.memory()
        for _ in range(20):
            one = clients.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
            one.sendall(f"GET /v1/responses/{whole['id']}?stream=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert one.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        assert server.memory() - before < 100 << 20
        assert check_events(again(server, whole["id"])) == whole


def test_the_head_of_events_has_no_body(demo, client):
    response = client.responses.create(model="demo", input="What is the capital of Japan?", temperature=0)
    with socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE) as one:
        one.sendall(f"HEAD /v1/responses/{response.id}?stream=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        answer = one.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200") and b"Content-Type: text/event-stream\r\n" in answer
    assert answer.index(b"\r\n\r\n") == len(answer) - 4


def test_a_response_that_was_cut_before_it_had_an_item_is_told_again():
    with scripted(final("x")) as server:
        whole = server.post("/v1/responses", {"input": "x", "max_output_tokens": 2}).json()
        assert whole["status"] == "incomplete" and whole["output"] == []
        assert check_events(again(server, whole["id"])) == whole


def test_that_a_response_had_to_wait_is_told_again():
    """Behind another answer of seven seconds, in which the server says that it has not been forgotten; once more where the machine
    let the first end before the second was there."""
    with scripted(final("word " * 350), final("x"), arguments=("--script-pause", "20", "--parallel", "1")) as server:
        waited, end = 0, time.time() + PATIENCE
        while waited == 0:
            assert time.time() < end
            with server.client.stream("POST", "/v1/responses", json={"input": "x", "stream": True}) as first:
                lines = first.iter_lines()
                while "output_text.delta" not in next(lines):
                    pass
                events = server.stream("/v1/responses", {"input": "x"})
            waited = [one["type"] for one in events].count("response.in_progress") - 1
            assert again(server, events[0]["response"]["id"]) == events


def test_what_is_asked_of_a_stored_response_is_checked(demo, client):
    response = client.responses.create(model="demo", input="What is the capital of Japan?", temperature=0)
    for name, value in (("stream", "maybe"), ("stream", ""), ("starting_after", "-1"), ("starting_after", ""),
                        ("starting_after", "1x"), ("starting_after", "9" * 30)):
        wrong = demo.client.get(f"/v1/responses/{response.id}", params={"stream": "true", name: value})
        assert wrong.status_code == 400 and wrong.json()["error"]["param"] == name, (name, value)
    assert demo.client.get("/v1/responses/resp_none?stream=true").status_code == 404


def test_stored_items_are_referred_to(demo):
    first = demo.post("/v1/responses", {"input": "What is the weather in Tokyo?", "tools": [WEATHER], "tool_choice": "required", "temperature": 0}).json()
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "{}"}
    question = {"role": "user", "content": "What is the weather in Tokyo?"}
    replies = [demo.post("/v1/responses", {"input": [question, *items, result], "tools": [WEATHER], "temperature": 0, "max_output_tokens": 8}).json()
               for items in (first["output"], [{"type": "item_reference", "id": item["id"]} for item in first["output"]])]
    assert replies[0]["usage"]["input_tokens"] == replies[1]["usage"]["input_tokens"]
    listed = demo.client.get(f"/v1/responses/{replies[1]['id']}/input_items?order=asc").json()["data"]
    assert [item["type"] for item in listed] == ["message", *(item["type"] for item in first["output"]), "function_call_output"]


def test_what_is_not_to_be_stored_is_not(client):
    response = client.responses.create(model="demo", input="What is the capital of France?", store=False)
    assert response.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_a_streamed_tool_call_can_be_answered_by_id(demo, client):
    first = stream(demo, {"input": "What is the weather in Tokyo?", "tools": [WEATHER]})
    call = next(item for item in first["output"] if item["type"] == "function_call")
    second = client.responses.create(model="demo", tools=[WEATHER], temperature=0, previous_response_id=first["id"],
                                     input=[{"type": "function_call_output", "call_id": call["call_id"],
                                             "output": '{"temperature": 21, "sky": "sunny"}'}])
    assert "sunny" in second.output_text


def test_the_own_output_as_input_continues_the_prompt(demo):
    """R30: what came out goes back to the very tokens, as far as reasoning of the past is kept."""
    first = demo.post("/v1/responses", {"input": "What is the weather in Tokyo?", "tools": [WEATHER], "temperature": 0}).json()
    call = next(item for item in first["output"] if item["type"] == "function_call")
    items = [{"role": "user", "content": "What is the weather in Tokyo?"}, *first["output"],
             {"type": "function_call_output", "call_id": call["call_id"], "output": "x"}]
    second = demo.post("/v1/responses", {"input": items, "tools": [WEATHER], "temperature": 0}).json()
    known = first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
    assert second["usage"]["input_tokens_details"]["cached_tokens"] >= known - 1
    without = [item for item in items if item.get("type") != "reasoning"]  # R31: it is remembered by the call's id
    third = demo.post("/v1/responses", {"input": without, "tools": [WEATHER], "temperature": 0}).json()
    assert third["usage"]["input_tokens"] == second["usage"]["input_tokens"]


def test_the_limit_makes_it_incomplete(demo, client):
    response = client.responses.create(model="demo", input="What is the capital of France?", temperature=0, max_output_tokens=6)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete" and response.output_text == ""
    streamed = demo.stream("/v1/responses", {"input": "What is the capital of France?", "max_output_tokens": 6, "temperature": 0})
    assert check_events(streamed)["status"] == "incomplete" and streamed[-1]["type"] == "response.incomplete"


def test_logprobs(client):
    response = client.responses.create(model="demo", input="What is the capital of France?", temperature=0,
                                       include=["message.output_text.logprobs"], top_logprobs=3)
    part = response.output[1].content[0]
    assert "".join(one.token for one in part.logprobs) == part.text
    assert all(one.logprob <= 0 and len(one.top_logprobs) == 3 for one in part.logprobs)


def test_sealed_reasoning(demo):
    first = demo.post("/v1/responses", {"input": "What is the weather in Tokyo?", "tools": [WEATHER], "temperature": 0,
                                        "include": ["reasoning.encrypted_content"], "store": False}).json()
    reasoning = first["output"][0]
    text = reasoning["content"][0]["text"]
    assert base64.b64decode(reasoning["encrypted_content"].split(".", 1)[1]).decode() == text
    call = {**first["output"][-1], "call_id": "unknown_to_the_server"}
    output = {"type": "function_call_output", "call_id": "unknown_to_the_server", "output": "x"}

    def count(item):
        items = [{"role": "user", "content": "What is the weather in Tokyo?"}, *item, call, output]
        return demo.post("/v1/responses", {"input": items, "tools": [WEATHER], "max_output_tokens": 1}).json()["usage"]["input_tokens"]
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": reasoning["encrypted_content"]}
    assert count([sealed]) == count([reasoning]) > count([])


# ---------------------------------------------------------------- scripted tokens


def test_a_preamble_two_kinds_of_items_and_a_call():
    script = ("<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|>"
              "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"location\": \"Rom\"}<|call|>")
    with scripted(script, script) as server:
        response = stream(server, {"input": "x", "tools": [WEATHER]})
        assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]
        assert response["output"][1]["content"][0]["text"] == "Let me see."
        assert response["output"][2]["arguments"] == '{"location": "Rom"}'
        whole = server.post("/v1/responses", {"input": "x", "tools": [WEATHER]}).json()
        assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call"]


def test_arguments_that_are_no_json_come_as_they_are():
    script = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"a\":1]}<|call|>"
    with scripted(script) as server:
        response = client_of(server).responses.create(model="m", input="x", tools=[WEATHER])
        assert response.status == "completed" and response.output[0].arguments == '{"a":1]}'


def test_markers_and_bad_utf8_never_show():
    with Server("--ctx", "4096", script=[line("<|channel|>final<|message|>a<|channel|>final<|message|>b<|return|>")]) as server:
        response = stream(server, {"input": "x"})
        assert "<|" not in json.dumps(response["output"])


def test_several_tokens_a_step():
    text = "<|channel|>analysis<|message|>think well<|end|><|start|>assistant" + final("a long answer, of many words.")
    answers = []
    for step in ("1", "2", "5", "1000"):
        with scripted(text, arguments=("--script-step", step)) as server:
            answers.append([item["content"][0]["text"] for item in stream(server, {"input": "x"})["output"]])
    assert answers == [["think well", "a long answer, of many words."]] * 4


def test_a_stream_that_is_cut_says_so_once():
    """The server stops while the answer runs: one error, one response.failed, nothing after it."""
    endless = "<|channel|>final<|message|>" + "word " * 60000
    with scripted(endless, arguments=("--ctx", "131072", "--stop-seconds", "0", "--script-pause", "2")) as server:
        events = []
        with server.client.stream("POST", "/v1/responses", json={"input": "x", "stream": True}) as response:
            for text in response.iter_lines():
                if text.startswith("data: "):
                    events.append(read_event(text))
                    if len(events) == 50:
                        server.process.send_signal(signal.SIGTERM)
        assert [event["type"] for event in events[-3:]] == ["response.output_item.done", "error", "response.failed"]
        assert events[-3]["item"]["status"] == "incomplete" and events[-3]["item"]["content"][0]["text"].startswith("word word")
        assert events[-1]["response"]["output"] == [events[-3]["item"]]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert sum(event["type"] in ("response.failed", "response.completed", "response.incomplete") for event in events) == 1
        assert events[-1]["response"]["status"] == "failed" and events[-1]["response"]["error"]["message"]
        assert events[-1]["response"]["incomplete_details"] is None  # no limit of tokens was reached


def test_who_waits_gets_events_not_comments():
    """One answer runs, the next request waits: it hears response.in_progress at intervals below 15 s."""
    endless = "<|channel|>final<|message|>" + "word " * 60000  # 10 ms each: longer than the wait on any machine
    with scripted(endless, arguments=("--ctx", "131072", "--parallel", "1", "--stop-seconds", "0", "--script-pause", "10")) as server:
        first = threading.Thread(target=lambda: server.post("/v1/responses", {"input": "x"}))
        first.start()
        while server.metric("running") == 0:
            time.sleep(0.01)
        events, began = [], time.monotonic()
        with server.client.stream("POST", "/v1/responses", json={"input": "y", "stream": True}) as response:
            for text in response.iter_lines():
                if text.startswith("data: "):
                    events.append((read_event(text), time.monotonic() - began))
                    if len(events) == 3:
                        break
        server.process.send_signal(signal.SIGTERM)
        first.join()
    assert [event["type"] for event, _ in events] == ["response.created"] + ["response.in_progress"] * 2
    assert 1 < events[2][1] < PATIENCE  # 5 s, on a machine that has time
    assert [event["sequence_number"] for event, _ in events] == [0, 1, 2]


def test_interleaved_streams_do_not_mix():
    texts = [final(f"answer number {i} " + chr(97 + i) * 20) for i in range(6)]
    with scripted(*texts) as server:
        results = [None] * len(texts)

        def run(i):
            results[i] = stream(server, {"input": "x"})
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(texts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        said = sorted(result["output"][0]["content"][0]["text"] for result in results)
        assert said == [f"answer number {i} " + chr(97 + i) * 20 for i in range(6)]


def test_unknown_tools_are_skipped():
    with scripted(final("ok")) as server:
        response = server.post("/v1/responses", {"input": "x", "tools": [
            WEATHER, {"type": "web_search"}, {"type": "local_shell"}, {"type": "custom", "name": "apply_patch"},
            {"type": "namespace", "name": "n", "tools": []}]})
        assert response.status_code == 200 and response.json()["output"][0]["content"][0]["text"] == "ok"


def test_stored_responses_belong_to_their_key(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alpha-key\nbeta-key\n")
    with Server("--ctx", "4096", "--api-key-file", str(keys), script=[line(final("one")), line(final("two"))],
                env={"GOSSAMER_API_KEY": ""}) as server:
        alpha, beta = client_of(server, "alpha-key"), client_of(server, "beta-key")
        response = alpha.responses.create(model="m", input="secret")
        assert alpha.responses.retrieve(response.id).output_text == "one"
        with pytest.raises(openai.NotFoundError):
            beta.responses.retrieve(response.id)
        assert [item.content[0].text for item in alpha.responses.input_items.list(response.id)] == ["secret"]
        with pytest.raises(openai.NotFoundError):
            beta.responses.input_items.list(response.id)
        with pytest.raises(openai.NotFoundError):
            beta.responses.delete(response.id)
        with pytest.raises(openai.BadRequestError):
            beta.responses.create(model="m", input="x", previous_response_id=response.id)
        with pytest.raises(openai.AuthenticationError):
            client_of(server, "gamma").responses.create(model="m", input="x")


# ---------------------------------------------------------------- formats


class Place(pydantic.BaseModel):
    city: str
    sunny: bool
    kind: Literal["village", "town", "capital"]


def test_an_answer_is_parsed(demo, client):
    """The demo model has never seen JSON as an answer: what comes is valid all the same, and the reasoning is free."""
    response = client.responses.parse(model="demo", input="What is the capital of France?", temperature=0, text_format=Place,
                                      max_output_tokens=400)
    assert isinstance(response.output_parsed, Place) and response.output[0].type == "reasoning"
    assert "Paris" in response.output[0].content[0].text
    body = {"input": "What is the capital of France?", "text": {"format": {
        "type": "json_schema", "name": "place", "strict": True, "schema": Place.model_json_schema()}}}
    drawn = [stream(demo, {**body, "temperature": 1, "max_output_tokens": 400}) for _ in range(3)]
    assert all(response["status"] in ("completed", "incomplete") for response in drawn)
    whole = [response["output"][-1]["content"][0]["text"] for response in drawn if response["status"] == "completed"]
    assert whole and all(Place.model_validate_json(text) for text in whole)
    plain = demo.post("/v1/responses", {"input": "Hello", "text": {"format": {"type": "json_object"}}, "max_output_tokens": 400}).json()
    text = plain["output"][-1]["content"][0]["text"]
    assert text.lstrip().startswith("{") and (plain["status"] == "incomplete" or isinstance(json.loads(text), dict))


def test_a_call_can_be_required_or_named(client):
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        response = client.responses.create(model="demo", input="What is the capital of France?", tools=[{**WEATHER, "strict": True, "parameters": {
            **WEATHER["parameters"], "additionalProperties": False}}], tool_choice=choice, temperature=0, max_output_tokens=400)
        call = response.output[-1]
        assert call.type == "function_call" and call.name == "get_weather"
        assert response.status == "incomplete" or set(json.loads(call.arguments)) == {"location"}


def test_a_schema_that_cannot_be_kept_is_refused(demo):
    for schema in ({"type": "strange"}, {"$ref": "#/nowhere"}, {"type": "array", "uniqueItems": True}):
        response = demo.post("/v1/responses", {"input": "x", "text": {"format": {
            "type": "json_schema", "name": "n", "strict": True, "schema": schema}}})
        assert response.status_code == 400 and response.json()["error"]["param"] == "text.format.schema"


# ---------------------------------------------------------------- wrong requests

WRONG = [
    ({}, "input"), ({"input": 3}, "input"), ({"input": []}, "input"),
    *(({"input": [{"role": role, **content}]}, "input[0].content") for role in ("user", "assistant") for content in ({}, {"content": None})),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"), ({"input": [{"type": "item_reference"}]}, "input[0].id"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://169.254.169.254/"}]}]},
     "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": "a"}, {"type": "reasoning"}, {"role": "user", "content": [3]}]}, "input[2].content[0]"),
    ({"input": [{"type": "function_call_output", "call_id": "never", "output": "x"}]}, "input[0].call_id"),
    ({"input": [{"type": "reasoning", "encrypted_content": 5}]}, "input[0].encrypted_content"),
    ({"input": "x", "reasoning": {"summary": 5}}, "reasoning.summary"), ({"input": "x", "text": {"verbosity": 5}}, "text.verbosity"),
    ({"input": "x", "max_tool_calls": "x"}, "max_tool_calls"), ({"input": "x", "service_tier": 5}, "service_tier"),
    ({"input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": {}, "strict": 1}}}, "text.format.strict"),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"), ({"input": "x", "max_output_tokens": -1}, "max_output_tokens"),
    ({"input": "x", "temperature": 3}, "temperature"), ({"input": "x", "reasoning": {"effort": "extreme"}}, "reasoning.effort"),
    ({"input": "x", "tools": [{"type": "function", "name": "a b"}]}, None), ({"input": "x", "tool_choice": "maybe"}, "tool_choice"),
    ({"input": "x", "tools": [WEATHER, {"type": "web_search"}, WEATHER]}, "tools[2].name"),
    ({"input": "x", "tool_choice": {"type": "function", "name": "nope"}}, "tool_choice.name"),
    ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type"), ({"input": "x", "background": True}, "background"),
    ({"input": "x", "top_logprobs": 21}, "top_logprobs"), ({"input": "x", "store": "yes"}, "store"),
    ({"input": "x", "stream": 1}, "stream"), ({"input": "x", "metadata": 3}, "metadata"), ({"input": "x", "truncation": 3}, "truncation"),
]


@pytest.mark.parametrize("body,param", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_requests_are_refused(demo, body, param):
    response = demo.post("/v1/responses", body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and "\n" not in error["message"]
    assert param is None or error["param"] == param


def test_a_prompt_that_is_too_long(demo, client):
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="demo", input="word " * 3000, stream=True)
    assert error.value.code == "context_length_exceeded" and "2048" in error.value.message


# ---------------------------------------------------------------- numbers


def test_numbers_read_back_equal():
    """What is told back is what was sent, to the bit; and no more digits than that takes."""
    numbers = [0.1, 1 / 3, 0.1 + 0.2, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, -0.0, 9007199254740993, 123456789.123456789]
    parameters = {"type": "object", "properties": {"a": {"enum": numbers}}, "examples": numbers}
    with scripted(final("x")) as server:
        reply = server.post("/v1/responses", {"input": "x", "temperature": 0.7, "metadata": {"a": "b"},
                                              "tools": [{"type": "function", "name": "f", "parameters": parameters}]})
        assert reply.status_code == 200, reply.text
        assert reply.json()["tools"][0]["parameters"] == parameters
        assert str(reply.json()["tools"][0]["parameters"]["examples"]) == str(numbers)
        assert "0.30000000000000004" in reply.text and '"enum":[0.1,' in reply.text
        stored = server.client.get("/v1/responses/" + reply.json()["id"])
        assert stored.json()["tools"][0]["parameters"] == parameters
