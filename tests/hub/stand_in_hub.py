#!/usr/bin/env python3
"""A hub on loopback for tests: the API and the contents on one port, a "CDN" that large files are redirected
to on another (and by another host name). It misbehaves on request.

    stand_in_hub.py FOLDER     writes the true files to FOLDER, prints "ready HUB_PORT CDN_PORT"

Then one command a line on standard input, each answered by a line ".":

    fault NAME [NUMBER]   see FAULTS; adds to the others
    clear                 no faults, empty log
    log                   first the requests so far: who, method, path, range, token or -

It ends when standard input closes. Standard library only.
"""
import hashlib
import http.server
import json
import os
import random
import re
import sys
import threading
import time

STALL_SECONDS = 600  # longer than any client waits, on any machine
COMMIT = "0123456789abcdef0123456789abcdef01234567"
API = re.compile(r"^/api/models/([^/]+/[^/]+)/revision/([^/?]+)\?blobs=true$")
CONTENTS = re.compile(r"^/([^/]+/[^/]+)/resolve/([0-9a-f]{40})/(.+)$")

FAULTS = """
api_status N      the list answers with status N
api_message N     and with a message of N letters and 80 characters of three bytes
api_elsewhere     the list redirects to http on another host
api_lie_size      the list says one byte more of each shard
api_lie_hash      the list has other hashes of the shards
api_huge          the list says that a shard has 2^49 bytes
api_empty         the list says that a shard has no bytes
api_climbs        the list and the index name a shard ../../evil.safetensors
api_no_tokenizer  the list lacks tokenizer.json
api_garbage       the list is no JSON
api_endless       the list is larger than anything
api_large         the list says that the first shard has 2^40 bytes
index_byte        one byte of the index is another
links_lie         the headers of a shard name another hash
links_lie_size    they name another size
elsewhere         files redirect to http on another host
cdn_elsewhere     so does the CDN
hops              an address at the CDN is good for one request, then redirects to a new one
budget N          shards give N bytes in all, then end the connection, then answer 503
cut N             each answer with a part of a shard ends after N bytes
stall N           the first N answers with parts of shards stop after half of it, the connection stays open
status N          answers with parts of shards have status N, `times` times
times N           (of status; without it: always)
no_range          Range is ignored
wrong_range       Content-Range names another part
wrong_total       Content-Range names another size
wrong_bytes       the last byte of each shard is another
empty             shards have length zero
expire N          an address at the CDN is good for N requests
no_redirect       large files come from the hub itself
loop              the hub redirects to itself for ever
""".split("\n")
KNOWN = {line.split()[0] for line in FAULTS if line and not line.startswith(" ")}


