"""Whatever takes too much or too long has an end, and is told so where that can be: bodies that are too deep, too long or too
slow, heads that are too slow, a step that does not end when the server does.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/bounds_test.py
"""
import contextlib
import http.client
import json
import select
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from safety_test import CHAT, CODED, HELLO, alive, head, raw, status_of  # noqa: E402
from serving import PATIENCE, Server, line, read_event  # noqa: E402


@pytest.fixture(scope="module")
def demo():
    with Server("--ctx", "8192", "--quiet") as server:
        yield server


@pytest.fixture(scope="module")
def slow_bodies(demo):
    """Requests whose bodies do not come, from the module's beginning on: they have 30 seconds, in which other tests run. What
    came back, by name."""
    body = json.dumps(HELLO).encode()
    length = b"Content-Length: %d" % len(body)
    requests = {
        "nothing": head(b"", length),
        "a part": head(body[:9], length),
        "a byte at a time": head(b"", b"Content-Length: 100000"),
        "of another form": head(body[:9], length, path="/v1/messages"),
        "with a cookie": head(body[:9], length, b"Cookie: a=b"),
        "in chunks": CODED + b"5\r\nab",
        "asked before": head(b"", length, b"Expect: 100-continue"),
    }

    def talk(connection, request, drips):
        connection.sendall(request)
        end = time.monotonic() + PATIENCE
        while drips and time.monotonic() < end and not select.select([connection], [], [], 0.5)[0]:
            connection.sendall(b" ")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
        return answer

    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(requests)) as pool:
        answers = {}
        for name, request in requests.items():
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE))
            answers[name] = pool.submit(talk, connection, request, name == "a byte at a time").result
        yield answers


# ---------------------------------------------------------------- bodies and heads


