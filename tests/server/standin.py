"""A stand-in for the server, for tests of the page alone: it serves the page's files from the sources and answers
chats with what the test laid down. What it gets is kept for the test to look at."""
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "src/server/page"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def policy():
    """The policy as page.c has it, its string literals joined."""
    text = re.search(r"policy\[\] =(.*?);\n", (PAGE / "page.c").read_text(), re.S).group(1)
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text))


class Answer:
    """What one chat request gets: deltas in order, then a finish reason. `gate`: an event that what is behind the
    reasoning waits for."""

    def __init__(self, reasoning="", content="", calls=(), pieces=8, delay=0.0, finish=None, fail=None, hang=False, cut=False, gate=None):
        self.deltas = [{"reasoning": p, "reasoning_content": p} for p in split(reasoning, pieces)]
        for index, (name, arguments) in enumerate(calls):
            self.deltas.append({"tool_calls": [{"index": index, "id": f"call_{index}_{time.time_ns()}", "type": "function",
                                                "function": {"name": name, "arguments": ""}}]})
            self.deltas += [{"tool_calls": [{"index": index, "function": {"arguments": p}}]} for p in split(arguments, pieces)]
        self.deltas += [{"content": p} for p in split(content, pieces)]
        self.content, self.delay, self.fail, self.hang, self.cut, self.gate = content, delay, fail, hang, cut, gate
        self.finish = finish or ("tool_calls" if calls else "stop")
        self.reasoning_tokens = len(split(reasoning, 4))


def split(text, size):
    return [text[i:i + size] for i in range(0, len(text), size)]


class Listener(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True


class StandIn:
    def __init__(self, key=None, n_ctx=2048):
        self.answers, self.requests, self.paths = [], [], []
        self.key, self.n_ctx = key, n_ctx
        self.httpd = Listener(("127.0.0.1", 0), make_handler(self))
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}/"
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()

    def close(self):
        self.httpd.shutdown()


def make_handler(standin):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def reply(self, status, body, kind="application/json", headers=()):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def reply_json(self, status, value):
            self.reply(status, json.dumps(value).encode())

        def refused(self):
            if standin.key is None or self.headers.get("Authorization") == f"Bearer {standin.key}":
                return False
            self.reply_json(401, {"error": {"message": "a key is needed", "type": "authentication_error",
                                            "param": None, "code": None}})
            return True

        def do_GET(self):
            standin.paths.append(self.path)
            if self.path == "/v1/models":
                if not self.refused():
                    self.reply_json(200, {"object": "list", "data": [{
                        "id": "gpt-oss-20b", "object": "model", "created": 1, "owned_by": "openai",
                        "context_length": standin.n_ctx}]})
                return
            name = "page.html" if self.path == "/" else self.path.removeprefix("/page/")
            file = PAGE / name
            if "/" in name or file.suffix not in TYPES or not file.exists():
                self.reply_json(404, {"error": {"message": "no such path", "type": "invalid_request_error"}})
                return
            self.reply(200, file.read_bytes(), TYPES[file.suffix], [("Content-Security-Policy", policy())])

        def do_POST(self):
            standin.paths.append(self.path)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.refused():
                return
            if self.path == "/tokenize":
                self.reply_json(200, {"count": len(body["content"].split()), "tokens": []})
                return
            standin.requests.append(body)
            answer = standin.answers.pop(0)
            if answer.fail:
                self.reply_json(answer.fail[0], {"error": {"message": answer.fail[1], "type": "server_error"}})
            elif body.get("stream"):
                self.stream(answer, 100 + len(json.dumps(body["messages"])) // 5)
            else:
                self.reply_json(200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": answer.content},
                                                   "finish_reason": "stop"}]})

        def chunk(self, value):
            self.wfile.write(f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode())
            self.wfile.flush()

        def stream(self, answer, prompt):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            try:
                for delta in [{"role": "assistant", "content": ""}] + answer.deltas:
                    if answer.gate and delta.get("content"):
                        answer.gate.wait()
                    self.chunk({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": None})
                    time.sleep(answer.delay)
                if answer.cut:
                    return
                while answer.hang:
                    self.wfile.write(b": ping\n\n")
                    self.wfile.flush()
                    time.sleep(0.05)
                self.chunk({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish}], "usage": None})
                n = len(answer.deltas)
                self.chunk({**base, "choices": [], "usage": {
                    "prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n,
                    "prompt_tokens_details": {"cached_tokens": 60},
                    "completion_tokens_details": {"reasoning_tokens": answer.reasoning_tokens}}})
                self.chunk("[DONE]")
            except OSError:
                standin.paths.append("gone")

    return Handler
