"""Faults while the server is loaded: clients that are killed in the middle of a stream, readers that hardly read, a cache
folder whose disk fills up, SIGTERM, SIGKILL and the next start. Whoever stays gets the very bytes that it gets alone.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q -s tests/server/fault_test.py

Short by default; FAULT_SECONDS=120 FAULT_KILLS=20 is the long run, FAULT_FOLDER=/mnt/small puts the cache on a small disk.
"""
import json
import os
import random
import re
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parent))
from serving import PATIENCE, Server, joined, read_event  # noqa: E402

SECONDS = float(os.environ.get("FAULT_SECONDS", "1"))
KILLS = int(os.environ.get("FAULT_KILLS", "1"))
CHAT = "/v1/chat/completions"
QUESTIONS = ["What is the capital of Japan?", "What is 23 + 45?", "Tell me a story", "What is the atomic number of iron?",
             "Tell me a story about a cat that lived in a house by the sea. " * 9]


def question(number, **more):
    return {"messages": [{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}], "temperature": 0, "max_tokens": 50,
            **more}


def start(folder):
    return Server("--ctx", "1024", "--parallel", "8", "--queue", "48", "--precision", "exact", "--cache-mib", "16",
                  "--cache-dir", str(folder), "--cache-dir-mib", "64", "--cache-dir-seconds", "0", "--stop-seconds", "0")


