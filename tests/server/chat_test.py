"""/v1/chat/completions and /v1/completions against the demo model and against scripts of tokens.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/chat_test.py
"""
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import PATIENCE, Server, joined, line, tokens  # noqa: E402

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Gets the weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}}}
OTHER = {"type": "function", "function": {"name": "a-b_9", "parameters": {"type": "object", "properties": {}}}}
SUM = "<|channel|>analysis<|message|>Two and two.<|end|><|start|>assistant<|channel|>final<|message|>2 + 2 = 4.<|return|>"
CALL = ('<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather '
        '<|constrain|>json<|message|>{"location": "Tokyo"}<|call|>')


@pytest.fixture(scope="module")
def demo():
    with Server("--ctx", "4096", "--quiet") as server:
        yield server


def message(reply, choice=0):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][choice]["message"]


# ---------------------------------------------------------------- the demo model


def test_a_fact(demo):
    reply = demo.chat().json()
    choice = reply["choices"][0]
    assert choice["message"]["content"] == "The capital of Japan is Tokyo."
    assert choice["message"]["reasoning"] == choice["message"]["reasoning_content"] != ""
    assert choice["finish_reason"] == "stop" and choice["logprobs"] is None
    assert "tool_calls" not in choice["message"]
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]
    assert reply["object"] == "chat.completion" and reply["model"] == "demo"


def test_a_stream_says_the_same(demo):
    whole = message(demo.chat())
    events = demo.stream_chat(stream_options={"include_usage": True})
    parts = joined(events)
    assert parts["content"] == whole["content"] and parts["reasoning"] == whole["reasoning"]
    assert parts["finish_reason"] == "stop" and parts["roles"] == ["assistant"]
    assert events[-1] == "[DONE]"
    assert all(e["choices"] is not None and e["id"] == events[0]["id"] for e in events[:-1])
    assert [e for e in events[:-1] if not e["choices"]] == [events[-2]]
    assert events[-2]["usage"]["completion_tokens"] > 0
    assert all(e["usage"] is None for e in events[:-2])


def test_without_include_usage_there_is_no_usage(demo):
    assert not any("usage" in e for e in demo.stream_chat()[:-1])


def test_a_tool_loop(demo):
    first = demo.chat("What is the weather in Tokyo?", tools=[WEATHER]).json()["choices"][0]
    assert first["finish_reason"] == "tool_calls" and first["message"]["content"] is None
    call = first["message"]["tool_calls"][0]
    assert call["type"] == "function" and call["function"]["name"] == "get_weather"
    assert call["function"]["arguments"] == '{"location": "Tokyo"}'
    history = [{"role": "user", "content": "What is the weather in Tokyo?"},
               {"role": "assistant", "content": None, "tool_calls": [call]},
               {"role": "tool", "tool_call_id": call["id"], "content": '{"temperature": 21, "sky": "sunny"}'}]
    reply = demo.chat(history, tools=[WEATHER]).json()
    assert "sunny" in reply["choices"][0]["message"]["content"]
    # The client dropped the reasoning; the prompt is the first one and what was generated, so all of it is reused.
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0.75 * reply["usage"]["prompt_tokens"]


def test_a_streamed_call(demo):
    parts = joined(demo.stream_chat("What is the weather in Tokyo?", tools=[WEATHER]))
    assert parts["finish_reason"] == "tool_calls"
    assert [(c["name"], c["arguments"]) for c in parts["tool_calls"]] == [("get_weather", '{"location": "Tokyo"}')]