def make_files():
    rng = random.Random(4)
    files = {
        "config.json": b'{"model_type": "gpt_oss"}\n',
        "generation_config.json": b'{"eos_token_id": [200002]}\n',
        "tokenizer_config.json": b'{"model_max_length": 131072}\n',
        "tokenizer.json": b'{"model": {}}\n' * 50,
        "model-00000-of-00001.safetensors": rng.randbytes(100003),
        "model-00001-of-00001.safetensors": rng.randbytes(50000),
        "README.md": b"not needed\n",
        "original/model.safetensors": b"not needed either",
        "metal/model.bin": b"nor this",
        "adapter.safetensors": b"in no index",
    }
    shards = [name for name in files if name.startswith("model-")]
    index = {"metadata": {"total_size": 150003}, "weight_map": {f"tensor.{i}": s for i, s in enumerate(shards)}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    return files


class State:
    """What all threads share."""

    def __init__(self):
        self.lock = threading.Lock()
        self.files = make_files()
        self.clear()

    def clear(self):
        self.faults, self.log, self.spent, self.uses = {}, [], 0, {}

    def has(self, name):
        return name in self.faults

    def count_down(self, name):
        """Is this one of the first N of a fault?"""
        with self.lock:
            if self.faults.get(name, 0) <= 0:
                return False
            self.faults[name] -= 1
            return True


state = State()


def is_shard(name):
    return name.endswith(".safetensors")


def contents(name):
    if name == "model.safetensors.index.json" and state.has("api_climbs"):
        return b'{"metadata": {}, "weight_map": {"tensor": "../../evil.safetensors"}}'
    data = state.files[name]
    if is_shard(name) and state.has("wrong_bytes"):
        data = data[:-1] + bytes([data[-1] ^ 1])
    return data


def listing():
    siblings = []
    for name in state.files:
        data = contents(name) if name.endswith(".index.json") else state.files[name]
        size, sha256 = len(data), hashlib.sha256(data).hexdigest()
        if name == "tokenizer.json" and state.has("api_no_tokenizer"):
            continue
        if is_shard(name):
            size += state.has("api_lie_size")
            size = 2**49 if state.has("api_huge") else 0 if state.has("api_empty") else size
            size = 2**40 if state.has("api_large") and name.startswith("model-00000") else size
            sha256 = hashlib.sha256(b"lie").hexdigest() if state.has("api_lie_hash") else sha256
        entry = {"rfilename": name, "size": size,
                 "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
        if is_shard(name):
            entry["lfs"] = {"size": size, "sha256": sha256, "pointerSize": 134}
        siblings.append(entry)
    if state.has("api_climbs"):
        siblings.append({"rfilename": "../../evil.safetensors", "size": 4, "blobId": "0" * 40})
    return json.dumps({"id": "test/model", "sha": COMMIT, "siblings": siblings}).encode()


def sign(name):
    """A new address at the CDN."""
    with state.lock:
        serial = len(state.uses)
        state.uses[serial] = 0
    return f"http://localhost:{cdn_port}/signed-{serial}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two writes
    who = "hub"

    def log_message(self, *arguments):
        pass

    def note(self):
        token = self.headers.get("Authorization", "-").replace(" ", "_")
        with state.lock:
            state.log.append(f"{self.who} {self.command} {self.path} {self.headers.get('Range', '-')} {token}")

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            try:
                self.wfile.write(body)
            except OSError:
                pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.note()
        api, part = API.match(self.path), CONTENTS.match(self.path)
        if api:
            self.answer_api(api.group(1), api.group(2))
        elif part and part.group(2) == COMMIT and part.group(3) in state.files:
            self.answer_resolve(part.group(3))
        else:
            self.answer(404, b"no such thing")

    def answer_api(self, repo, revision):
        if state.has("api_status"):
            message = "the list is not for you"
            if state.has("api_message"):
                message = "x" * state.faults["api_message"] + "\u6a21" * 80
            # http.server sends headers as Latin-1: these are the bytes of UTF-8.
            self.answer(state.faults["api_status"], b"trouble",
                        X_Error_Message=message.encode().decode("latin-1"))
        elif state.has("api_elsewhere"):
            self.answer(302, Location="http://other.example/list")
        elif repo == "test/gated" and not self.headers.get("Authorization"):
            self.answer(401, b"who are you")
        elif repo == "test/missing" or revision not in ("main", "v1.0", "refs%2Fpr%2F1", COMMIT):
            self.answer(404, b"no such repository")
        elif repo == "test/moved":
            self.answer(307, Location=self.path.replace("test/moved", "test/model"))
        elif state.has("api_garbage"):
            self.answer(200, b"<html>")
        elif state.has("api_endless"):
            self.answer(200, b" " * (17 << 20))
        else:
            self.answer(200, listing())

    def answer_resolve(self, name):
        data = contents(name)
        digest = hashlib.sha256(data).hexdigest()
        if name.endswith(".index.json") and state.has("index_byte"):
            data = data.replace(b"tensor.1", b"tensor.2")
        if state.has("loop"):
            self.answer(302, Location=self.path)
        elif state.has("elsewhere"):
            self.answer(302, Location=f"http://other.example/{name}")
        elif not is_shard(name):
            self.answer(200, data, X_Repo_Commit=COMMIT)
        elif state.has("no_redirect"):
            self.answer_part(name)
        else:
            lie = hashlib.sha256(b"lie").hexdigest()
            tag = f'"{lie if state.has("links_lie") else digest}"'
            self.answer(302, Location=sign(name), X_Linked_Size=len(data) + state.has("links_lie_size"),
                        X_Linked_Etag=tag if not state.has("wrong_bytes") else '"-"', X_Repo_Commit=COMMIT)

    def answer_part(self, name):
        """A shard or a part of it, with what goes wrong."""
        data = contents(name)
        begin, end = 0, len(data)
        wanted = re.match(r"bytes=(\d+)-(\d+)$", self.headers.get("Range", ""))
        if self.command != "HEAD" and state.has("status") and (
            not state.has("times") or state.count_down("times")
        ):
            self.answer(state.faults["status"], b"trouble", Retry_After=0)
            return
        if wanted and not state.has("no_range"):
            begin, end = int(wanted.group(1)), min(int(wanted.group(2)) + 1, len(data))
            if begin >= len(data):
                self.answer(416, Content_Range=f"bytes */{len(data)}")
                return
        if state.has("empty"):
            self.answer(200, b"")
            return
        room, stalls = end - begin, False
        if self.command != "HEAD":
            if state.has("cut"):
                room = min(room, state.faults["cut"])
            if state.count_down("stall"):
                room, stalls = room // 2, True
            if state.has("budget"):
                with state.lock:
                    if state.spent >= state.faults["budget"]:
                        room = 0
                    room = min(room, state.faults["budget"] - state.spent)
                    state.spent += room
                if room == 0:
                    self.answer(503, b"no more")
                    self.close_connection = True
                    return
        headers = {}
        if wanted and not state.has("no_range"):
            shift, more = state.has("wrong_range"), state.has("wrong_total")
            headers["Content_Range"] = f"bytes {begin + shift}-{end - 1 + shift}/{len(data) + more}"
        self.answer(206 if headers else 200, data[begin:begin + room], Content_Length=end - begin, **headers)
        if stalls:
            log = state.log  # a later test has another one
            time.sleep(STALL_SECONDS)
            log.append("stall over")
        if room < end - begin:
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that went away is no news."""


class Cdn(Handler):
    who = "cdn"

    def do_GET(self):
        self.note()
        serial, name = re.match(r"^/signed-(\d+)/(.+)$", self.path).groups()
        with state.lock:
            state.uses[int(serial)] = state.uses.get(int(serial), 0) + 1
            expired = state.has("expire") and state.uses[int(serial)] > state.faults["expire"]
            hops = state.has("hops") and state.uses[int(serial)] > 1
        if state.has("cdn_elsewhere"):
            self.answer(302, Location=f"http://other.example/{name}")
        elif hops:
            self.answer(302, Location=sign(name))
        elif expired:
            self.answer(403, b"expired")
        else:
            self.answer_part(name)


def obey(line):
    words = line.split()
    with state.lock:
        if words[0] == "clear":
            state.clear()
        elif words[0] == "fault" and words[1] in KNOWN:
            state.faults[words[1]] = int(words[2]) if len(words) > 2 else 1
        elif words[0] == "log":
            for entry in state.log:
                print(entry)
        else:
            print("unknown")
    print(".", flush=True)


def main():
    global cdn_port
    for name, data in state.files.items():
        path = os.path.join(sys.argv[1], name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    hub, cdn = Server(("127.0.0.1", 0), Handler), Server(("127.0.0.1", 0), Cdn)
    cdn_port = cdn.server_port
    for server in (hub, cdn):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"ready {hub.server_port} {cdn_port}", flush=True)
    for line in sys.stdin:
        obey(line)


cdn_port = 0
if __name__ == "__main__":
    main()
