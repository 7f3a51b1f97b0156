"""Mutated requests against a running server, for as long as it is told: it must go on answering.

    GOSSAMER=build/gossamer build/venv/bin/python tests/server/fuzz_http.py [SECONDS [SEED]]

Scripted tokens stand in for the model of one server; the other has the demo model, few tokens of context, and a
small cache in memory and on disk. Three kinds in turn: valid JSON whose values are exchanged (grammar-aware), bodies whose bytes are, and whole
requests whose bytes are. A reply must be HTTP, never 500, JSON where it is an error; the process must live.
"""
import json
import random
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from serving import Server, line  # noqa: E402

TOOL = {"type": "function", "function": {"name": "f", "description": "d", "strict": True,
                                         "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
SEEDS = [
    ("/v1/chat/completions", {
        "model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "x"}]},
                                   {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [
                                       {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                                   {"role": "tool", "tool_call_id": "c1", "content": "{}"}],
        "tools": [TOOL], "tool_choice": "auto", "n": 1, "stop": ["a"], "max_tokens": 5, "temperature": 0.5, "top_p": 0.9,
        "logit_bias": {"5": 1}, "logprobs": True, "top_logprobs": 2, "seed": 1, "stream": False,
        "stream_options": {"include_usage": True}, "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": False}}}),
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 3, "echo": True, "logprobs": 1, "n": 1, "best_of": 1, "stop": "x"}),
    ("/v1/responses", {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
                                 {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "c", "output": "1"}],
                       "tools": [{"type": "function", "name": "f", "parameters": {}}], "reasoning": {"effort": "low"},
                       "text": {"format": {"type": "text"}}, "max_output_tokens": 5, "store": True, "stream": False}),
    ("/v1/messages", {"model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "s"}],
                      "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
                      "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"}}),
    ("/tokenize", {"content": "x"}), ("/detokenize", {"tokens": [1, 2]}),
]
ANSWER_SECONDS = 300  # a busy machine may take long; no answer at all is what is looked for
VALUES = [None, True, False, 0, -1, 1, 2 ** 31, 2 ** 63, -2 ** 63, 1e308, 0.5, "", "x", "auto", "\u0000", "💖", "<|end|>", "a" * 300,
          [], {}, [[]], [None], {"type": "function"}, {"type": "text"}, {"": {}}, ["a"] * 6]


def places(value, path=()):
    yield path
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(child, path + (key,))


def exchange(value, generator):
    """One value somewhere in a tree is replaced, dropped, or taken from elsewhere in it."""
    value = json.loads(json.dumps(value))
    every = [p for p in places(value) if p]
    if not every:
        return value
    path = generator.choice(every)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if generator.random() < 0.2:
        del holder[path[-1]]
    elif generator.random() < 0.3:
        other = value
        for key in generator.choice(every):
            other = other[key]
        holder[path[-1]] = json.loads(json.dumps(other))
    else:
        holder[path[-1]] = generator.choice(VALUES)
    return value


def scramble(data, generator):
    data = bytearray(data)
    for _ in range(generator.randrange(1, 10)):
        at = generator.randrange(len(data))
        choice = generator.random()
        if choice < 0.4:
            data[at] = generator.randrange(256)
        elif choice < 0.7:
            del data[at:at + generator.randrange(1, 20)]
        else:
            data[at:at] = data[generator.randrange(len(data)):][:generator.randrange(1, 40)]
        if not data:
            data = bytearray(b"x")
    return bytes(data)


def request(path, body):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def ask(port, data, seconds):
    """Waits in short turns: where the whole machine stands still, that is one turn, however long it lasts."""
    turn = min(seconds, 1.0)
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        parts, turns = [], int(seconds / turn)
        try:
            connection.sendall(data)
            connection.settimeout(turn)
            while turns > 0:
                try:
                    part = connection.recv(65536)
                except TimeoutError:
                    turns -= 1
                    continue
                if not part:
                    break
                parts.append(part)
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass
        return b"".join(parts)


def check(answer, data, whole):
    """Whole requests may get no answer at all; those whose frame is right must get one."""
    if not answer:
        assert not whole, data
        return 0
    assert answer.startswith(b"HTTP/1.1 "), (data, answer[:200])
    status = int(answer[9:12])
    assert status != 500, (data, answer[:600])
    body = answer.partition(b"\r\n\r\n")[2]
    if whole and status >= 400:
        assert "error" in json.loads(body), (data, answer[:300])
    return status


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120
    generator = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    counts = {}
    script = ["<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
              "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "<|channel|>final<|message|>never ends"]
    with Server("--quiet", "--ctx", "4096", script=[line(s) for s in script]) as scripted, \
            tempfile.TemporaryDirectory() as folder, \
            Server("--quiet", "--ctx", "192", "--cache-mib", "4", "--cache-dir", folder, "--cache-dir-mib", "2",
                   "--cache-dir-seconds", "0") as modelled:
        end = time.time() + seconds
        while time.time() < end:
            server = generator.choice([scripted, modelled])
            path, body = generator.choice(SEEDS)
            for _ in range(generator.randrange(1, 4)):
                body = exchange(body, generator)
            data, whole = request(path, json.dumps(body).encode()), True
            kind = generator.random()
            if kind < 0.3:
                data = request(path, scramble(json.dumps(body).encode(), generator))
            elif kind < 0.5:
                data, whole = scramble(data, generator), False
            status = check(ask(server.port, data, ANSWER_SECONDS if whole else 0.3), data, whole)
            counts[status] = counts.get(status, 0) + 1
            assert server.process.poll() is None, "the server has ended"
        for server in (scripted, modelled):
            assert server.chat(max_tokens=5).status_code == 200
    print(f"{sum(counts.values())} requests in {seconds:.0f} s: {dict(sorted(counts.items()))}")


if __name__ == "__main__":
    main()
