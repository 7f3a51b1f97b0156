"""Open WebUI itself, started by the line of docs/server-dialects.md with the test's ports and a folder of its own, its page in
Chromium: the first user signs up and asks the demo model for a fact, behind which come titles, tags and follow-up questions;
and a call of one of its own functions, against scripted tokens. OPEN_WEBUI says where its program is (`pip install open-webui`,
7 GB in an environment of its own); else the tests are skipped.

    OPEN_WEBUI=.../bin/open-webui GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/open_webui_test.py
"""
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from serving import PATIENCE, ROOT, Server, free_port, line  # noqa: E402

PROGRAM = os.environ.get("OPEN_WEBUI")
TYPED = re.search(r"^Open WebUI, .*:\n\n {4}(.*)\n", (ROOT / "docs/server-dialects.md").read_text(), re.M)[1]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
program = pytest.mark.skipif(not PROGRAM, reason="OPEN_WEBUI does not say where the program is")

THINK = "<|channel|>analysis<|message|>I look at the clock.<|end|><|start|>assistant"
CALL = THINK + "<|channel|>commentary to=functions.get_current_timestamp <|constrain|>json<|message|>{}<|call|>"
FINAL = THINK + "<|channel|>final<|message|>It is **late**.<|return|>"


class WebUI:
    """The program and one tab of its page."""

    def __init__(self, server, folder, **settings):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/"
        typed = TYPED.replace("http://127.0.0.1:8080/", server.url + "/").replace("--port 3000", f"--port {port}")
        assert server.url in typed and str(port) in typed
        environment = {"PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}", "HOME": str(folder), "DATA_DIR": str(folder),
                       "HF_HUB_OFFLINE": "1", **settings}  # nothing is fetched from the hub
        self.log = open(folder / "log.txt", "wb")
        self.process = subprocess.Popen(["sh", "-c", f"exec env {typed}"], env=environment, cwd=folder, stdout=self.log, stderr=subprocess.STDOUT)
        self.playwright = sync_playwright().start()
        self.browser = self.playwright.chromium.launch(executable_path=CHROMIUM)
        self.page = self.browser.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        expect.set_options(timeout=PATIENCE * 1000)

    def ask(self, text):
        end = time.time() + PATIENCE
        while True:
            try:
                if httpx.get(self.url + "health", trust_env=False).status_code == 200:
                    break
            except httpx.HTTPError:
                assert self.process.poll() is None and time.time() < end
            time.sleep(0.5)
        self.page.goto(self.url)
        self.page.get_by_text("Get started").first.click()
        for field, value in ("Full Name", "Ada"), ("Email", "ada@example.org"), ("Password", "Passwords-are-long-1"):
            self.page.get_by_placeholder("Enter Your " + field).fill(value)
        self.page.get_by_text("Create Admin Account").click()
        welcome = self.page.get_by_text("Okay, Let's Go!")
        expect(welcome.or_(self.page.locator("#chat-input")).first).to_be_visible()
        if welcome.count():
            welcome.click()
        self.page.click("#chat-input")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def close(self):
        self.browser.close()
        self.playwright.stop()
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.log.close()


@pytest.fixture
def webui(tmp_path):
    opened = []

    def build(server, **settings):
        opened.append(WebUI(server, tmp_path, **settings))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


def finished(server, count):
    """Waits for so many answered chats; returns their lines of the log."""
    end = time.time() + PATIENCE
    while time.time() < end:
        rows = [row for row in server.logged().splitlines() if "POST /v1/chat/completions" in row]
        if len(rows) >= count:
            return rows
        time.sleep(0.2)
    raise AssertionError(server.logged())


def test_the_line_is_the_same_in_both_documents():
    assert f"`{TYPED}`" in (ROOT / "README.md").read_text()


@program
def test_a_fact(webui):
    with Server("--ctx", "8192") as server:
        one = webui(server)
        one.ask("What is the capital of Japan?")
        expect(one.page.locator("body")).to_contain_text("The capital of Japan is Tokyo.")
        expect(one.page.locator("body")).to_contain_text("Thought for")
        assert all(" 200 " in row for row in finished(server, 4))


@program
def test_a_call_of_its_own_function(webui):
    off = {f"ENABLE_{what}_GENERATION": "False" for what in ("TITLE", "TAGS", "FOLLOW_UP")}
    with Server("--ctx", "8192", script=[line(CALL), line(FINAL)]) as server:
        one = webui(server, **off)
        one.ask("What time is it?")
        expect(one.page.locator("strong", has_text="late")).to_be_visible()
        assert all(" 200 " in row for row in finished(server, 2))