def test_deep_and_large_bodies(demo, slow_bodies):
    for body in (b"[" * 3000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b'{"messages":' + b"[" * 3000 + b"]" * 3000 + b"}"):
        reply = demo.client.post(CHAT, content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code == 400 and reply.json()["error"]["message"]
    reply = demo.client.post(CHAT, content=b'{"x": "' + b"a" * 100_000_000 + b'"}', headers={"Content-Type": "application/json"})
    assert reply.status_code == 413 and reply.json()["error"]["type"] == "invalid_request_error"
    alive(demo)


def error_of(answer):
    return json.loads(answer.rpartition(b"\r\n\r\n")[2])["error"]


def test_a_body_that_is_too_long_is_answered_at_its_head(demo):
    """Nothing of it is sent here: the answer and the end come for what the head, or the size of a chunk, says."""
    long = b"Content-Length: %d" % ((32 << 20) + 1)
    requests = {
        "a length": head(b"", long),
        "one that no disk holds": head(b"", b"Content-Length: 999999999999999999"),
        "with a cookie": head(b"", long, b"Cookie: a=b"),
        "without a right to ask": head(b"", long, host="evil.example"),
        "asked before": head(b"", long, b"Expect: 100-continue"),  # no "100 Continue" then
        "of another form": head(b"", long, path="/v1/messages"),
        "a chunk": CODED + b"2000001\r\n",
        "two chunks": CODED + b"5\r\nhello\r\n2000000\r\n",
    }
    for name, request in requests.items():
        answer = raw(demo, request)
        assert status_of(answer) == 413 and b"\r\nConnection: close\r\n" in answer, (name, answer)
        assert "at most 33554432 bytes" in error_of(answer)["message"], name
        assert error_of(answer)["type"] == ("request_too_large" if name == "of another form" else "invalid_request_error")
    with socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE) as connection:
        connection.sendall(head(b"", b"Content-Length: %d" % (32 << 20), b"Expect: 100-continue"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"  # not a byte too long
    alive(demo)


def test_who_sends_all_of_a_long_body_reads_the_answer(demo):
    """Also where it looks for one only then: what is sent behind the answer is passed over, and not kept."""
    before, began, answer = demo.memory(), time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE) as connection:
        try:
            connection.sendall(head(b"", b"Content-Length: %d" % (100 << 20)))
            for _ in range(100):
                connection.sendall(b" " * (1 << 20))
        except (BrokenPipeError, ConnectionResetError):
            assert time.monotonic() - began > 2, "closed before a pause of two seconds"
        with contextlib.suppress(ConnectionResetError):  # the same: what came before it counts
            while part := connection.recv(65536):
                answer += part
    assert status_of(answer) == 413 and error_of(answer)["message"]
    assert demo.memory() - before < 50 << 20


LONG = b"Content-Length: %d" % (10 << 20)
KEY = b"x-api-key: some key"
IN_VAIN = {  # status, a line of the answer's head, how the request begins
    "no key": (401, b"WWW-Authenticate: Bearer", head(b"", LONG)),
    "another key": (401, b"WWW-Authenticate: Bearer", head(b"", LONG, b"x-api-key: some keys", path="/v1/messages")),
    "another host": (403, b"", head(b"", LONG, KEY, host="evil.example")),
    "another origin": (403, b"", head(b"", LONG, KEY, b"Origin: http://evil.example")),
    "no path": (404, b"", head(b"", LONG, KEY, path="/v1/nothing")),
    "no such method": (405, b"Allow: POST", head(b"", LONG, KEY, method="PUT")),
    "no json": (415, b"", head(b"", LONG, KEY, kind="text/plain")),
    "with a cookie": (401, b"WWW-Authenticate: Bearer", head(b"", LONG, b"Cookie: a=b")),
    "in chunks": (401, b"WWW-Authenticate: Bearer", CODED + b"a00000\r\n"),
}


@pytest.fixture(scope="module")
def locked():
    with Server("--ctx", "512", key="some key") as server:
        yield server


def check_in_vain(name, answer):
    status, said, _ = IN_VAIN[name]
    assert status_of(answer) == status and said in answer and b"\r\nConnection: close\r\n" in answer, (name, answer)
    error = json.loads(answer.split(b"\r\n\r\n", 1)[1])
    assert error["error"]["message"] and ("type" in error) == (name == "another key"), (name, answer)


def test_what_its_head_refuses_is_answered_before_its_body_is_there(locked):
    """A kilobyte of ten megabytes is sent: the answer and the end come all the same."""
    for name, (_, _, request) in IN_VAIN.items():
        check_in_vain(name, raw(locked, request + b" " * 1024))
    answer = raw(locked, head(b"", LONG, KEY, method="HEAD") + b" " * 1024)
    assert status_of(answer) == 405 and b"\r\nAllow: POST\r\n" in answer and answer.endswith(b"\r\n\r\n"), answer
    answer = raw(locked, head(b"", LONG, b"Expect: 100-continue"))
    check_in_vain("no key", answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"))
    alive(locked)
    lines, end = [], time.time() + PATIENCE
    while len(lines) < len(IN_VAIN) + 2:  # the last comes behind its answer
        assert time.time() < end
        lines = [text for text in locked.logged().splitlines() if "POST" in text or "PUT" in text]
    assert len(lines) == len(IN_VAIN) + 2 and not any("cut" in text for text in lines)


def test_who_sends_in_vain_and_reads_only_then_finds_the_answer(locked):
    """All of the body comes, some of it behind the answer, and none of it is kept."""
    before = locked.memory()

    def talk(name, request):
        with socket.create_connection(("127.0.0.1", locked.port), timeout=PATIENCE) as connection:
            connection.sendall(request + b" " * (1 << 20))
            assert select.select([connection], [], [], PATIENCE)[0]  # the answer is there, and nobody reads it
            for _ in range(9):
                connection.sendall(b" " * (1 << 20))
            if name == "in chunks":
                connection.sendall(b"\r\n0\r\n\r\n")
            answer = b""
            while part := connection.recv(65536):
                answer += part
            return answer

    for name, (_, _, request) in IN_VAIN.items():
        answer, end = None, time.time() + PATIENCE
        while answer is None:
            began = time.monotonic()
            try:
                answer = talk(name, request)
            except (BrokenPipeError, ConnectionResetError):  # once more, where the machine stopped for that long
                assert time.monotonic() - began > 2 and time.time() < end, (name, "closed before a pause of two seconds")
        check_in_vain(name, answer)
    assert locked.memory() - before < 8 << 20


@pytest.mark.parametrize("lines", [[], ["Cookie: a=b"], ["Transfer-Encoding: chunked"], ["Expect:"]], ids=str)
def test_clients_that_send_in_vain(locked, tmp_path, lines):
    path = tmp_path / "body"
    path.write_bytes(b" " * (10 << 20))
    url, more = locked.url + CHAT, [word for text in lines for word in ("-H", text)]
    said = subprocess.run(["curl", "-sS", "--noproxy", "*", "-w", "\n%{http_code}", "-H", "Content-Type: application/json", *more,
                           "--data-binary", f"@{path}", url], capture_output=True, text=True, timeout=PATIENCE)
    assert said.returncode == 0 and said.stdout.endswith("\n401") and "invalid_api_key" in said.stdout, said
    headers = dict(text.split(": ") for text in lines if ": " in text)
    coded = headers.pop("Transfer-Encoding", None) is not None
    connection = http.client.HTTPConnection("127.0.0.1", locked.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        body = (b" " * (1 << 20) for _ in range(10)) if coded else path.read_bytes()
        connection.request("POST", CHAT, body, {"Content-Type": "application/json", **headers}, encode_chunked=coded)
        reply = connection.getresponse()
        assert reply.status == 401 and json.loads(reply.read())["error"]["code"] == "invalid_api_key"


def test_slow_heads_are_cut(demo):
    with socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE) as connection:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):  # after 10 s, long before the last byte
            for byte in b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 100:
                connection.sendall(bytes([byte]))
                time.sleep(0.3)
    alive(demo)


def test_a_body_that_does_not_come_in_time_is_answered(slow_bodies):
    """Those that the fixture began: one without a byte of its body, some with a part, one a byte at a time."""
    for name, read in slow_bodies.items():
        answer = read()
        if name == "asked before":
            interim, answer = answer[:25], answer[25:]
            assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert status_of(answer) == 408 and b"\r\nConnection: close\r\n" in answer, (name, answer)
        assert json.loads(answer.partition(b"\r\n\r\n")[2]).get("type") == ("error" if name == "of another form" else None), name
        assert "not come in time" in error_of(answer)["message"], name


# ---------------------------------------------------------------- a device that hangs, at the end


def test_a_second_signal_leaves_a_step_that_does_not_end():
    """A scripted step takes a thousand seconds here. The stream has its last event all the same; test_scheduler_end.c has the one
    that a single signal leaves, half a minute after its time was over."""
    server = Server("--quiet", "--parallel", "1", "--queue", "1", "--script-pause", "1000000", "--stop-seconds", "900",
                    script=[line("<|channel|>final<|message|>x<|return|>")])
    try:
        with contextlib.ExitStack() as stack:
            def ask():
                return stack.enter_context(server.client.stream("POST", CHAT, json={**HELLO, "stream": True}))

            first, second, end = ask(), ask(), time.time() + PATIENCE
            while second.status_code == 429:  # until the first one's place is no more in the queue, but in the step
                assert time.time() < end
                second.close()
                time.sleep(0.01)
                second = ask()
            assert first.status_code == 200 and second.status_code == 200
            server.process.send_signal(signal.SIGTERM)
            end = time.time() + PATIENCE
            while "stopping" not in server.logged():
                assert time.time() < end
                time.sleep(0.02)
            server.process.send_signal(signal.SIGTERM)
            for reply in (first, second):
                last = [read_event(text) for text in reply.iter_lines() if text.startswith("data: ")][-1]
                assert last["error"]["code"] == "shutting_down"
        assert server.process.wait(PATIENCE) == 1
        said = [text for text in server.logged().splitlines() if text.startswith("gossamer: leaving")]
        assert said == ["gossamer: leaving at the second signal, before the model's thread has ended"]
    finally:
        server.kill()
