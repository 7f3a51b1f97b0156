"""Agents and frameworks as their users have them, against the demo model: openai-agents, langchain and litellm, each over
the dialects that it speaks.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/agents_test.py
"""
import asyncio
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import Server  # noqa: E402

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is fetched
QUESTION, FACT = "What is the capital of France?", "The capital of France is Paris."
WEATHER = '{"temperature": 21, "sky": "sunny"}'


@pytest.fixture(scope="module")
def demo():
    with Server("--ctx", "2048") as server:
        yield server


# ---------------------------------------------------------------- openai-agents


def agent_of(demo, dialect, calls=None):
    agents = pytest.importorskip("agents")
    import openai
    client = openai.AsyncOpenAI(base_url=demo.url + "/v1", api_key="any", max_retries=0)
    kind = agents.OpenAIResponsesModel if dialect == "responses" else agents.OpenAIChatCompletionsModel

    @agents.function_tool(strict_mode=False)
    def get_weather(location: str) -> str:
        """The weather in a place."""
        calls.append(location)
        return WEATHER

    return agents, agents.Agent(name="a", model=kind("demo", client), tools=[get_weather] if calls is not None else [],
                                model_settings=agents.ModelSettings(temperature=0))


@pytest.mark.parametrize("dialect", ["responses", "chat"])
def test_an_agent_answers(demo, dialect):
    agents, agent = agent_of(demo, dialect)
    result = asyncio.run(agents.Runner.run(agent, QUESTION))
    assert result.final_output == FACT


@pytest.mark.parametrize("dialect", ["responses", "chat"])
def test_an_agent_uses_a_tool(demo, dialect):
    calls = []
    agents, agent = agent_of(demo, dialect, calls)
    result = asyncio.run(agents.Runner.run(agent, "What is the weather in Tokyo?"))
    assert calls == ["Tokyo"] and "sunny" in result.final_output


@pytest.mark.parametrize("dialect", ["responses", "chat"])
def test_an_agent_streams(demo, dialect):
    calls = []
    agents, agent = agent_of(demo, dialect, calls)

    async def run():
        result = agents.Runner.run_streamed(agent, "What is the weather in Tokyo?")
        kinds = [event.type async for event in result.stream_events()]
        return result.final_output, kinds
    output, kinds = asyncio.run(run())
    assert calls == ["Tokyo"] and "sunny" in output and "raw_response_event" in kinds


# ---------------------------------------------------------------- langchain


def langchain_of(demo, dialect):
    if dialect == "messages":
        module = pytest.importorskip("langchain_anthropic")
        return module.ChatAnthropic(model="demo", base_url=demo.url, api_key="any", max_tokens=300, max_retries=0)
    module = pytest.importorskip("langchain_openai")
    return module.ChatOpenAI(model="demo", base_url=demo.url + "/v1", api_key="any", temperature=0, max_retries=0,
                             use_responses_api=dialect == "responses")


@pytest.mark.parametrize("dialect", ["responses", "chat", "messages"])
def test_langchain_answers_and_streams(demo, dialect):
    model = langchain_of(demo, dialect)
    if dialect == "messages":
        model = model.bind(extra_body={"temperature": 0})
    message = model.invoke(QUESTION)
    assert message.text == FACT if isinstance(message.text, str) else message.text() == FACT
    assert message.usage_metadata["output_tokens"] > 10
    pieces = [chunk.text if isinstance(chunk.text, str) else chunk.text() for chunk in model.stream(QUESTION)]
    assert "".join(pieces) == FACT and len(pieces) > 3


@pytest.mark.parametrize("dialect", ["responses", "chat", "messages"])
def test_langchain_uses_a_tool(demo, dialect):
    from langchain_core.messages import HumanMessage, ToolMessage
    tool = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a place.", "parameters": {
        "type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}}}
    model = langchain_of(demo, dialect).bind_tools([tool])
    if dialect == "messages":
        model = model.bind(extra_body={"temperature": 0})
    messages = [HumanMessage("What is the weather in Tokyo?")]
    message = model.invoke(messages)
    assert [(call["name"], call["args"]) for call in message.tool_calls] == [("get_weather", {"location": "Tokyo"})]
    messages += [message, ToolMessage(WEATHER, tool_call_id=message.tool_calls[0]["id"])]
    answer = model.invoke(messages)
    assert "sunny" in (answer.text if isinstance(answer.text, str) else answer.text())


# ---------------------------------------------------------------- litellm


def test_litellm(demo):
    litellm = pytest.importorskip("litellm")
    common = {"messages": [{"role": "user", "content": QUESTION}], "api_key": "any"}
    reply = litellm.completion(model="openai/demo", api_base=demo.url + "/v1", temperature=0, **common)
    assert reply.choices[0].message.content == FACT and "Paris" in reply.choices[0].message.reasoning_content
    reply = litellm.completion(model="anthropic/demo", api_base=demo.url, max_tokens=300, temperature=0, **common)
    assert reply.choices[0].message.content == FACT
    chunks = list(litellm.completion(model="openai/demo", api_base=demo.url + "/v1", temperature=0, stream=True,
                                     stream_options={"include_usage": True}, **common))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == FACT
    assert chunks[-1].usage.completion_tokens > 10
    response = litellm.responses(model="openai/demo", api_base=demo.url + "/v1", input=QUESTION, api_key="any", temperature=0)
    assert response.output[-1].content[0].text == FACT