def bytes_of(body):
    data = json.dumps(body).encode()
    return (f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


class Load:
    """Clients of all kinds against one server, until they are told to stop or it is gone."""

    def __init__(self, server, expected):
        self.server, self.expected = server, expected
        self.stops, self.lock = threading.Event(), threading.Lock()
        self.counts = {"whole": 0, "refused": 0, "killed": 0, "hardly read": 0, "cut with an event": 0, "cut without": 0, "no answer": 0, "no connection": 0}
        self.wrong = []
        self.threads = [threading.Thread(target=self.repeat, args=(kind, i)) for kind, count in
                        ((self.stay, 8), (self.kill, 8), (self.hardly_read, 6)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def repeat(self, kind, number):
        generator = random.Random(number)
        while not self.stops.is_set():
            try:
                kind(generator)
            except (httpx.TransportError, OSError):
                if self.server.process.poll() is not None or self.stops.is_set():
                    return
                self.count("no answer" if kind == self.stay else "no connection")
                time.sleep(0.01)

    def stay(self, generator):
        """Reads to the end: [DONE] with the right text, or, where the server is stopped, an error event."""
        number = generator.randrange(len(QUESTIONS))
        with httpx.Client(base_url=self.server.url, timeout=PATIENCE, trust_env=False, verify=False) as client:
            with client.stream("POST", CHAT, json=question(number, stream=True)) as response:
                if response.status_code in (429, 503):
                    self.count("refused")
                    time.sleep(0.05)
                    return
                try:
                    events = [read_event(text) for text in response.iter_lines() if text.startswith("data: ")]
                except httpx.TransportError:
                    self.count("cut without")
                    return
        if response.status_code == 200 and events and events[-1] == "[DONE]" and joined(events)["content"] == self.expected[number]:
            self.count("whole")
        elif events and events[-1] != "[DONE]" and events[-1].get("error", {}).get("code") == "shutting_down":
            self.count("cut with an event")
        else:
            self.wrong.append((response.status_code, number, events[-1:]))

    def kill(self, generator):
        """As where a process is killed: what it has not read makes the kernel reset the connection."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE) as connection:
            data = bytes_of(question(generator.randrange(100), stream=generator.random() < 0.9, temperature=1))
            if generator.random() < 0.1:
                data = data[:generator.randrange(1, len(data))]
            connection.sendall(data)
            if generator.random() < 0.8 and len(data) > 500:
                connection.settimeout(0.5)
                try:
                    connection.recv(generator.randrange(1, 3000))
                except TimeoutError:
                    pass
            if generator.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.count("killed")
        time.sleep(generator.uniform(0, 0.05))

    def hardly_read(self, generator):
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.settimeout(1)
            connection.connect(("127.0.0.1", self.server.port))
            connection.sendall(bytes_of(question(2, stream=True, max_tokens=900, temperature=1)))
            end = time.time() + generator.uniform(0.5, 4)
            while time.time() < end and not self.stops.is_set():
                try:
                    if not connection.recv(40):
                        break
                except TimeoutError:
                    pass
                time.sleep(0.05)
        self.count("hardly read")

    def stop(self):
        self.stops.set()
        self.join()

    def join(self):
        for thread in self.threads:
            thread.join(PATIENCE)
        assert not self.wrong, self.wrong[:3]


def answers(server):
    return [server.chat(q["messages"], max_tokens=50).json()["choices"][0]["message"]["content"]
            for q in (question(i) for i in range(len(QUESTIONS)))]


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def kill(server):
    server.process.kill()
    server.process.wait(PATIENCE)


def tidy(server):
    server.client.close()
    server.process.stdout.close()
    server.log.close()
    server.folder.cleanup()


def test_faults_under_load(tmp_path):
    folder = Path(os.environ.get("FAULT_FOLDER", tmp_path)) / "cache"
    with Server("--ctx", "1024", "--precision", "exact", "--cache-mib", "0", "--quiet") as alone:
        expected = answers(alone)

    server = start(folder)
    before, most = descriptors(server), 0
    load, memory, end = Load(server, expected), [], time.time() + SECONDS
    while not memory or time.time() < end or not (load.counts["whole"] and load.counts["killed"]):
        time.sleep(min(1.0, SECONDS / 4))
        memory.append(server.memory() / 2 ** 20)
        most = max(most, descriptors(server))
        assert time.time() < end + PATIENCE, load.counts
    load.stop()
    end = time.time() + PATIENCE
    while server.metric("running") > 0 or server.metric("waiting") > 0:
        assert time.time() < end
        time.sleep(0.05)
    assert load.counts["cut without"] == 0 and load.counts["no answer"] == 0, load.counts
    while descriptors(server) > before:  # of connections whose clients have left
        assert time.time() < end
        time.sleep(0.05)
    assert server.metric("failed_total") == 0 and answers(server) == expected
    full = server.logged().count("cannot write")
    print(f"\n{SECONDS:.0f} s: {load.counts}; {server.metric('cancelled_total'):.0f} answers given up by the server; memory "
          f"{min(memory[len(memory) // 3:]):.1f} to {max(memory[len(memory) // 3:]):.1f} MiB; "
          f"{server.metric('prefix_files'):.0f} prefix files, {full} times the disk was full; "
          f"{before} descriptors before, at most {most} under load")

    # SIGTERM: every stream that is under way has an end, and the process ends well.
    load = Load(server, expected)
    time.sleep(min(1.0, SECONDS / 4))
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(PATIENCE)
    load.stop()
    assert load.counts["cut without"] == 0, load.counts
    print(f"SIGTERM: {load.counts}")
    server.close()

    # SIGKILL, again and again: what is in the folder is whole, and serves the next start.
    totals, found = {}, 0
    for _ in range(KILLS):
        server = start(folder)
        assert ", 0 damaged" in server.logged(), server.logged()
        found += int(re.search(r"cache folder: (\d+) prefixes", server.logged()).group(1))
        load = Load(server, expected)
        time.sleep(random.uniform(0.2, min(1.5, SECONDS / 3)))
        kill(server)
        load.stop()
        tidy(server)
        totals = {k: totals.get(k, 0) + v for k, v in load.counts.items()}
    with start(folder) as server:
        assert ", 0 damaged" in server.logged() and answers(server) == expected
        print(f"{KILLS} times SIGKILL and the next start: {totals}; {found} prefixes found in all, none damaged; "
              f"{server.metric('prefix_files_read_total'):.0f} read at the end")
