"""Structured output through the API: formats, strict tools, tool choices.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/format_test.py
"""
import json
import shutil
import sys
from pathlib import Path

import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import MODEL, Server, joined, line, tokens  # noqa: E402

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20},
                                         "population": {"type": "integer", "minimum": 0, "maximum": 99999999},
                                         "kind": {"enum": ["town", "city"]}},
        "required": ["city", "population", "kind"], "additionalProperties": False}


def tool(name, parameters=None, strict=None):
    function = {"name": name, "description": "Gets the weather", "parameters": parameters or {"type": "object", "properties": {"location": {"type": "string", "maxLength": 30}},
                                                           "required": ["location"], "additionalProperties": False}}
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function}


def schema_format(schema, strict=True):
    return {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": strict}}


@pytest.fixture(scope="module")
def demo():
    with Server("--ctx", "4096", "--quiet") as server:
        yield server


def test_a_schema_beside_reasoning(demo):
    for temperature, seed in ((0, 0), (1.5, 1), (2, 2), (2, 3)):  # which, on another processor, draw something else
        choice = demo.chat("Tell me about Tokyo", response_format=schema_format(CITY), temperature=temperature, seed=seed,
                           reasoning_budget=300, max_tokens=600).json()["choices"][0]
        assert choice["finish_reason"] == "stop", choice
        jsonschema.validate(json.loads(choice["message"]["content"]), CITY)
    assert demo.chat("What is the capital of Japan?", response_format=schema_format(CITY), max_tokens=400).json()["choices"][0]["message"]["reasoning"]


def test_a_stream_with_a_schema(demo):
    parts = joined(demo.stream_chat("Tell me about Tokyo", response_format=schema_format(CITY), max_tokens=600))
    jsonschema.validate(json.loads(parts["content"]), CITY)
    assert "<|" not in parts["content"] + parts["reasoning"]


def test_any_object(demo):
    choice = demo.chat("Tell me about Tokyo", response_format={"type": "json_object"}, max_tokens=1500).json()["choices"][0]
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)
    assert choice["message"]["content"].lstrip().startswith("{")


@pytest.mark.parametrize("stream", [False, True])
def test_raw_text_is_held_to_a_format_from_its_first_token(demo, stream):
    def texts(body):
        chunks = demo.stream("/v1/completions", body)[:-1] if stream else [demo.post("/v1/completions", body).json()]
        found = {}
        for choice in (choice for chunk in chunks for choice in chunk["choices"]):
            found[choice["index"]] = found.get(choice["index"], "") + choice["text"]
            assert choice["finish_reason"] in (None, "stop")
        return [found[index] for index in sorted(found)]

    prompts = ["Tokyo is a city. As JSON: ", "Once"]
    body = {"prompt": prompts, "max_tokens": 800, "response_format": schema_format(CITY)}
    for more in ({"temperature": 0}, {"temperature": 1.5, "seed": 1, "n": 2}, {"temperature": 2, "seed": 2, "logprobs": 1}):
        found = texts({**body, **more})
        assert len(found) == 2 * more.get("n", 1)
        for text in found:
            jsonschema.validate(json.loads(text), CITY)
    one = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    for prompt, text in zip(prompts, texts({**body, "response_format": schema_format(one), "echo": True})):
        assert text.startswith(prompt) and json.loads(text[len(prompt):]) == {"a": 1}


def test_raw_text_as_any_object(demo):
    for seed in range(3):
        choice = demo.post("/v1/completions", {"prompt": "Tokyo", "response_format": {"type": "json_object"}, "max_tokens": 1500,
                                               "seed": seed}).json()["choices"][0]
        assert choice["text"].lstrip().startswith("{")
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["text"]), dict)
    free = demo.post("/v1/completions", {"prompt": "Tokyo", "response_format": {"type": "text"}, "temperature": 0}).json()["choices"]
    assert free == demo.post("/v1/completions", {"prompt": "Tokyo", "temperature": 0}).json()["choices"]


def test_raw_text_ends_where_its_format_does(tmp_path):
    """Also where the model's files say nothing of the tokens that end a text, as the original/ folder's do."""
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    (model / "generation_config.json").unlink()
    config = json.loads((model / "config.json").read_text())
    del config["eos_token_id"]
    (model / "config.json").write_text(json.dumps(config))
    one = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    with Server("--quiet", "--ctx", "512", model=str(model)) as server:
        choice = server.post("/v1/completions", {"prompt": "x", "response_format": schema_format(one), "max_tokens": 100}).json()["choices"][0]
        assert json.loads(choice["text"]) == {"a": 1} and choice["finish_reason"] == "stop"