def test_no_tools_when_none_are_chosen(demo):
    reply = demo.chat("What is the weather in Tokyo?", tools=[WEATHER], tool_choice="none").json()
    assert "tool_calls" not in reply["choices"][0]["message"]
    plain = demo.chat("What is the weather in Tokyo?").json()
    assert reply["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]


def test_a_second_turn_reads_only_what_is_new(demo):
    history = [{"role": "user", "content": "The password of Anna is river."}]
    first = demo.chat(history).json()
    history += [{"role": "assistant", "content": first["choices"][0]["message"]["content"]},
                {"role": "user", "content": "What is the password of Anna?"}]
    second = demo.chat(history).json()
    assert "river" in second["choices"][0]["message"]["content"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"]


def test_a_prompt_is_never_less_than_what_the_cache_had_of_it(demo):
    """The header of a forced call counts as generated, also where the cache of the next request holds it."""
    def used(choice):
        return demo.chat("What is the weather in Oslo?", tools=[WEATHER], tool_choice=choice).json()["usage"]
    first, second = used("required"), used("required")
    assert first["prompt_tokens"] == second["prompt_tokens"] == used("auto")["prompt_tokens"]
    assert second["prompt_tokens_details"]["cached_tokens"] == second["prompt_tokens"]


def test_a_forced_header_stays_within_the_limits(demo):
    forced = {"tools": [WEATHER], "tool_choice": "required"}
    for limit in (1, 5):
        reply = demo.chat("What is the weather in Oslo?", max_tokens=limit, **forced).json()
        assert reply["usage"]["completion_tokens"] == limit and reply["choices"][0]["finish_reason"] == "length"
    with Server("--ctx", str(reply["usage"]["prompt_tokens"] + 5)) as small:
        reply = small.chat("What is the weather in Oslo?", **forced)
        assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded"


def test_several_choices(demo):
    reply = demo.chat("Tell me a story", n=3, temperature=1, seed=7, max_tokens=40).json()
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2]
    again = demo.chat("Tell me a story", n=3, temperature=1, seed=7, max_tokens=40).json()
    assert [c["message"] for c in reply["choices"]] == [c["message"] for c in again["choices"]]
    events = demo.stream_chat("Tell me a story", n=3, temperature=1, seed=7, max_tokens=40)
    for choice in reply["choices"]:
        parts = joined(events, choice["index"])
        assert parts["content"] == choice["message"]["content"]
        assert parts["reasoning"] == choice["message"].get("reasoning", "")
        assert parts["finish_reason"] == choice["finish_reason"]


def test_seeds(demo):
    texts = [demo.post("/v1/completions", {"prompt": "The", "temperature": 2, "seed": seed, "max_tokens": 30}).json()
             ["choices"][0]["text"] for seed in (1, 1, 2, 3, -5)]
    assert texts[0] == texts[1] and len(set(texts)) == 4


def test_logprobs(demo):
    choice = demo.chat(logprobs=True, top_logprobs=3).json()["choices"][0]
    content = choice["logprobs"]["content"]
    assert b"".join(bytes(t["bytes"]) for t in content).decode() == choice["message"]["content"]
    for token in content:
        assert len(token["top_logprobs"]) == 3
        assert token["logprob"] == token["top_logprobs"][0]["logprob"] <= 0
    streamed = [t for e in demo.stream_chat(logprobs=True, top_logprobs=3)[:-1] for c in e["choices"]
                for t in (c["logprobs"] or {}).get("content", [])]
    assert streamed == content


def test_logit_bias_and_penalties(demo):
    first = demo.post("/v1/completions", {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 1}).json()
    assert first["choices"][0]["text"] == " Paris"
    paris = tokens(" Paris")[0]
    biased = demo.post("/v1/completions", {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 1,
                                           "logit_bias": {str(paris): -100}}).json()
    assert biased["choices"][0]["text"] != " Paris"


def test_effort(demo):
    counts = [demo.chat("What is 23 + 45?", reasoning_effort=e).json()["usage"]["completion_tokens_details"]
              ["reasoning_tokens"] for e in ("low", "high", "minimal", "xhigh")]
    assert counts[0] == counts[2] < counts[1] == counts[3]
    assert all(demo.chat(reasoning_effort=e, max_tokens=1).status_code == 200 for e in ("none", "max"))
    bad = demo.chat(reasoning_effort="extreme")
    assert bad.status_code == 400 and bad.json()["error"]["param"] == "reasoning_effort"


def test_names_of_the_reasoning(demo):
    for name, fields in (("both", {"reasoning", "reasoning_content"}), ("reasoning", {"reasoning"}), ("hidden", set()),
                         ("reasoning_content", {"reasoning_content"})):
        said = message(demo.chat(reasoning_format=name))
        assert {k for k in said if k.startswith("reasoning")} == fields
        deltas = [c["delta"] for e in demo.stream_chat(reasoning_format=name)[:-1] for c in e["choices"]]
        assert {k for d in deltas for k in d if k.startswith("reasoning")} == fields
    assert demo.chat(reasoning_format="raw").json()["error"]["param"] == "reasoning_format"


def test_deterministic_alone_and_among_others(demo):
    alone = demo.chat("What is 23 + 45?", reasoning_effort="high", logprobs=True).json()["choices"]
    with ThreadPoolExecutor(17) as pool:
        others = [pool.submit(demo.chat, f"Tell me a story about {i}", temperature=1, max_tokens=60) for i in range(16)]
        among = demo.chat("What is 23 + 45?", reasoning_effort="high", logprobs=True).json()["choices"]
        assert all(o.result().status_code == 200 for o in others)
    assert among == alone


# ---------------------------------------------------------------- raw completions


def test_completion_forms(demo):
    one = demo.post("/v1/completions", {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 2}).json()
    assert one["object"] == "text_completion" and one["choices"][0]["finish_reason"] == "length"
    ids = tokens("The capital of France is")
    for prompt in (ids, [ids], ["The capital of France is"]):
        same = demo.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 2}).json()
        assert same["choices"][0]["text"] == one["choices"][0]["text"]
    two = demo.post("/v1/completions", {"prompt": ["The capital of France is", "The capital of Japan is"],
                                        "temperature": 0, "max_tokens": 6}).json()
    assert [c["text"][:6] for c in two["choices"]] == [" Paris", " Tokyo"]
    events = demo.stream("/v1/completions", {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 2})
    assert "".join(c["text"] for e in events[:-1] for c in e["choices"]) == one["choices"][0]["text"]
    assert events[-1] == "[DONE]"


