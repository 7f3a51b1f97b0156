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
        browser = playwright.chromium.launch(executable_path=CHROMIUM, timeout=PATIENCE * 1000)
        yield browser
        browser.close()


class Site:
    """A page, its stand-in, and all that the page asked for or complained about."""

    def __init__(self, browser, options, **standin):
        self.standin = StandIn(**standin)
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 860}} | options))
        self.asked, self.complaints = [], []
        self.open()

    def open(self, settled=True):
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self.complaints.append(message.text)
                     if "Content Security Policy" in message.text else None)
        self.page.goto(self.standin.url)
        if settled:
            self.settled()

    # Until the page has read what it kept, and has asked for the model: what is done before is for another conversation.
    def settled(self):
        self.until("document.querySelector('#empty-model').textContent || document.querySelector('#key-dialog').open")

    def reload(self):
        self.page.reload()
        self.settled()

    def send(self, text, *answers, wait=True):
        self.standin.answers += answers
        self.page.fill("#message", text)
        self.page.keyboard.press("Enter")
        if wait:
            expect(self.page.locator("#stop")).to_be_hidden()
            expect(self.page.locator(".message.assistant .foot").last).to_be_visible()

    # From now on `window.said` is all that came to stand in an element, or in an attribute of it: some goes after a while.
    def listen(self, selector, attribute=None):
        self.page.evaluate("""([selector, attribute]) => { window.said = ''; const one = document.querySelector(selector);
            new MutationObserver(() => { said += (attribute ? one.getAttribute(attribute) : one.hidden ? '' : one.textContent) + '\\n'; })
                .observe(one, {childList: true, characterData: true, subtree: true, attributes: true}); }""", [selector, attribute])

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

    def until_answer_kept(self, text):
        self.until_kept("kept.some((one) => Object.values(one.nodes).some((node) => node.content === '%s' && !node.pending))" % text)

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