def test_formats_of_raw_text_that_cannot_be_honoured(demo):
    odd = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)b"}}}
    for wrong, param in (({"type": "xml"}, "response_format.type"), (5, "response_format"),
                         ({"type": "json_schema"}, "response_format.json_schema"),
                         (schema_format({"type": "strong"}), "response_format.json_schema.schema"),
                         (schema_format(odd), "response_format.json_schema.schema")):
        reply = demo.post("/v1/completions", {"prompt": "x", "response_format": wrong})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == param, reply.text
    body = {"prompt": "x", "response_format": schema_format(odd, strict=False), "max_tokens": 2}
    reply = demo.post("/v1/completions", body)
    assert "pattern is not supported" in reply.json()["warnings"][0] and reply.headers["x-gossamer-warning"]
    events = demo.stream("/v1/completions", body)[:-1]
    assert [number for number, event in enumerate(events) if "warnings" in event] == [0]


def test_a_named_function_is_called(demo):
    reply = demo.chat("Hello", tools=[tool("get_weather"), tool("other")],
                      tool_choice={"type": "function", "function": {"name": "other"}}, max_tokens=200).json()
    call = reply["choices"][0]["message"]["tool_calls"]
    assert [c["function"]["name"] for c in call] == ["other"]
    assert set(json.loads(call[0]["function"]["arguments"])) == {"location"}


@pytest.mark.parametrize("names", [["get_weather"], ["get_weather", "get_weather_report", "play"]])
def test_some_function_is_called(demo, names):
    for stream in (False, True):
        body = {"tools": [tool(n) for n in names], "tool_choice": "required", "max_tokens": 300}
        if stream:
            parts = joined(demo.stream_chat("Hello", **body))
            calls, finish = [(c["name"], c["arguments"]) for c in parts["tool_calls"]], parts["finish_reason"]
        else:
            choice = demo.chat("Hello", **body).json()["choices"][0]
            calls = [(c["function"]["name"], c["function"]["arguments"]) for c in choice["message"]["tool_calls"]]
            finish = choice["finish_reason"]
        assert len(calls) == 1 and calls[0][0] in names and finish == "tool_calls"
        assert set(json.loads(calls[0][1])) == {"location"}


