"""Real clients against a real server on the demo model: the OpenAI library (chat, raw), LangChain, LiteLLM, curl.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/clients_test.py

responses_test.py, messages_test.py and agents_test.py have the other APIs.
"""
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import openai
import pydantic
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import Server  # noqa: E402

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Gets the weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"],
                   "additionalProperties": False}}}
JAPAN = [{"role": "user", "content": "What is the capital of Japan?"}]
TOKYO = [{"role": "user", "content": "What is the weather in Tokyo?"}]


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", "4096", "--quiet", key="a-key-for-tests") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=server.key, max_retries=0)


# ---------------------------------------------------------------- the OpenAI library


def test_models(client):
    assert [m.id for m in client.models.list()] == ["demo"]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")


def test_chat(client):
    reply = client.chat.completions.create(model="demo", messages=JAPAN, temperature=0)
    assert reply.choices[0].message.content == "The capital of Japan is Tokyo."
    assert reply.choices[0].message.reasoning_content
    assert reply.usage.completion_tokens_details.reasoning_tokens > 0


def test_chat_streamed(client):
    content, usage = "", None
    for chunk in client.chat.completions.create(model="demo", messages=JAPAN, temperature=0, stream=True,
                                                stream_options={"include_usage": True}):
        content += chunk.choices[0].delta.content or "" if chunk.choices else ""
        usage = chunk.usage or usage
    assert content == "The capital of Japan is Tokyo." and usage.total_tokens > 0


def test_the_streaming_helper(client):
    with client.chat.completions.stream(model="demo", messages=TOKYO, temperature=0, tools=[WEATHER]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    call = final.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments) == {"location": "Tokyo"}
    assert "tool_calls.function.arguments.delta" in kinds


def test_a_tool_loop(client):
    messages = list(TOKYO)
    reply = client.chat.completions.create(model="demo", messages=messages, temperature=0, tools=[WEATHER])
    assert reply.choices[0].finish_reason == "tool_calls"
    messages.append(reply.choices[0].message)
    for call in reply.choices[0].message.tool_calls:
        place = json.loads(call.function.arguments)["location"]
        messages.append({"role": "tool", "tool_call_id": call.id,
                         "content": json.dumps({"temperature": 21, "sky": "sunny", "place": place})})
    reply = client.chat.completions.create(model="demo", messages=messages, temperature=0, tools=[WEATHER])
    assert "sunny" in reply.choices[0].message.content or "21" in reply.choices[0].message.content


class Capital(pydantic.BaseModel):
    country: str = pydantic.Field(max_length=20)
    large: bool


def test_structured_parse(client):
    reply = client.chat.completions.parse(model="demo", messages=JAPAN, temperature=0, response_format=Capital,
                                          max_tokens=400)
    assert isinstance(reply.choices[0].message.parsed, Capital)


def test_errors_have_their_classes(client, server):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="demo", messages=JAPAN, temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0).models.list()


def test_raw(client):
    reply = client.completions.create(model="demo", prompt="The capital of France is", temperature=0, max_tokens=1, logprobs=2)
    assert reply.choices[0].text == " Paris" and reply.choices[0].logprobs.tokens == [" Paris"]
    text = "".join(c.choices[0].text for c in client.completions.create(model="demo", prompt="The capital of France is",
                                                                       temperature=0, max_tokens=2, stream=True))
    assert text.startswith(" Paris")


# What the public compatibility test of gpt-oss asks of a server, by its own rules: the function is called with arguments that
# fit its schema; there is reasoning, in these fields.


@pytest.mark.parametrize("streaming", [False, True])
def test_compatibility_of_chat(client, streaming):
    if streaming:
        with client.chat.completions.stream(model="demo", messages=TOKYO, temperature=0, tools=[WEATHER]) as stream:
            chunks = [event.chunk for event in stream if event.type == "chunk"]
            message = stream.get_final_completion().choices[0].message
        pieces = [choice.delta.reasoning for chunk in chunks for choice in chunk.choices if hasattr(choice.delta, "reasoning")]
        assert all(isinstance(piece, str) for piece in pieces) and "".join(pieces)
    else:
        message = client.chat.completions.create(model="demo", messages=TOKYO, temperature=0, tools=[WEATHER]).choices[0].message
        assert isinstance(message.reasoning, str) and message.reasoning
    jsonschema.validate(json.loads(message.tool_calls[0].function.arguments), WEATHER["function"]["parameters"])


@pytest.mark.parametrize("streaming", [False, True])
def test_compatibility_of_responses(client, streaming):
    asked = {"model": "demo", "input": TOKYO, "temperature": 0, "tools": [{"type": "function", "strict": False, **WEATHER["function"]}]}
    if streaming:
        with client.responses.stream(**asked) as stream:
            kinds = {event.type for event in stream}
            response = stream.get_final_response()
        assert {"response.reasoning_text.delta", "response.reasoning_text.done"} <= kinds
    else:
        response = client.responses.create(**asked)
    reasoning, call = response.output
    assert [(part.type, bool(part.text)) for part in reasoning.content] == [("reasoning_text", True)] and call.name == "get_weather"
    jsonschema.validate(json.loads(call.arguments), WEATHER["function"]["parameters"])


# ---------------------------------------------------------------- others


def test_langchain(server):
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(base_url=server.url + "/v1", api_key=server.key, model="demo", temperature=0, max_retries=0)
    assert model.invoke("What is the capital of Japan?").content == "The capital of Japan is Tokyo."
    assert "".join(part.content for part in model.stream("What is the capital of Japan?")) == "The capital of Japan is Tokyo."
    called = model.bind_tools([WEATHER]).invoke("What is the weather in Tokyo?").tool_calls
    assert [(c["name"], c["args"]) for c in called] == [("get_weather", {"location": "Tokyo"})]
    assert isinstance(model.with_structured_output(Capital).invoke("What is the capital of Japan?"), Capital)


def test_litellm(server):
    litellm = pytest.importorskip("litellm")
    common = {"model": "openai/demo", "api_base": server.url + "/v1", "api_key": server.key, "temperature": 0}
    reply = litellm.completion(messages=JAPAN, **common)
    assert reply.choices[0].message.content == "The capital of Japan is Tokyo."
    assert reply.choices[0].message.reasoning_content
    chunks = list(litellm.completion(messages=TOKYO, tools=[WEATHER], stream=True, stream_options={"include_usage": True}, **common))
    built = litellm.stream_chunk_builder(chunks)
    assert built.choices[0].message.tool_calls[0].function.name == "get_weather" and built.usage.completion_tokens > 0


def test_curl(server):
    out = subprocess.run(["curl", "-sS", "--noproxy", "*", server.url + "/v1/chat/completions", "-H", f"Authorization: Bearer {server.key}",
                          "-H", "Content-Type: application/json", "-d", json.dumps({"messages": JAPAN, "temperature": 0})],
                         capture_output=True, timeout=600, check=True)
    assert json.loads(out.stdout)["choices"][0]["message"]["content"] == "The capital of Japan is Tokyo."
