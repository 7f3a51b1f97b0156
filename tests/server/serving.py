"""A real server for tests: the binary, on a free port, on the demo model or on scripted tokens."""
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("GOSSAMER", str(ROOT / "build/gossamer"))
PATIENCE = 900  # seconds for what must come, however busy the machine
MODEL = str(ROOT / "models/demo")


def tokens(text):
    """Ids of a text in which the names of special tokens are those tokens."""
    out = subprocess.run([BINARY, "tokenize", MODEL, "--special", "--ids", "-"], input=text.encode(),
                         capture_output=True, check=True)
    return [int(x) for x in re.findall(r"\d+", out.stdout.decode())]


def line(text):
    return ",".join(str(i) for i in tokens(text))


def free_port():
    """One that no connection of another process can be given meanwhile: those come from a range of their own."""
    known = Path("/proc/sys/net/ipv4/ip_local_port_range")
    least = max(2048, int(known.read_text().split()[0]) if known.exists() else 32768)
    while True:
        port = random.randrange(max(1024, least - 20000), least)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def listening_port(process):
    """Where a server listens that has not said so yet."""
    end = time.time() + PATIENCE
    while process.poll() is None and time.time() < end:
        links = set()
        for path in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                links.add(os.readlink(path))
        for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
                return int(fields[1].split(":")[1], 16)
        time.sleep(0.02)
    raise RuntimeError("the server does not listen")


class Server:
    """with Server(...) as server: server.post("/v1/chat/completions", {...})"""

    def __init__(self, *arguments, script=None, model=MODEL, key=None, wait=True, env=None):
        self.folder = tempfile.TemporaryDirectory()
        self.key = key
        arguments = list(arguments)
        if script is not None:
            path = Path(self.folder.name) / "script.txt"
            path.write_text("\n".join(script) + "\n")
            arguments += ["--script-tokens", str(path)]
        if key:
            path = Path(self.folder.name) / "keys.txt"
            path.write_text(key + "\n")
            arguments += ["--api-key-file", str(path)]
        if "--date" not in arguments:
            arguments += ["--date", "2025-06-28"]
        self.log_path = Path(self.folder.name) / "log.txt"
        self.log = open(self.log_path, "wb")
        self.process = subprocess.Popen([BINARY, "serve", model, "--port", "0", *arguments], stdout=subprocess.PIPE,
                                        stderr=self.log, env={**os.environ, **(env or {})})
        said = self.process.stdout.readline().decode()
        match = re.search(r":(\d+)$", said.strip())
        if not match:
            self.process.wait(PATIENCE)
            raise RuntimeError(f"the server did not start: {self.log_path.read_text()}")
        self.port = int(match.group(1))
        self.url = f"http://127.0.0.1:{self.port}"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False, verify=False)
        if wait:
            self.wait_ready()

    def wait_ready(self):
        end = time.time() + PATIENCE
        while time.time() < end:
            if self.client.get("/health").status_code == 200:
                return
            time.sleep(0.05)
        raise RuntimeError("the server is not ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self, seconds=PATIENCE):
        """Stops it as a service manager does; it must end well."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()  # nothing is left behind, and its code fails the test
            code = self.process.wait()
        self.process.stdout.close()
        self.log.close()
        log = self.log_path.read_text(errors="replace")
        self.folder.cleanup()
        assert code == 0, f"exit code {code}: {log[-3000:]}"

    def kill(self):
        """As the kernel does where memory is out; also one that has ended."""
        self.client.close()
        self.process.kill()
        self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.log.close()
        self.folder.cleanup()

    def logged(self):
        return self.log_path.read_text(errors="replace")

    def post(self, path, body, **options):
        return self.client.post(path, json=body, **options)

    def chat(self, content="What is the capital of Japan?", **body):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        body = {"messages": messages, "temperature": 0, **body}
        return self.post("/v1/chat/completions", body)

    def stream(self, path, body, **options):
        """The data of a stream's events, parsed, [DONE] as a string."""
        with self.client.stream("POST", path, json={**body, "stream": True}, **options) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            return [read_event(text) for text in response.iter_lines() if text.startswith("data: ")]

    def stream_chat(self, content="What is the capital of Japan?", **body):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        return self.stream("/v1/chat/completions", {"messages": messages, "temperature": 0, **body})

    def metric(self, name):
        text = self.client.get("/metrics").text
        return float(re.search(rf"^gossamer_{name} (\S+)$", text, re.M).group(1))

    def wait_metric(self, name, value):
        end = time.time() + PATIENCE
        while (found := self.metric(name)) != value:
            assert time.time() < end, f"{name} is {found}, not {value}"
            time.sleep(0.02)

    def memory(self):
        """Resident bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024


def read_event(text):
    data = text[len("data: "):]
    return data if data == "[DONE]" else json.loads(data)


def joined(events, choice=0):
    """What the deltas of a chat stream add up to."""
    message = {"content": "", "reasoning": "", "tool_calls": [], "finish_reason": None, "roles": []}
    for event in events:
        for one in event["choices"] if event != "[DONE]" else []:
            if one["index"] != choice:
                continue
            delta = one["delta"]
            if "role" in delta:
                message["roles"].append(delta["role"])
            message["content"] += delta.get("content") or ""
            message["reasoning"] += delta.get("reasoning") or ""
            assert delta.get("reasoning") == delta.get("reasoning_content")
            for call in delta.get("tool_calls", []):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                else:
                    assert "id" not in call and "name" not in call["function"]
                message["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]
            message["finish_reason"] = one["finish_reason"] or message["finish_reason"]
    return message