def test_strict_tools_hold_to_their_schema(demo):
    short = {"type": "object", "properties": {"location": {"type": "string", "maxLength": 3}}, "required": ["location"],
             "additionalProperties": False}
    call = demo.chat("What is the weather in Tokyo?", tools=[tool("get_weather", short, strict=True)]).json()
    arguments = call["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    jsonschema.validate(json.loads(arguments), short)


def test_what_cannot_be_honoured(demo):
    for keyword, odd in (("contains", {"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}, "maxContains": 1}),
                         ("uniqueItems", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
                         ("pattern", {"type": "string", "pattern": "(?=a)b"}), ("not", {"not": {"pattern": "a"}}),
                         ("multipleOf", {"type": "number", "multipleOf": 0.01}), ("format", {"type": "string", "format": "regex"})):
        schema = {"type": "object", "properties": {"a": odd}, "required": ["a"], "additionalProperties": False}
        said = f"{keyword} is not supported at #/properties/a"
        error = demo.chat(response_format=schema_format(schema)).json()["error"]
        assert error["param"] == "response_format.json_schema.schema" and said in error["message"], error
        error = demo.chat(tools=[tool("f"), tool("g", schema, strict=True)]).json()["error"]
        assert error["param"] == "tools[1].function.parameters" and said in error["message"], error
        reply = demo.chat(response_format=schema_format(schema, strict=False), max_tokens=1)
        assert reply.status_code == 200 and any(said in text for text in reply.json()["warnings"]), reply.text
        assert reply.headers["x-gossamer-warning"]
    broken = {"type": "object", "properties": {"a": {"type": "strong"}}}
    for strict in (True, False):
        reply = demo.chat(response_format=schema_format(broken, strict=strict))
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "response_format.json_schema.schema"
    reply = demo.chat(tools=[tool("f", {"type": "object", "properties": {"a": {"type": "strong"}}}, strict=True)])
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "tools[0].function.parameters"
    assert demo.chat(tools=[tool("f", broken)]).status_code == 200
    reply = demo.chat(tools=[tool("f", broken)], tool_choice="required", max_tokens=1)
    assert reply.status_code == 200 and "is unknown" in reply.json()["warnings"][0]
    reply = demo.chat(tools=[tool("f", {"type": "string", "pattern": "é("})], tool_choice="required", max_tokens=1)
    assert "é(" in reply.json()["warnings"][0] and '"??(": a ( without )' in reply.headers["x-gossamer-warning"]
    warned = {**schema_format(schema, strict=False)["json_schema"], "type": "json_schema"}
    reply = demo.post("/v1/responses", {"input": "x", "max_output_tokens": 1, "text": {"format": warned}})
    assert reply.json()["warnings"] == [f"text.format.schema: {said}"]
    reply = demo.post("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "tool_choice": {"type": "any"},
                                       "tools": [{"name": "f", "input_schema": schema}]})
    assert reply.json()["warnings"] == [f"tools[0].input_schema: {said}"]
    events = demo.stream_chat(response_format=schema_format(schema, strict=False), max_tokens=1)
    assert [len(e["warnings"]) for e in events if "warnings" in e] == [1]


# ---------------------------------------------------------------- a source that wants junk


def row(*wanted):
    return " ".join(f"{i}={9 - n}" for n, i in enumerate(wanted))


def test_a_script_that_wants_junk_gives_json():
    """Each row prefers what would break the format; the analysis is as the script has it."""
    analysis = tokens("analysis<|message|>Let me think<|end|>")
    rows = [row(i) for i in tokens("<|channel|>") + analysis]
    rows += [row(*tokens("final")), row(*tokens("final"))] + [row(*tokens("Sure! <|return|><|end|>"))] * 400
    script = "logits: " + "; ".join(rows)
    with Server("--quiet", "--ctx", "4096", script=[script] * 4) as server:
        choice = server.chat("x", response_format=schema_format(CITY), temperature=0, max_tokens=390).json()["choices"][0]
        assert choice["message"]["reasoning"] == "Let me think"
        jsonschema.validate(json.loads(choice["message"]["content"]), CITY)
        assert choice["finish_reason"] == "stop"
        named = server.chat("x", tools=[tool("f", CITY)], tool_choice={"type": "function", "function": {"name": "f"}},
                            max_tokens=390).json()["choices"][0]
        jsonschema.validate(json.loads(named["message"]["tool_calls"][0]["function"]["arguments"]), CITY)


def test_a_script_that_wants_junk_gives_json_in_raw_text():
    script = "logits: " + "; ".join([row(*tokens("Sure! <|return|><|end|>"))] * 400)
    with Server("--quiet", "--ctx", "4096", script=[script]) as server:
        choice = server.post("/v1/completions", {"prompt": "x", "response_format": schema_format(CITY), "temperature": 0,
                                                 "max_tokens": 390}).json()["choices"][0]
        jsonschema.validate(json.loads(choice["text"]), CITY)
        assert choice["finish_reason"] == "stop"


# ---------------------------------------------------------------- a budget of reasoning


MARKERS = 4  # <|channel|>analysis<|message|> and <|end|> are counted as reasoning, and are not of the budget


def thinker(n):
    """Logits that never stop thinking, and never end an answer; a call where it may choose."""
    opener = tokens("<|channel|>analysis<|message|>")
    word, commentary = tokens("a")[0], tokens("commentary")[0]
    return "logits: " + "; ".join([row(i) for i in opener] + [row(commentary, word, *tokens(" to=functions.f<|message|>"))] * n)


def test_reasoning_ends_where_its_budget_does():
    with Server("--quiet", "--ctx", "4096", script=[thinker(120)] * 8) as server:
        for budget in (0, 1, 7):
            reply = server.chat("x", reasoning_budget=budget, max_tokens=60, temperature=0).json()
            choice = reply["choices"][0]
            assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == (budget + MARKERS if budget else 0)
            assert choice["finish_reason"] == "length" and len(choice["message"]["content"]) > 20
            assert bool(choice["message"].get("reasoning")) == (budget > 0)
        parts = joined(server.stream_chat("x", reasoning_budget=3, max_tokens=60))
        assert parts["content"] and parts["reasoning"]
        free = server.chat("x", max_tokens=60).json()["choices"][0]["message"]
        assert free["content"] == "" and len(free["reasoning"]) > 20
        schema = server.chat("x", reasoning_budget=2, max_tokens=100, response_format=schema_format(CITY)).json()["choices"][0]["message"]
        assert schema["content"].startswith("{")
        reply = server.post("/v1/responses", {"input": "x", "reasoning_budget": 4, "max_output_tokens": 60}).json()
        assert reply["usage"]["output_tokens_details"]["reasoning_tokens"] == 4 + MARKERS and reply["output"][-1]["type"] == "message"


def test_a_budget_leaves_the_choice_between_an_answer_and_a_call(demo):
    with Server("--quiet", "--ctx", "4096", script=[thinker(60)]) as server:
        message = server.chat("x", reasoning_budget=5, max_tokens=40, tools=[tool("f")]).json()["choices"][0]["message"]
        assert not message["content"], message  # it chose the header of a call, and goes on with that
    for budget in (-1, 1.5, "x", True):
        reply = demo.chat(reasoning_budget=budget)
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "reasoning_budget", reply.text
    whole = demo.chat(reasoning_budget=1000).json()["choices"][0]["message"]
    assert whole == demo.chat().json()["choices"][0]["message"]
    short = demo.chat(reasoning_budget=2).json()
    assert short["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2 + MARKERS and short["choices"][0]["message"]["content"]


def test_a_script_of_ids_behind_a_forced_header():
    texts = ['{"location": "Tokyo"}<|call|>',
             '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"location": "Tokyo"}<|call|>']
    with Server("--quiet", script=[line(t) for t in texts]) as server:
        for _ in texts:
            choice = server.chat("x", tools=[tool("get_weather")],
                                 tool_choice={"type": "function", "function": {"name": "get_weather"}}).json()["choices"][0]
            calls = choice["message"]["tool_calls"]
            assert [(c["function"]["name"], c["function"]["arguments"]) for c in calls] == [("get_weather", '{"location": "Tokyo"}')]
            assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