def test_echo_with_logprobs(demo):
    choice = demo.post("/v1/completions", {"prompt": "The capital of France is Paris", "temperature": 0, "max_tokens": 0,
                                           "echo": True, "logprobs": 1}).json()["choices"][0]
    assert choice["text"] == "The capital of France is Paris"
    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"][0] is None and logprobs["token_logprobs"][-1] > -1
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert [choice["text"][o:].startswith(t) for o, t in zip(logprobs["text_offset"], logprobs["tokens"])].count(False) == 0
    # The same as what generating token by token says.
    made = demo.post("/v1/completions", {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 1,
                                         "logprobs": 1}).json()["choices"][0]["logprobs"]
    assert made["token_logprobs"][0] == logprobs["token_logprobs"][-1]


def test_special_text_is_literal(demo):
    count = demo.post("/tokenize", {"content": "<|end|>"}).json()["count"]
    assert count > 1
    reply = demo.post("/v1/completions", {"prompt": "<|end|>", "max_tokens": 1}).json()
    assert reply["usage"]["prompt_tokens"] == count


# ---------------------------------------------------------------- scripts of tokens


def scripted(script, *arguments):
    return Server("--quiet", *arguments, script=[s if s[:1].isdigit() or s.startswith("logits:") else line(s)
                                                 for s in script])


@pytest.mark.parametrize("step", ["1", "2", "5", "1000"])
def test_any_number_of_tokens_a_step(step):
    with scripted([SUM, SUM, CALL], "--script-step", step) as server:
        whole = message(server.chat())
        assert (whole["reasoning"], whole["content"]) == ("Two and two.", "2 + 2 = 4.")
        parts = joined(server.stream_chat())
        assert (parts["reasoning"], parts["content"]) == ("Two and two.", "2 + 2 = 4.")
        call = joined(server.stream_chat(tools=[WEATHER]))
        assert [(c["name"], c["arguments"]) for c in call["tool_calls"]] == [("get_weather", '{"location": "Tokyo"}')]
        assert call["finish_reason"] == "tool_calls"


DAMAGED = [  # script, reasoning, content, calls, finish
    ("<|channel|>final", "", "", [], "length"),
    ("<|channel|>final Hello there<|return|>", "", "Hello there", [], "stop"),
    ("<|channel|><|message|>Hi<|return|>", "", "Hi", [], "stop"),
    ("I must refuse.<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>", "I must refuse.", "Hi", [], "stop"),
    ("<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b<|return|>", "a", "b", [], "stop"),
    ("<|channel|>commentary to=browser.search<|message|>{}<|call|>", "", "", [], "stop"),
    ("<|channel|>commentary<|message|>pre<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather"
     "<|message|>{}<|call|>", "", "pre", [("get_weather", "{}")], "tool_calls"),
    ('<|channel|>commentary to=functions.get_weather<|message|>{"a":1]}<|call|>', "", None,
     [("get_weather", '{"a":1]}')], "tool_calls"),
    ('<|channel|>final <|constrain|>json<|message|>{"a": 1}<|return|>', "", '{"a": 1}', [], "stop"),
    ("<|channel|>analysis<|message|>only thought<|return|>", "only thought", "", [], "stop"),
    ("", "", "", [], "length"),
]


