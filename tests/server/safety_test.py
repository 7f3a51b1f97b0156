"""Hostile clients: the classes that a server of this kind was attacked with, each against the real binary.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/safety_test.py
"""
import contextlib
import errno
import json
import os
import re
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import BINARY, MODEL, PATIENCE, Server, free_port, joined, line, listening_port, read_event, tokens  # noqa: E402

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0}


@pytest.fixture(scope="module")
def demo():
    with Server("--ctx", "8192", "--quiet") as server:
        yield server


def raw(server, data, seconds=PATIENCE, half_close=False):
    """What comes back until the server closes, or the time is over."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(data)
        if half_close:
            with contextlib.suppress(OSError):  # the server has closed already
                connection.shutdown(socket.SHUT_WR)
        connection.settimeout(seconds)
        parts = []
        try:
            while part := connection.recv(65536):
                parts.append(part)
        except (TimeoutError, ConnectionResetError):
            pass
        return b"".join(parts)


def head(body=b"", *lines, method="POST", path=CHAT, host="127.0.0.1", kind="application/json"):
    first = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    if kind:
        first += f"Content-Type: {kind}\r\n"
    return first.encode() + b"".join(x + b"\r\n" for x in lines) + b"\r\n" + body


def chunked(body, size, extension=b"", trailer=b""):
    pieces = [body[i:i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x%s\r\n%s\r\n" % (len(x), extension, x) for x in pieces) + b"0\r\n" + trailer + b"\r\n"


def status_of(answer):
    match = re.match(rb"HTTP/1.1 (\d+)", answer)
    return int(match.group(1)) if match else None


def told(ask):
    """What `ask` returns: the answer, or how it begins. The server cuts, without an answer, a client that takes 10 seconds for
    its head: where this one took half of that because the machine was busy, it asks again, but not for ever: a server that
    takes a head for unfinished cuts it then too."""
    for _ in range(20):
        began = time.monotonic()
        answer = ask()
        if answer or time.monotonic() - began < 5:
            break
    return answer


def wait_running(server):
    end = time.time() + PATIENCE
    while server.metric("running") == 0:
        assert time.time() < end, "nothing runs"
        time.sleep(0.002)


def wait_read(server):
    """Until nothing that was sent lies in a socket's queue, for a little longer than a moment."""
    port, quiet, end = f":{server.port:04X}", 0, time.time() + PATIENCE
    while quiet < 5:
        time.sleep(0.05)
        lines = [text.split() for text in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        empty = all(x[4] == "00000000:00000000" for x in lines if port in x[1] + x[2] and x[3] == "01")
        quiet = quiet + 1 if empty else 0
        assert time.time() < end


def alive(server):
    assert server.chat("What is the capital of Japan?").status_code == 200


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize("body", [
    b"", b"null", b"[]", b"7", b'"x"', b"{", b"{}{}", b'{"model": "a", "model": "b"}', b'{"temperature": NaN}',
    b'{"temperature": 1e999}', b'{"a": "\\ud800"}', b'{"a": "\xff"}', b"\xef\xbb\xbf{}", b'{"a": 01}', b"{'a': 1}",
    b'{"a": "\x01"}', b"\x00", b'{"a":1,}'])
def test_bodies_that_are_no_json(demo, body):
    reply = demo.client.post(CHAT, content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == 400, body
    assert "\n" not in reply.json()["error"]["message"]


def test_only_json_is_taken(demo):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx"):
        reply = demo.client.post(CHAT, content=json.dumps(HELLO), headers={"Content-Type": kind})
        assert reply.status_code == 415, kind
    for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON"):
        reply = demo.client.post(CHAT, content=json.dumps({**HELLO, "max_tokens": 1}), headers={"Content-Type": kind})
        assert reply.status_code == 200, kind


# ---------------------------------------------------------------- framing


def test_framing(demo):
    body = json.dumps({**HELLO, "max_tokens": 1}).encode()
    length = b"Content-Length: %d" % len(body)
    good = raw(demo, head(body, length))
    assert status_of(good) == 200
    for name, coded in {"small": chunked(body, 7), "large": chunked(body, 1000), "with more": chunked(body, 9, b";a=b", b"X: y\r\n")}.items():
        assert status_of(raw(demo, head(coded, b"Transfer-Encoding: chunked"))) == 200, name
    answer = raw(demo, head(chunked(body, 9), b"Transfer-Encoding: chunked", b"Expect: 100-continue"))
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert status_of(raw(demo, head(chunked(body, 9), b"Transfer-Encoding: chunked", kind="text/plain"))) == 415
    answer = raw(demo, head(body, b"Content-Length: 99999999999"))  # more than is read to be answered: at once
    assert status_of(answer) == 413 and b"the body is too long" in answer
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE", "BREW"):
        answer = raw(demo, head(b"", method=method, kind=None))
        assert status_of(answer) in (405, 501, 400), (method, answer[:200])
        assert b"Access-Control" not in answer
    alive(demo)


HOST = b"Host: 127.0.0.1"
CODED = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_REQUESTS = {
    "no http": (400, b"hello\r\n\r\n"),
    "tls": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xfc" * 200),
    "http 0.9": (400, b"GET /\r\n"),
    "http 2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "too old": (505, b"GET / HTTP/0.9\r\n" + HOST + b"\r\n\r\n"),
    "a blank in the path": (400, b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n\r\n"),
    "a long path": (414, b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n\r\n"),
    "a path without end": (414, b"GET /" + b"a" * 100_000),
    "no host": (400, b"GET /v1/models HTTP/1.1\r\n\r\n"),
    "two hosts": (400, b"GET /v1/models HTTP/1.1\r\n" + HOST + b"\r\n" + HOST + b"\r\n\r\n"),
    "a line that is none": (400, b"GET / HTTP/1.1\r\n" + HOST + b"\r\nnothing\r\n\r\n"),
    "a folded line": (400, b"GET / HTTP/1.1\r\n" + HOST + b"\r\n x: y\r\n\r\n"),
    "a folded value": (400, b"GET / HTTP/1.1\r\n" + HOST + b"\r\nX: y\r\n\tz\r\n\r\n"),
    "a nul": (400, b"GET / HTTP/1.1\r\n" + HOST + b"\r\nX: a\0b\r\n\r\n"),
    "a nul in a name": (400, b"GET / HTTP/1.1\r\n" + HOST + b"\r\nX\0: ab\r\n\r\n"),
    "a nul in the path": (400, b"GET /\0 HTTP/1.1\r\n" + HOST + b"\r\n\r\n"),
    "a line feed alone": (400, b"GET / HTTP/1.1\r\n" + HOST + b"\nX: y\r\n\r\n"),
    "many arguments": (414, b"GET /?" + b"a&" * 3000 + b" HTTP/1.1\r\n" + HOST + b"\r\n\r\n"),
    "a blank before the colon": (400, b"POST / HTTP/1.1\r\n" + HOST + b"\r\nContent-Length : 5\r\n\r\nhello"),
    "a negative length": (400, b"POST / HTTP/1.1\r\n" + HOST + b"\r\nContent-Length: -5\r\n\r\n"),
    "a length with a sign": (400, b"POST / HTTP/1.1\r\n" + HOST + b"\r\nContent-Length: +5\r\n\r\n"),
    "two lengths": (400, b"POST / HTTP/1.1\r\n" + HOST + b"\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    "length and coding": (400, CODED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n"),
    "two codings": (400, CODED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "another coding": (501, b"POST / HTTP/1.1\r\n" + HOST + b"\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
    "a chunk size with a sign": (400, CODED + b"-2\r\nab\r\n0\r\n\r\n"),
    "a chunk size with a prefix": (400, CODED + b"0x5\r\nabcde\r\n0\r\n\r\n"),
    "a chunk size with a blank": (400, CODED + b"5 \r\nabcde\r\n0\r\n\r\n"),
    "a chunk size that is huge": (400, CODED + b"ffffffffffffffffffff\r\n"),
    "a chunk that is longer": (400, CODED + b"3\r\nabcde\r\n0\r\n\r\n"),
    "a bad second chunk": (400, CODED + b"3\r\nabc\r\nhello\r\n\r\n"),
    "a bad line behind the chunks": (400, CODED + b"3\r\nabc\r\n0\r\n folded\r\n\r\n"),
    "a huge length": (413, b"POST / HTTP/1.1\r\n" + HOST + b"\r\nContent-Length: 99999999999999999999\r\n\r\n"),
    "many lines": (431, b"GET / HTTP/1.1\r\n" + HOST + b"\r\n" + b"A: b\r\n" * 100_000 + b"\r\n"),
    "a long line": (431, b"GET / HTTP/1.1\r\n" + HOST + b"\r\nX: " + b"y" * 500_000 + b"\r\n\r\n"),
}


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_what_is_no_request_gets_json(demo, name):
    """Also in pieces: a byte, a pause, the rest."""
    status, request = NO_REQUESTS[name]

    def ask(pieces):
        with socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i, piece in enumerate(pieces):
                time.sleep(0.05 if i else 0)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it was answered before its end
                    connection.sendall(piece)
            answer = b""
            with contextlib.suppress(ConnectionResetError):  # what came before it counts
                while part := connection.recv(65536):
                    answer += part
            return answer

    for pieces in ([request], [request[:1], request[1:9], request[9:]]):
        answer = told(lambda: ask(pieces))  # noqa: B023
        assert status_of(answer) == status, answer
        fields, _, body = answer.partition(b"\r\n\r\n")
        assert b"Content-Type: application/json" in fields and b"Content-Length: %d" % len(body) in fields
        error = json.loads(body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == ("server_error" if status == 501 else "invalid_request_error")
        assert error["message"] and "\n" not in error["message"]


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_one_request_a_connection(demo, name):
    """What comes behind a request, sent at once or after its answer, is nobody's: the answer says so, and nothing else comes."""
    good = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\nConnection: keep-alive\r\n\r\n"
    coded = CODED + chunked(json.dumps({**HELLO, "max_tokens": 1}).encode(), 20)
    for first in (good, coded):
        for more in (good, NO_REQUESTS[name][1][:4000]):
            answer = raw(demo, first + more)
            fields, _, body = answer.partition(b"\r\n\r\n")
            assert status_of(answer) == 200 and b"\r\nConnection: close" in fields, answer
            assert b"Content-Length: %d\r\n" % len(body) in fields + b"\r\n", answer
            json.loads(body)
    with socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE) as connection:
        connection.sendall(good)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        try:
            connection.sendall(NO_REQUESTS[name][1][:4000])
            assert connection.recv(65536) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass


def test_cookies_are_nobodys(demo):
    """Other servers of this machine set them, and a browser sends them here."""
    good = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
    for cookie in (b"a=b; " * 3000, b"=;;\x01\xff,=\"", b"", b"=", b";"):
        assert status_of(raw(demo, good + b"Cookie: " + cookie + b"\r\n\r\n")) == 200, cookie[:20]
    body = json.dumps({**HELLO, "max_tokens": 1}).encode()
    answer = raw(demo, head(body, b"Content-Length: %d" % len(body), b"cookie: a", b"Cookie: b") + b"more")
    assert status_of(answer) == 200
    reply = demo.client.post(CHAT, content=b" " * 200_000 + body, headers={"Content-Type": "application/json", "Cookie": "a=b"})
    assert reply.status_code == 200


def test_a_damaged_chunk_behind_100_continue(demo):
    """The client was told to go on, which is no answer yet: it gets one."""
    with socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE) as connection:
        connection.sendall(head(b"", b"Transfer-Encoding: chunked", b"Expect: 100-continue"))
        said = b""
        while not said.endswith(b"\r\n\r\n"):
            part = connection.recv(4096)
            assert part, said
            said += part
        assert said == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"3\r\nabc\r\nhello\r\n")
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert status_of(answer) == 400 and b"chunk" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"].encode(), answer


def test_chunked_requests_at_once_and_clients_that_leave(demo):
    """Streams asked for in chunks: whole ones are whole, and those who leave free their place."""
    def ask(number):
        body = json.dumps({**HELLO, "stream": True, "max_tokens": 30 if number % 2 else 4000}).encode()
        with socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE) as connection:
            connection.sendall(CODED)
            for at in range(0, len(body), 50):
                connection.sendall(chunked(body[at:at + 50], 50)[:-5])
            connection.sendall(b"0\r\n\r\n")
            answer = connection.recv(1000)
            while number % 2 and (part := connection.recv(65536)):
                answer += part
            return answer

    with ThreadPoolExecutor(16) as pool:
        for number, answer in enumerate(pool.map(ask, range(32))):
            assert status_of(answer) == 200
            assert number % 2 == 0 or b"data: [DONE]\n\n" in answer
    end = time.time() + PATIENCE
    while demo.metric("running") > 0:
        assert time.time() < end
        time.sleep(0.05)


def test_errors_before_a_request_have_the_form_of_the_path(demo):
    answer = raw(demo, head(b"", b"Content-Length: x", path="/v1/messages?beta=true"))
    assert status_of(answer) == 400
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "error"


def test_heads_in_pieces_are_taken(demo):
    """A byte at a time, and many at once: each gets its answer."""
    request = head(json.dumps({**HELLO, "max_tokens": 1}).encode(), b"Content-Length: %d" % len(json.dumps({**HELLO, "max_tokens": 1})))

    def ask(number):
        with socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            step = 1 if number == 0 else 40
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for at in range(0, len(request), step):
                    connection.sendall(request[at:at + step])
                    if number:
                        time.sleep(0.01)
                return status_of(connection.recv(65536))

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(lambda number: told(lambda: ask(number)), range(20))) == {200}


def test_a_million_header_lines(demo):
    with socket.create_connection(("127.0.0.1", demo.port), timeout=PATIENCE) as connection:
        try:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            for _ in range(1000):
                connection.sendall(b"A: b\r\n" * 1000)
        except (BrokenPipeError, ConnectionResetError):
            pass
    alive(demo)


# ---------------------------------------------------------------- who may ask


def test_host_and_origin(demo):
    def ask(headers, method="POST"):
        return demo.client.request(method, CHAT if method == "POST" else "/v1/models", headers=headers,
                                   json={**HELLO, "max_tokens": 1} if method == "POST" else None).status_code

    for host in ("127.0.0.1", "localhost", "localhost:99", "[::1]:8080", "127.9.9.9"):
        assert ask({"Host": host}) == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "a b", "127.0.0.1:x", "[::1",
                 "localhost@evil"):
        assert ask({"Host": host}) == 403, host
        assert ask({"Host": host}, "GET") == 403, host
    assert ask({"Origin": demo.url}) == 200
    for origin in ("https://evil.example", "null", "http://localhost:1", demo.url + ".evil.example", "file://"):
        assert ask({"Origin": origin}) == 403, origin
    assert ask({"Sec-Fetch-Site": "cross-site"}) == 403
    assert ask({"Sec-Fetch-Site": "same-site"}, "GET") == 403
    assert ask({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, "GET") == 200
    assert ask({"Sec-Fetch-Site": "same-origin"}) == 200
    reply = demo.client.options(CHAT, headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"})
    assert reply.status_code in (403, 405) and not any(k.startswith("access-control") for k in reply.headers)


def test_keys():
    key = "secret-key-1234567890"
    with Server("--quiet", key=key, script=[line("<|channel|>final<|message|>x<|return|>")] * 4) as server:
        bare = httpx.Client(base_url=server.url, timeout=PATIENCE, trust_env=False)
        body = HELLO
        assert bare.get("/health").status_code == 200
        for path in ("/v1/models", "/metrics", "/slots"):
            assert bare.get(path).status_code == 401, path
        wrong = ["x", "SECRET-KEY-1234567890", key + "x", "x" * 5000] + [key[:n] for n in range(1, len(key))]
        for value in wrong:
            reply = bare.post(CHAT, json=body, headers={"Authorization": f"Bearer {value}"})
            assert reply.status_code == 401, value
            assert reply.json()["error"]["code"] == "invalid_api_key" and key not in reply.text
            assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert bare.post(CHAT, json=body, headers={"x-api-key": key}).status_code == 200
        assert server.chat().status_code == 200
        assert server.client.get("/slots").status_code == 200
        command = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        assert key.encode() not in command and key not in server.logged()


def test_two_keys_do_not_share_prefixes_where_that_is_asked_for(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\n  two \t\n   \n")  # blanks around a key are none of it
    for arguments, shared in (([], True), (["--cache-by-key"], False)):
        with Server("--ctx", "2048", "--api-key-file", str(keys), *arguments, wait=False) as server:
            time.sleep(0.2)
            server.wait_ready()
            cached = []
            for key in ("one", "one", "two"):
                reply = server.post(CHAT, HELLO, headers={"Authorization": f"Bearer {key}"})
                cached.append(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
            assert cached[0] == 0 and cached[1] > 0 and (cached[2] > 0) == shared


def test_other_addresses_need_a_key():
    for host in ("0.0.0.0", "::"):
        for key in ("", " \t "):
            out = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--host", host], capture_output=True, timeout=PATIENCE,
                                 env=os.environ | {"GOSSAMER_API_KEY": key})
            assert out.returncode == 2 and b"key" in out.stderr and out.stderr.count(b"\n") == 1
    out = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--host", "example.org"], capture_output=True, timeout=PATIENCE)
    assert out.returncode == 2
    with Server("--host", "0.0.0.0", "--quiet", key="k" * 20, script=["1"]) as server:
        assert server.client.get("/v1/models").status_code == 200


def test_a_backend_that_is_none_is_told_before_a_port():
    out = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--backend", "none"], capture_output=True, timeout=PATIENCE)
    assert out.returncode == 2 and out.stdout == b"" and b"no backend none" in out.stderr and out.stderr.count(b"\n") == 1


def test_what_cannot_be_served_is_told_before_a_port(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for arguments, part in ((["--cache-dir", str(file)], b"file"), (["--ctx", "100000000"], b"100000000"), (["--cache-by-key"], b"needs keys"),
                            (["--parallel", "999"], b"999: at most 512"), (["--parallel", "0"], b"--parallel"),
                            (["--script-tokens", str(tmp_path / "none")], b"none"), (["--script-tokens", str(file)], b"has no line")):
        out = subprocess.run([BINARY, "serve", MODEL, "--port", "0", *arguments], capture_output=True, timeout=PATIENCE)
        assert out.returncode == 2 and out.stdout == b"" and part in out.stderr and out.stderr.count(b"\n") == 1, (arguments, out)


def open_to_write(fifo):
    """Without waiting: None while nobody reads."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO
        return None


def test_health_says_that_the_model_is_loading(tmp_path):
    """The script is a pipe, so that loading takes as long as the test likes."""
    script = tmp_path / "script"
    os.mkfifo(script)
    process = subprocess.Popen([BINARY, "serve", MODEL, "--port", "0", "--quiet", "--script-tokens", str(script)], stdout=subprocess.PIPE)
    try:
        url, end = f"http://127.0.0.1:{listening_port(process)}", time.time() + PATIENCE
        with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client:
            reply = client.get("/health")
            assert reply.status_code == 503 and reply.json() == {"status": "loading"}, reply.text
            assert client.post(CHAT, json=HELLO).status_code == 503
            while (pipe := open_to_write(script)) is None:  # until it is read from the other side
                assert process.poll() is None and time.time() < end
                time.sleep(0.05)
            os.write(pipe, b"1\n")
            os.close(pipe)
            assert process.stdout.readline().decode().strip() == f"listening on {url}"
            assert client.get("/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_slots_are_not_shown_without_keys(demo):
    assert demo.client.get("/slots").status_code == 404
    assert set(demo.client.get("/health").json()) == {"status"}


# ---------------------------------------------------------------- logs


def test_logs_hold_no_prompts_and_no_control_characters():
    with Server("--ctx", "2048") as server:
        server.chat("The password of Anna is zebra.", model="x\n[ERROR] fake\x1b]52;c;aGk=\x07")
        server.client.get("/a%0a%5bERROR%5d%1b%5b31m%e2%80%ae")
        raw(server, b"GET /\x1b[31m HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        server.post(CHAT, {**HELLO, "tools": [{"type": "evil\n[ERROR]\x1b"}]})
        end = time.time() + PATIENCE
        while server.logged().count(CHAT) < 2 and time.time() < end:
            time.sleep(0.05)
        log = server.logged()
    assert "zebra" not in log and "Anna" not in log and "password" not in log
    assert "\x1b" not in log and "\x07" not in log and "\u202e" not in log
    assert not any(text.startswith("[ERROR]") for text in log.splitlines())
    assert CHAT in log


# ---------------------------------------------------------------- clients that misbehave


def test_no_url_is_fetched(demo):
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.5)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/x.png"
        for part in ({"type": "image_url", "image_url": {"url": url}}, {"type": "file", "file": {"file_data": url}},
                     {"type": "input_audio", "input_audio": {"data": url}}):
            reply = demo.chat([{"role": "user", "content": [part]}])
            assert reply.status_code == 400 and reply.json()["error"]["param"] == "messages[0].content[0].type"
        with pytest.raises(TimeoutError):
            trap.accept()


def test_a_client_that_leaves_in_prefill_frees_its_place():
    """It leaves once its prompt is seen to be read. Where the machine let that be read to its end before it could leave, another
    client asks something else."""
    with Server("--ctx", "65536", "--parallel", "1", "--quiet") as server:
        read, number, end = 40000, 0, time.time() + PATIENCE
        while read >= 40000:
            number += 1
            before = server.metric("step_tokens_total")
            body = json.dumps({"messages": [{"role": "user", "content": f"{number} " + "word " * 40000}], "stream": True}).encode()
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(head(body, b"Content-Length: %d" % len(body)))
                while server.metric("step_tokens_total") == before:
                    assert time.time() < end
                    time.sleep(0.002)
            while server.metric("cancelled_total") + server.metric("finished_total") < number:
                assert time.time() < end
                time.sleep(0.02)
            read = server.metric("step_tokens_total") - before
        assert server.metric("cancelled_total") >= 1
        assert server.chat().status_code == 200


def test_thousands_that_leave_take_no_room():
    """More than may be connected at once: each is seen to have left, and not only when its time is over. One that came before
    them and stays shows that: its time is over first."""
    with Server("--quiet", script=[line("<|channel|>final<|message|>x<|return|>")]) as server:
        request = head(b'{"messages": ', b"Content-Length: 1000")

        def answers(request, read):
            try:
                with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
                    connection.sendall(request)
                    return read and connection.recv(65536).startswith(b"HTTP/1.1 200 ")
            except (BrokenPipeError, ConnectionResetError):
                return False  # there was no room at this moment

        def stays(connection):
            return not select.select([connection], [], [], 0)[0]

        def is_shown():
            """False where the machine took as long as the server gives a client."""
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as first:
                first.sendall(request)
                for _ in range(2100):
                    answers(request, False)
                while stays(first):
                    if answers(head(b"", method="GET", path="/health", kind=None), True):
                        return stays(first)
                    time.sleep(0.05)
            return False

        end = time.time() + PATIENCE
        while not is_shown():
            assert time.time() < end
        assert server.chat().status_code == 200


def test_a_reader_that_never_reads():
    """Its answer is dropped, its place is free, and others do not notice."""
    long = "<|channel|>final<|message|>" + "word " * 200000
    script = [line(long), line("<|channel|>final<|message|>x<|return|>")]
    with Server("--ctx", "131072", "--quiet", "--parallel", "4", script=script) as server:
        body = json.dumps({**HELLO, "stream": True}).encode()
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head(body, b"Content-Length: %d" % len(body)))
        end = time.time() + PATIENCE
        while server.metric("running") + server.metric("cancelled_total") == 0:  # the script's first line is its
            assert time.time() < end
            time.sleep(0.002)
        assert server.chat().json()["choices"][0]["message"]["content"] == "x"
        while server.metric("running") > 0:
            assert time.time() < end
            time.sleep(0.1)
        assert server.metric("cancelled_total") == 1
        connection.close()


def test_a_full_queue_refuses():
    """One answer goes on until its client leaves, four requests wait for it: whoever comes then is refused."""
    long = line("<|channel|>final<|message|>" + "word " * 20000)
    with Server("--quiet", "--parallel", "1", "--queue", "4", "--script-pause", "20", script=[long]) as server:
        def ask(_):
            with httpx.Client(base_url=server.url, timeout=PATIENCE, trust_env=False, verify=False) as client:
                return client.post(CHAT, json={**HELLO, "max_tokens": 1})

        with ThreadPoolExecutor(50) as pool:
            body = json.dumps({**HELLO, "stream": True}).encode()
            with contextlib.ExitStack() as stack:
                for i in range(5):
                    connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                    connection.sendall(head(body, b"Content-Length: %d" % len(body)))
                    wait_running(server)
                    server.wait_metric("waiting", i)
                replies = list(pool.map(ask, range(100)))
            assert {r.status_code for r in replies} == {429}
            assert all(int(r.headers["retry-after"]) >= 1 and r.json()["error"]["code"] == "queue_full" for r in replies)
            server.wait_metric("waiting", 0)
            server.wait_metric("running", 0)
            codes = {r.status_code for r in pool.map(ask, range(100))}
            assert 200 in codes and codes <= {200, 429}, codes


def test_another_key_goes_before_more_of_the_same(tmp_path):
    """Whoever comes last, with a key that has had no turn, is next. Each answer goes on until its client leaves."""
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    long = line("<|channel|>final<|message|>" + "word " * 20000)
    with Server("--quiet", "--parallel", "1", "--script-pause", "20", "--api-key-file", str(keys), script=[long], wait=False) as server:
        server.client.headers["Authorization"] = "Bearer one"
        server.wait_ready()
        body, asked = json.dumps({**HELLO, "stream": True}).encode(), []
        with selectors.DefaultSelector() as selector:
            for i, key in enumerate((b"one", b"one", b"one", b"two")):
                asked.append(socket.create_connection(("127.0.0.1", server.port)))
                asked[i].sendall(head(body, b"Content-Length: %d" % len(body), b"Authorization: Bearer " + key))
                while server.metric("running") + server.metric("waiting") <= i:
                    time.sleep(0.01)
                selector.register(asked[i], selectors.EVENT_READ, bytearray())
            selector.unregister(asked[0])
            asked[0].close()
            told = None
            while told is None:
                ready = selector.select(PATIENCE)
                assert ready
                for one, _ in ready:
                    part = one.fileobj.recv(65536)
                    assert part, one.data
                    one.data.extend(part)
                    told = one.fileobj if b"word" in one.data else told
            assert told is asked[3]
        for connection in asked:
            connection.close()


# ---------------------------------------------------------------- the end


def never_ends():
    """Of the demo model: these tokens would end it."""
    return {str(i): -100 for i in tokens("<|return|><|endoftext|><|call|><|end|>")}


def test_term_lets_answers_end_and_cuts_what_does_not():
    short = "<|channel|>final<|message|>" + "word " * 100 + "<|return|>"  # a second
    server = Server("--quiet", "--stop-seconds", str(PATIENCE), "--script-pause", "10", script=[line(short)])
    events = []
    with server.client.stream("POST", CHAT, json={**HELLO, "stream": True}) as response:
        for text in response.iter_lines():
            if text.startswith("data: "):
                events.append(read_event(text))
                if len(events) == 3:
                    server.process.send_signal(signal.SIGTERM)
    assert events[-1] == "[DONE]" and joined(events)["finish_reason"] == "stop"
    assert joined(events)["content"] == "word " * 100
    server.close()


def test_term_cuts_with_a_last_event():
    with Server("--ctx", "65536", "--quiet", "--stop-seconds", "0") as server:
        results = []

        def ask():
            results.append(server.stream_chat("word " * 30000, logit_bias=never_ends()))

        thread = threading.Thread(target=ask)
        thread.start()
        wait_running(server)
        server.process.send_signal(signal.SIGTERM)
        thread.join(PATIENCE)
        assert results and results[0][-1]["error"]["code"] == "shutting_down"


def test_term_among_many_requests():
    """Whenever it comes, each request has a proper end, and none is left waiting."""
    text = "<|channel|>final<|message|>" + "word " * 50 + "<|return|>"
    server = Server("--quiet", "--parallel", "4", "--queue", "64", "--stop-seconds", "5", script=[line(text)])
    ends, bad = [], []

    def ask(number):
        with httpx.Client(base_url=server.url, timeout=PATIENCE, trust_env=False, verify=False) as client:
            while True:
                try:
                    if number % 2:
                        reply = client.post(CHAT, json=HELLO)
                        status, whole = reply.status_code, True
                    else:
                        with client.stream("POST", CHAT, json={**HELLO, "stream": True}) as reply:
                            last = [x for x in reply.iter_lines() if x][-1]
                            status = reply.status_code
                            whole = status != 200 or last == "data: [DONE]" or "shutting_down" in last
                except httpx.ConnectError:
                    return ends.append("refused")
                except httpx.TransportError as error:
                    return ends.append(type(error).__name__)  # a kept connection that was closed meanwhile
                if status not in (200, 429, 503) or not whole:
                    bad.append((status, whole))
                if status == 503:
                    return ends.append(503)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    time.sleep(0.7)
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(PATIENCE)
    server.close()
    assert not bad and len(ends) == 24, (bad, ends)
    assert "ReadTimeout" not in ends


def test_killed_and_started_again():
    """Nothing is promised across a SIGKILL but this: the port is free, and answers are as before."""
    arguments = ("--ctx", "65536", "--quiet", "--parallel", "4", "--port", str(free_port()))
    first = Server(*arguments)
    expected = first.chat("Tell me a story", max_tokens=60).json()["choices"][0]
    results = []

    def ask():
        try:
            results.append(first.stream_chat("word " * 6000, logit_bias=never_ends()))
        except httpx.TransportError:
            results.append(None)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_running(first)
    first.process.kill()
    first.process.wait(PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)
    assert len(results) == 4 and not any(r and r[-1] == "[DONE]" for r in results)
    first.client.close()
    first.log.close()
    first.process.stdout.close()
    with Server(*arguments) as second:
        assert second.port == first.port
        assert second.chat("Tell me a story", max_tokens=60).json()["choices"][0] == expected
    first.folder.cleanup()


def test_bodies_together_are_bounded():
    """A body has 30 seconds: where that was too little for a busy machine, all of it is done again."""
    with Server("--quiet", "--max-body-mib", "1", script=[line("<|channel|>final<|message|>x<|return|>")]) as server:
        body = json.dumps({**HELLO, "x": "a" * ((1 << 20) - 200)}).encode()
        request = head(body, b"Content-Length: %d" % len(body))

        def is_shown():
            began = time.monotonic()
            with contextlib.ExitStack() as stack:
                held = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(8)]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    for connection in held:
                        connection.sendall(request[:-1])
                    wait_read(server)
                answer = raw(server, request)
                while status_of(answer) == 200 and time.monotonic() - began < 20:  # what was read is being counted
                    answer = raw(server, request)
                short = server.chat().status_code  # what is left is for short ones
                taken = b""
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    held[0].sendall(request[-1:])
                    taken = held[0].recv(100)
                if time.monotonic() - began > 20:
                    return False
            assert status_of(answer) == 503 and b"overloaded" in answer and b"Retry-After: 1" in answer
            assert short == 200 and taken.startswith(b"HTTP/1.1 200")
            return True

        end = time.time() + PATIENCE
        while not is_shown():
            assert time.time() < end
        while status_of(raw(server, request)) != 200:
            assert time.time() < end
            time.sleep(0.05)


def test_garbage_for_two_seconds(demo):
    """A little of what the fuzzer does for longer (fuzz_http.py)."""
    import random
    generator = random.Random(1)
    good = head(json.dumps(HELLO).encode(), b"Content-Length: %d" % len(json.dumps(HELLO)))
    end = time.time() + 2
    while time.time() < end:
        data = bytearray(good)
        for _ in range(generator.randrange(1, 8)):
            at = generator.randrange(len(data))
            if generator.random() < 0.5:
                data[at] = generator.randrange(256)
            else:
                del data[at:at + generator.randrange(1, 9)]
        raw(demo, bytes(data), seconds=0.2, half_close=True)
    alive(demo)
