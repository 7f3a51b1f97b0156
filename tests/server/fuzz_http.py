"""Mutated requests against a running server, for as long as it is told: it must go on answering.

    GOSSAMER=build/gossamer build/venv/bin/python tests/server/fuzz_http.py [SECONDS [SEED [CLIENTS]]]

Scripted tokens stand in for the model of one server; the other has the demo model, few tokens of context, and a
small cache in memory and on disk. Four kinds in turn: valid JSON whose values are exchanged (grammar-aware), bodies
whose bytes are, whole requests whose bytes are, and clients that leave before the end. A reply must be HTTP, never
500, JSON where it is an error, whatever the request was; the process must live. Where no answer comes, /health is asked beside it and the
stacks of both servers are printed (gdb). SECONDS are those in which the fuzzer itself runs: a machine that stands
still for a while (a debugger, a laptop's lid, a frozen group of processes) lengthens the run and is no fault.
"""
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
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
    ("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 20, "n": 2, "seed": 3, "tools": [TOOL], "tool_choice": "required",
        "parallel_tool_calls": False, "stop": ["a", "b"]}),
    ("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 30, "temperature": 1, "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {
            "type": "object", "required": ["a", "b"], "additionalProperties": False, "properties": {
                "a": {"type": "string", "pattern": "^[a-z]{1,9}$", "minLength": 1, "maxLength": 9, "enum": ["x", "yy"]},
                "b": {"type": "array", "items": {"anyOf": [{"type": "number", "minimum": 0, "maximum": 9.5}, {"const": None}]},
                      "minItems": 1, "maxItems": 3},
                "c": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"type": "string", "format": "date"}}}}}}),
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 3, "echo": True, "logprobs": 1, "n": 1, "best_of": 1, "stop": "x"}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 9, "response_format": {"type": "json_schema", "json_schema": {
        "name": "n", "strict": True, "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}}),
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
ANSWER_TURNS = 300  # of a second: a busy machine may take long; no answer at all is what is looked for
STILL_SECONDS = 3  # a turn that is so much longer than it should be: everything stood still
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


def request(path, body, generator):
    """With a length or in chunks, now and then with cookies and with the same once more behind it."""
    chunked, size = generator.random() < 0.25, generator.randrange(1, 200)
    frame = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    if chunked:
        pieces = [body[i:i + size] for i in range(0, len(body), size)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    cookie = "Cookie: a=b; c\r\n" if generator.random() < 0.1 else ""
    data = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{cookie}Content-Type: application/json\r\n{frame}\r\n\r\n".encode() + body
    return data * 2 if generator.random() < 0.05 else data


class Clock:
    """Seconds in which this process ran: a gap between two looks counts as one second at most."""

    def __init__(self):
        self.last, self.spent, self.still = time.monotonic(), 0.0, 0.0
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while True:
            time.sleep(0.1)
            now = time.monotonic()
            with self.lock:
                gap, self.last = now - self.last, now
                self.spent += min(gap, 1.0)
                self.still += max(gap - STILL_SECONDS, 0)


CLOCK = Clock()


class Silence(Exception):
    pass


def ask(port, data, turns, turn=1.0, leaves=False):
    """Waits in short turns: a standstill is one turn, however long it lasts."""
    parts, closed = [], False
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=turns * turn) as connection:
            connection.sendall(data)
            connection.settimeout(turn)
            while turns > 0:
                try:
                    part = connection.recv(64 if leaves else 65536)
                except TimeoutError:
                    turns -= 1
                    continue
                if not part:
                    closed = True
                    break
                parts.append(part)
                if leaves:
                    break
    except (TimeoutError, ConnectionResetError, BrokenPipeError):
        closed = True
    if turn == 1.0 and not closed and not parts:
        raise Silence(data)
    return b"".join(parts)


def check(answer, data, whole, leaves=False):
    """Whole requests may get no answer at all; those whose frame is right must get one."""
    if not answer:
        assert not whole, data
        return 0
    assert answer.startswith(b"HTTP/1.1 "), (data, answer[:200])
    status = int(answer[9:12])
    assert status != 500, (data, answer[:600])
    fields, _, body = answer.partition(b"\r\n\r\n")
    if status >= 400 and not leaves and (whole or fields.endswith(b"Content-Length: %d" % len(body)) or b"<" in body[:1]):
        assert "error" in json.loads(body), (data, answer[:300])
    return status


def stacks(servers):
    """Before anything is ended: is it the one request, or the whole server, and where does it stand?"""
    for server in servers:
        try:
            answer = ask(server.port, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 30)
        except (Silence, OSError) as error:
            answer = repr(error)
        print(f"server {server.process.pid}, /health: {answer!r}", flush=True)
        try:
            subprocess.run(["gdb", "-p", str(server.process.pid), "-batch", "-ex", "thread apply all backtrace"], timeout=300)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"no stacks: {error}", flush=True)


class Run:
    def __init__(self, servers, seconds):
        self.servers, self.end = servers, CLOCK.spent + seconds
        self.counts, self.left, self.stood, self.fault = {}, 0, 0, None
        self.lock = threading.Lock()

    def one(self, generator):
        server = generator.choice(self.servers)
        path, body = generator.choice(SEEDS)
        for _ in range(generator.randrange(4)):
            body = exchange(body, generator)
        kind = generator.random()
        leaves = kind > 0.9
        if leaves and path.startswith("/v1") and isinstance(body, dict):
            body["stream"] = True
        data, whole = request(path, json.dumps(body).encode(), generator), True
        if kind < 0.3:
            data = request(path, scramble(json.dumps(body).encode(), generator), generator)
        elif kind < 0.5:
            data, whole = scramble(data, generator), False
        still = CLOCK.still
        answer = ask(server.port, data, ANSWER_TURNS if whole else 1, 1.0 if whole else 0.3, leaves)
        if whole and not answer:
            time.sleep(0.5)  # until the clock has looked
            if CLOCK.still != still:  # a body has 30 seconds, so the server may have cut the connection
                with self.lock:
                    self.stood += 1
                return
        status = check(answer, data, whole, leaves)
        with self.lock:
            self.counts[status] = self.counts.get(status, 0) + 1
            self.left += leaves
        assert server.process.poll() is None, "the server has ended"

    def client(self, seed):
        generator = random.Random(seed)
        while CLOCK.spent < self.end and not self.fault:
            try:
                self.one(generator)
            except BaseException as error:  # noqa: B036: told by the main thread
                with self.lock:
                    self.fault = self.fault or error


def main():
    arguments = [float(x) for x in sys.argv[1:]]
    seconds, seed, clients = (arguments + [120, 1, 1][len(arguments):])[:3]
    script = ["<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
              "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "<|channel|>final<|message|>never ends"]
    with Server("--quiet", "--ctx", "4096", script=[line(s) for s in script]) as scripted, \
            tempfile.TemporaryDirectory() as folder, \
            Server("--quiet", "--ctx", "192", "--cache-mib", "4", "--cache-dir", folder, "--cache-dir-mib", "2",
                   "--cache-dir-seconds", "0") as modelled:
        run = Run([scripted, modelled], seconds)
        threads = [threading.Thread(target=run.client, args=(int(seed) * 1000 + i,)) for i in range(int(clients))]
        for thread in threads:
            thread.start()
        memory, told = [], CLOCK.spent
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(1)
            if CLOCK.spent > told + 60 and not run.fault:
                told = CLOCK.spent
                memory.append([server.memory() for server in run.servers])
                print(f"{seconds - run.end + CLOCK.spent:.0f} s: {sum(run.counts.values())} requests, memory "
                      f"{[m >> 10 for m in memory[-1]]} KiB", flush=True)
        if isinstance(run.fault, Silence):
            stacks(run.servers)
        if run.fault:
            raise run.fault
        for server in run.servers:
            assert server.chat(max_tokens=5).status_code == 200
    print(f"{sum(run.counts.values())} requests of {clients:.0f} clients in {seconds:.0f} s, seed {seed:.0f}: "
          f"{dict(sorted(run.counts.items()))}; {run.left} clients left before the end; the machine stood still for "
          f"{CLOCK.still:.0f} s, {run.stood} requests were cut by that")
    if memory:
        print("memory of the two servers after a minute and at the end:",
              [f"{m / 2 ** 20:.1f} MiB" for m in memory[0] + memory[-1]])


if __name__ == "__main__":
    main()