def test_damaged_output_never_fails_a_request():
    script = [d[0] for d in DAMAGED for _ in range(2)]
    with scripted(script) as server:
        for text, reasoning, content, calls, finish in DAMAGED:
            choice = server.chat(tools=[WEATHER]).json()["choices"][0]
            said = choice["message"]
            assert (said.get("reasoning", ""), said["content"]) == (reasoning, content), text
            assert [(c["function"]["name"], c["function"]["arguments"]) for c in said.get("tool_calls", [])] == calls
            assert choice["finish_reason"] == finish, text
            parts = joined(server.stream_chat(tools=[WEATHER]))
            assert (parts["reasoning"], parts["content"]) == (reasoning, content or ""), text
            assert parts["finish_reason"] == finish


def test_an_answer_goes_out_at_once():
    """
    Connections are resumed at the end of a step, not when the watcher comes by (every 100 ms): then there would be one
    answer a round, however late the client sees it, and four more in no less than 300 ms. So many quick ones show it,
    whenever the machine has the moment for them; where it never has, that they take no more than ten times as long as
    requests that wait for no step. A step takes 2 ms, so that there is a connection to be resumed.
    """
    with Server("--quiet", "--script-pause", "2", script=[line("<|channel|>final<|message|>x<|return|>")]) as server:
        def least(times):
            return min((b - a for a, b in zip(times, times[4:])), default=PATIENCE)

        answers, others, end = [], [], time.time() + PATIENCE
        while least(answers) >= max(0.3, 10 * least(others) if len(others) > 99 else 0):
            assert server.chat().status_code == 200
            answers.append(time.time())
            if len(answers) % 5 == 0:
                others += [time.time() for _ in range(5) if server.client.get("/health").status_code == 200]
            assert answers[-1] < end


def test_interleaved_scripts_do_not_mix():
    texts = [f"<|channel|>final<|message|>answer number {i} and more of it<|return|>" for i in range(12)]
    with scripted(texts) as server:
        with ThreadPoolExecutor(12) as pool:
            contents = list(pool.map(lambda _: message(server.chat())["content"], range(12)))
    assert sorted(contents) == sorted(f"answer number {i} and more of it" for i in range(12))


def test_limit_in_the_reasoning():
    with scripted([SUM]) as server:
        reply = server.chat(max_tokens=4).json()
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] == ""
    assert choice["message"]["reasoning"] and reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    assert reply["usage"]["completion_tokens"] == 4


def test_stop_strings():
    with scripted([SUM] * 6) as server:
        for stop, content in (("= 4", "2 + 2 "), (["nowhere", "2 ="], "2 + "), ("Two", "2 + 2 = 4.")):
            choice = server.chat(stop=stop).json()["choices"][0]
            assert choice["message"]["content"] == content and choice["finish_reason"] == "stop"
            assert choice["message"]["reasoning"] == "Two and two."
            parts = joined(server.stream_chat(stop=stop))
            assert parts["content"] == content and parts["finish_reason"] == "stop"


def test_logprobs_of_a_script_cover_the_final_message():
    with scripted([SUM, SUM]) as server:
        content = server.chat(logprobs=True).json()["choices"][0]["logprobs"]["content"]
        assert b"".join(bytes(t["bytes"]) for t in content) == b"2 + 2 = 4."
        assert all(t["top_logprobs"] == [] for t in content)
        stopped = server.chat(logprobs=True, stop="= 4").json()["choices"][0]
        assert b"".join(bytes(t["bytes"]) for t in stopped["logprobs"]["content"]) == b"2 + 2"  # " =" was cut


