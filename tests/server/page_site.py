"""What the tests of the page share: a browser, and a page in it with its stand-in for the server."""
import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from standin import StandIn  # noqa: E402

PATIENCE = 300  # seconds for what must come, however busy the machine
expect.set_options(timeout=PATIENCE * 1000)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
TOOLS = json.dumps([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}},
                    {"type": "function", "name": "flat", "parameters": {"type": "object"}}])


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


class Site:
    """A page, its stand-in, and all that the page asked for or complained about."""

    def __init__(self, browser, options, **standin):
        self.standin = StandIn(**standin)
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 860}} | options))
        self.asked, self.complaints = [], []
        self.open()

    def open(self):
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self.complaints.append(message.text)
                     if "Content Security Policy" in message.text else None)
        self.page.goto(self.standin.url)

    def send(self, text, *answers, wait=True):
        self.standin.answers += answers
        self.page.fill("#message", text)
        self.page.keyboard.press("Enter")
        if wait:
            expect(self.page.locator("#stop")).to_be_hidden()
            expect(self.page.locator(".message.assistant .foot").last).to_be_visible()

    # Looks again until the page says yes to `question`, an expression that may be a promise.
    def until(self, question):
        deadline = time.monotonic() + PATIENCE
        while not self.page.evaluate(question):
            assert time.monotonic() < deadline, question
            time.sleep(0.05)

    # What the browser's database holds, to a question about `kept`, an array of conversations.
    def until_kept(self, question):
        self.until("""new Promise((resolve) => { const open = indexedDB.open('gossamer', 1); open.onsuccess = () => {
            const all = open.result.transaction('conversations').objectStore('conversations').getAll();
            all.onsuccess = () => { const kept = all.result; open.result.close(); resolve(%s); }; }; })""" % question)

    def answer(self):
        return self.page.locator(".message.assistant").last

    def settings(self, **fields):
        self.page.click("#settings")
        for name, value in fields.items():
            self.page.fill(f"#{name}", value)
        self.page.click("#save-settings")

    def close(self):
        outside = [url for url in self.asked if not url.startswith((self.standin.url, "blob:" + self.standin.url))]
        self.context.close()
        self.standin.close()
        assert outside == []
        assert self.complaints == []


@pytest.fixture
def make(browser):
    sites = []

    def build(options=None, **standin):
        sites.append(Site(browser, options or {}, **standin))
        return sites[-1]

    yield build
    for site in sites:
        site.close()


@pytest.fixture
def site(make):
    return make()