def test_not_a_number():
    row = "logits: " + ";".join(f"{i}=9" for i in tokens("<|channel|>final<|message|>Hi")) + "; 5=nan"
    with scripted([row, row]) as server:
        reply = server.chat()
        assert reply.status_code == 500 and reply.json()["error"]["code"] == "non_finite_logits"
        events = server.stream_chat()
        assert events[-1]["error"]["code"] == "non_finite_logits"
        assert server.client.get("/health").status_code == 200


def test_characters_across_tokens():
    heart = "💖"
    script = "<|channel|>final<|message|>" + heart + "<|return|>"
    assert len(tokens(heart)) > 1
    with scripted([script]) as server:
        deltas = [c["delta"]["content"] for e in server.stream_chat()[:-1] for c in e["choices"]
                  if c["delta"].get("content")]
        assert deltas == [heart]


def test_unknown_tool_types_are_skipped():
    with scripted([SUM]) as server:
        assert server.chat(tools=[WEATHER, {"type": "web_search"}]).status_code == 200


# ---------------------------------------------------------------- wrong requests

CHAT, RAW = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
WRONG = [  # path, body, parameter (None: none), status
    (CHAT, {}, "messages", 400),
    (CHAT, {"messages": []}, "messages", 400),
    (CHAT, {"messages": "Hello"}, "messages", 400),
    (CHAT, {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role", 400),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://169.254.169.254"}}]}]},
     "messages[0].content[0].type", 400),
    (CHAT, {"messages": [{"role": "tool", "tool_call_id": "nope", "content": "x"}]}, "messages[0].tool_call_id", 400),
    (CHAT, {**HELLO, "temperature": -1}, "temperature", 400),
    (CHAT, {**HELLO, "temperature": "hot"}, "temperature", 400),
    (CHAT, {**HELLO, "top_p": 1.5}, "top_p", 400),
    (CHAT, {**HELLO, "n": 0}, "n", 400),
    (CHAT, {**HELLO, "n": 1000000}, "n", 400),
    (CHAT, {**HELLO, "max_tokens": 0}, "max_tokens", 400),
    (CHAT, {**HELLO, "max_tokens": -1}, "max_tokens", 400),
    (CHAT, {**HELLO, "max_completion_tokens": 2 ** 63}, "max_completion_tokens", 400),
    (CHAT, {**HELLO, "max_tokens": 1.5}, "max_tokens", 400),
    (CHAT, {**HELLO, "stop": ["a", "b", "c", "d", "e"]}, "stop", 400),
    (CHAT, {**HELLO, "stop": "x" * 257}, "stop", 400),
    (CHAT, {**HELLO, "stop": 7}, "stop", 400),
    (CHAT, {**HELLO, "logprobs": True, "top_logprobs": 10 ** 9}, "top_logprobs", 400),
    (CHAT, {**HELLO, "top_logprobs": 2}, "top_logprobs", 400),
    (CHAT, {**HELLO, "logit_bias": {"201088": 1}}, "logit_bias", 400),
    (CHAT, {**HELLO, "logit_bias": {"x": 1}}, "logit_bias", 400),
    (CHAT, {**HELLO, "logit_bias": {"5": 1000}}, "logit_bias", 400),
    (CHAT, {**HELLO, "seed": "x"}, "seed", 400),
    (CHAT, {**HELLO, "stream": "yes"}, "stream", 400),
    (CHAT, {**HELLO, "stream_options": 3}, "stream_options", 400),
    (CHAT, {**HELLO, "tools": [{"type": "function", "function": {"name": "a<|b"}}]}, "tools[0].function.name", 400),
    (CHAT, {**HELLO, "tools": [WEATHER] * 1025}, "tools", 400),
    (CHAT, {**HELLO, "tools": 5}, "tools", 400),
    (CHAT, {**HELLO, "tools": [WEATHER, {"type": "web_search"}, OTHER, WEATHER]}, "tools[3].function.name", 400),
    (CHAT, {**HELLO, "tools": [WEATHER, {"type": "function", **WEATHER["function"]}]}, "tools[1].name", 400),
    (CHAT, {**HELLO, "tools": [WEATHER, WEATHER], "tool_choice": "none"}, "tools[1].function.name", 400),
    (CHAT, {**HELLO, "tool_choice": "required"}, "tool_choice", 400),
    (CHAT, {**HELLO, "tool_choice": "sometimes"}, "tool_choice", 400),
    (CHAT, {**HELLO, "tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "nope"}}},
     "tool_choice.function.name", 400),
    (CHAT, {**HELLO, "response_format": {"type": "xml"}}, "response_format.type", 400),
    (CHAT, {**HELLO, "response_format": {"type": "json_schema"}}, "response_format.json_schema", 400),
    (CHAT, {**HELLO, "functions": []}, "functions", 400),
    (CHAT, {**HELLO, "parallel_tool_calls": 1}, "parallel_tool_calls", 400),
    (CHAT, {**HELLO, "stream_options": {"include_usage": 1}}, "stream_options.include_usage", 400),
    (CHAT, {**HELLO, "chat_template_kwargs": {"reasoning_effort": 5}}, "chat_template_kwargs.reasoning_effort", 400),
    (CHAT, {**HELLO, "modalities": "text"}, "modalities", 400),
    (CHAT, {**HELLO, "tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}, "tools[0].function.parameters", 400),
    (CHAT, {**HELLO, "tools": [{"type": "function", "function": {"name": "f", "strict": 5}}]}, "tools[0].function.strict", 400),
    *((CHAT, {**HELLO, name: wrong}, name, 400) for name, wrong in (
        ("store", "no"), ("metadata", "x"), ("service_tier", 5), ("verbosity", 5), ("prompt_cache_key", 5))),
    (CHAT, {"messages": [{"role": "user", "content": "word " * 9000}]}, "messages", 400),
    (RAW, {}, "prompt", 400),
    (RAW, {"prompt": ""}, "prompt", 400),
    (RAW, {"prompt": [201088]}, "prompt", 400),
    (RAW, {"prompt": [-1]}, "prompt", 400),
    (RAW, {"prompt": [1.5]}, "prompt", 400),
    (RAW, {"prompt": ["a", 5]}, "prompt", 400),
    (RAW, {"prompt": "a", "suffix": "b"}, "suffix", 400),
    (RAW, {"prompt": "a", "best_of": 3}, "best_of", 400),
    (RAW, {"prompt": "a", "best_of": "x", "logprobs": True}, "best_of", 400),
    (RAW, {"prompt": "a", "logprobs": 99}, "logprobs", 400),
    (RAW, {"prompt": ["a"] * 129}, "prompt", 400),
    ("/tokenize", {}, "content", 400),
    ("/detokenize", {"tokens": [10 ** 9]}, "tokens", 400),
    ("/v1/nothing", {}, None, 404),
    ("/v1/chat/completions/", {}, None, 404),
    ("/chat/completions", {}, None, 404),
]


@pytest.mark.parametrize("path,body,param,status", WRONG, ids=[f"{i}-{w[2]}" for i, w in enumerate(WRONG)])
def test_wrong_requests(demo, path, body, param, status):
    reply = demo.post(path, body)
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["param"] == param and error["message"] and "\n" not in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


def test_context_overflow_has_its_code(demo):
    reply = demo.chat("word " * 9000, stream=True)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded" and "4096" in reply.json()["error"]["message"]


def counted(answer):
    """Tokens of the prompt, and of what followed it, as each API says it."""
    usage = answer.get("response", answer)["usage"]
    if "total_tokens" not in usage:
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]
    read, written = (usage[a if a in usage else b] for a, b in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")))
    assert usage["total_tokens"] == read + written
    return read, written


def answers(server, path, body):
    """What says how many tokens there were: of the whole answer, and of the stream."""
    events = server.stream(path, {**body, "stream_options": {"include_usage": True}})
    return server.post(path, body).json(), [one for one in events if one != "[DONE]" and (one.get("usage") or "response" in one)][-1]


def test_an_answer_ends_with_the_context():
    """Prompt and answer have as many tokens as the context has places, in what is counted as in what is sent."""
    chat, word = {"messages": [{"role": "user", "content": "Hello"}]}, "word " * 1000
    for path, body in ((CHAT, chat), ("/v1/responses", {"input": "Hello"}), ("/v1/messages", {**chat, "max_tokens": 256}),
                       (RAW, {"prompt": "Once", "max_tokens": 256})):
        with Server("--ctx", "256", "--quiet", script=[line(word if path == RAW else "<|channel|>final<|message|>" + word)]) as server:
            assert [sum(counted(one)) for one in answers(server, path, body)] == [256, 256], path
    endless = {str(i): -100 for i in tokens("<|return|><|endoftext|><|call|><|end|>")}
    with Server("--ctx", "256", "--quiet") as server:
        for path, body in ((CHAT, chat), (RAW, {"prompt": "Once", "max_tokens": 256, "logprobs": 0})):
            whole, streamed = answers(server, path, {**body, "temperature": 0, "logit_bias": endless})
            assert sum(counted(whole)) == sum(counted(streamed)) == 256, path
            assert whole["choices"][0]["finish_reason"] == "length"
        assert len(whole["choices"][0]["logprobs"]["tokens"]) == counted(whole)[1]
        one = server.post(RAW, {"prompt": [5] * 255, "max_tokens": 9}).json()
        assert counted(one) == (255, 1)
        assert counted(server.post(RAW, {"prompt": [5] * 256, "max_tokens": 0, "echo": True}).json()) == (256, 0)


def test_null_is_the_default(demo):
    names = ["temperature", "top_p", "n", "seed", "stop", "tools", "tool_choice", "max_tokens", "logprobs", "stream",
             "stream_options", "response_format", "logit_bias", "reasoning_effort", "user"]
    assert demo.post(CHAT, {**HELLO, **{name: None for name in names}, "max_completion_tokens": 3}).status_code == 200


def test_models(demo):
    listed = demo.client.get("/v1/models").json()["data"][0]
    assert listed["max_model_len"] == listed["context_length"] == listed["meta"]["n_ctx"] == 4096
    assert demo.client.get("/v1/models/demo").json() == listed
    missing = demo.client.get("/v1/models/nope")
    assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
    assert demo.chat(model="anything").status_code == 200


def test_tokenize_and_back(demo):
    said = demo.post("/tokenize", {"content": "Hello, wörld 💖"}).json()
    assert said["count"] == len(said["tokens"])
    assert demo.post("/detokenize", {"tokens": said["tokens"]}).json()["content"] == "Hello, wörld 💖"


NASTY = 'a "quote", a \\ and a /, tabs\t\tand lines\r\n\n, \x01\x1f\x7f, é, 😀, \u2028, \u2029, \x85 and </script>'  # read by lines of Unicode


def test_every_stream_says_what_the_whole_answer_says():
    """Tokens are written into streams without a tree of JSON: what they stand for is the same in all four APIs."""
    chat = {"messages": [{"role": "user", "content": "x"}]}
    script = [line(f"<|channel|>analysis<|message|>{NASTY}<|end|><|start|>assistant<|channel|>final<|message|>{NASTY}<|return|>"), line(NASTY + "<|return|>")]
    with Server("--quiet", "--max-choices", "2", script=[script[0]] * 3 + [script[1]]) as server:
        assert server.post(CHAT, {**chat, "n": 3}).json()["error"]["param"] == "n"
        message = joined(server.stream("/v1/chat/completions", chat))
        assert message["content"] == message["reasoning"] == NASTY
        events = server.stream("/v1/responses", {"input": "x", "store": False})
        for kind in ("response.reasoning_text", "response.output_text"):
            deltas = [e for e in events if e["type"] == kind + ".delta"]
            done = next(e for e in events if e["type"] == kind + ".done")
            assert "".join(e["delta"] for e in deltas) == done["text"] == NASTY
            assert {(e["item_id"], e["output_index"], e["content_index"]) for e in deltas} == {(done["item_id"], done["output_index"], 0)}
            assert all(e.get("logprobs", []) == [] and ("logprobs" in e) == (kind == "response.output_text") for e in deltas)
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        events = server.stream("/v1/messages", {**chat, "max_tokens": 1000})
        for number, (kind, key) in enumerate((("thinking_delta", "thinking"), ("text_delta", "text"))):
            deltas = [e for e in events if e["type"] == "content_block_delta" and e["delta"]["type"] == kind]
            assert "".join(e["delta"][key] for e in deltas) == NASTY and {e["index"] for e in deltas} == {number}
        events = server.stream("/v1/completions", {"prompt": "x", "max_tokens": 1000})
        assert "".join(one["text"] for e in events if e != "[DONE]" for one in e["choices"]) == NASTY
