"""The page in Debian's Firefox, and in WebKitGTK, whose engine Safari shares: what it does most, on the real server with the
demo model and on a stand-in. What is not installed is skipped.

    build/venv/bin/python -m pytest -q tests/server/page_engines_test.py
"""
import json
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from page_engines import Firefox, WebKit, missing, wait_for  # noqa: E402
from serving import Server  # noqa: E402
from standin import Answer, StandIn  # noqa: E402

WEATHER = json.dumps([{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a place.",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}}}])


@pytest.fixture(scope="module", params=[Firefox, WebKit])
def browser(request):
    if missing(request.param):
        pytest.skip(missing(request.param))
    browser = request.param()
    yield browser
    browser.close()


@pytest.fixture
def site(browser):
    """The browser on the page of a stand-in: another origin in each test, so that nothing is kept from the last one."""
    browser.standin = StandIn()
    browser.go(browser.standin.url)
    ready(browser)
    browser.resize(1200, 860)
    yield browser
    assert browser.evaluate("return window.complaints;") == []
    browser.standin.close()


def ready(browser):
    browser.until("document.querySelector('#empty-model').textContent")
    browser.evaluate("""window.complaints = []; addEventListener('error', (event) => complaints.push(event.message));
        addEventListener('unhandledrejection', (event) => complaints.push(String(event.reason)));
        addEventListener('securitypolicyviolation', (event) => complaints.push(event.violatedDirective));""")


def reload(browser):
    browser.reload()
    ready(browser)


def text(selector):
    """An expression: what the last of these elements says."""
    return f"[...document.querySelectorAll({json.dumps(selector)})].at(-1)?.textContent"


def ask(browser, question, *answers):
    if answers:
        browser.standin.answers = list(answers)
    browser.put("#message", question)
    browser.press("Enter")


def until_kept(browser, question):
    """What the browser's database holds, to a question about one message."""
    browser.until("""(await new Promise((resolve) => { const open = indexedDB.open('gossamer', 1); open.onsuccess = () => {
        const all = open.result.transaction('conversations').objectStore('conversations').getAll();
        all.onsuccess = () => { open.result.close(); resolve(all.result); }; }; }))
        .some((one) => Object.values(one.nodes).some(%s))""" % question)


def test_a_fact_and_a_tool_with_the_demo_model(browser):
    with Server("--ctx", "2048", key="the key of this test") as server:
        browser.go(server.url)
        browser.resize(1200, 860)
        browser.until("document.querySelector('#key-dialog').open")
        browser.put("#key", "the key of this test")
        browser.press("Enter")
        browser.until(text("#empty-model") + " === 'demo · context of 2,048 tokens'")
        browser.click("#settings")
        browser.put("#tools", WEATHER)
        browser.click("#sampling summary")
        browser.put("#temperature", "0")
        browser.click("#save-settings")
        browser.until("!document.querySelector('#settings-dialog').open")
        ask(browser, "What is the capital of France?")
        browser.until(text(".answer") + " === 'The capital of France is Paris.'")
        browser.until("document.querySelector('#context').checkVisibility() && " + text(".stats"))
        ask(browser, "What is the weather in Tokyo?")
        browser.until("document.querySelector('.call-form')")
        assert json.loads(browser.evaluate(f"return {text('.call pre')};")) == {"location": "Tokyo"}
        browser.put(".call-form textarea", '{"temperature": 21, "sky": "sunny"}')
        browser.press("Control+Enter")
        browser.until(text(".answer") + " === 'It is sunny in Tokyo, with 21 degrees.'")
        browser.go("about:blank")


def test_an_answer_streams_and_a_reload_keeps_it(site):
    gate = threading.Event()
    ask(site, "What is 2 + 2?", Answer("I add the numbers.", "2 + 2 = **4**.\n\n\\[\\frac{1}{2}\\]", gate=gate))
    site.until(text(".reasoning summary") + " === 'Thinking…'")
    site.until(text(".reasoning .text") + " === 'I add the numbers.'")
    gate.set()
    site.until(text(".answer strong") + " === '4' && document.querySelector('.answer math mfrac')")
    site.until(text(".message.assistant .stats"))
    assert not site.evaluate("return document.querySelector('.reasoning').open;")
    site.click(".reasoning summary")
    site.until("document.querySelector('.reasoning .text').checkVisibility()")
    until_kept(site, "(node) => node.content?.startsWith('2 + 2') && !node.pending")
    reload(site)
    site.until(text(".answer strong") + " === '4'")
    ask(site, "and?", Answer("", "again"))
    site.until(text(".answer") + " === 'again'")
    assert [message["role"] for message in site.standin.requests[-1]["messages"]] == ["user", "assistant", "user"]


def test_stop_and_a_stream_that_breaks_off(site):
    ask(site, "x", Answer("", "so far", hang=True))
    site.until(text(".answer") + " === 'so far'")
    site.press("Escape")
    site.until(text(".message.assistant .stats") + "?.includes('stopped')")
    wait_for(lambda: "gone" in site.standin.paths, "the server hears of it")
    ask(site, "y", Answer("", "Half an ans", cut=True))
    site.until(text(".failure span") + " === 'The answer broke off: the connection was closed.'")
    site.standin.answers = [Answer("", "whole")]
    site.click(".failure button")
    site.until(text(".answer") + " === 'whole'")


def test_an_answer_that_a_reload_ends_is_unfinished(site):
    """Both take the connection away while the page still runs: that is not kept as a fault of the server."""
    ask(site, "x", Answer("", "so far", hang=True))
    until_kept(site, "(node) => node.content === 'so far'")
    reload(site)
    site.until(text(".answer") + " === 'so far'")
    site.until(text(".message.assistant .stats") + " === 'unfinished'")
    assert not site.evaluate("return document.querySelector('.failure');")


def test_a_second_window_follows(site):
    ask(site, "first", Answer("", "a"))
    until_kept(site, "(node) => node.content === 'a' && !node.pending")
    first, second = site.windows()[0], site.new_window()
    site.go(site.standin.url)
    ready(site)
    site.until(text(".answer") + " === 'a'")
    ask(site, "second", Answer("", "b"))
    until_kept(site, "(node) => node.content === 'b' && !node.pending")
    site.switch(first)
    site.until(text(".answer") + " === 'b'")
    site.switch(second)
    site.close_window()
    site.switch(first)


@pytest.mark.parametrize("way", ["clipboard", "the older way"])
def test_code_is_copied(site, way):
    """The older way is that of a page that came over plain http from another machine."""
    if way != "clipboard":
        site.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined});")
    ask(site, "x", Answer("", "```sh\necho <b>\n\n  two\n```"))
    site.until(text(".message.assistant .stats"))
    site.evaluate("""window.said = []; const button = document.querySelector('figure button');
        new MutationObserver(() => said.push(button.getAttribute('aria-label'))).observe(button, {attributes: true}); button.focus();""")
    site.press("Enter")
    site.until("said[0]")
    assert site.evaluate("return [said[0], document.activeElement.closest('figure') !== null];") == ["Copied", True]
    site.click("#message")
    site.press("Control+v")
    site.until("document.querySelector('#message').value === 'echo <b>\\n\\n  two'")


def test_keys_and_themes(site):
    ask(site, "x", Answer("r", "a"))
    site.until(text(".message.assistant .stats"))
    site.press("Alt+3")
    site.until("document.querySelector('input[value=high]').checked")
    site.press("Alt+ArrowUp")
    site.until("document.activeElement.matches('.message.assistant')")
    site.press("Alt+o")
    site.until("document.querySelector('.reasoning').open")
    site.press("/")
    site.until("document.activeElement.id === 'message'")
    site.press("Alt+h")
    site.until("document.querySelector('#help-dialog').open")
    site.press("Escape")
    site.until("!document.querySelector('#help-dialog').open && document.activeElement.id === 'message'")
    grounds = []
    for theme in ("light", "dark"):
        site.press("Alt+t")
        site.until("document.documentElement.dataset.theme === arguments[0]", theme)
        grounds.append(site.evaluate("return getComputedStyle(document.body).backgroundColor;"))
    assert grounds[0] != grounds[1]
    site.press("Alt+n")
    site.until("!document.querySelector('.message')")
    assert site.evaluate("return document.querySelector('#message').value;") == ""


def test_phone_width(site):
    ask(site, "a question that is not short", Answer("r", "text\n\n```\n" + "long " * 60 + "\n```\n\n|a|b|\n|-|-|\n|" + "x" * 80 + "|" + "y" * 80
                                                     + "|\n\n\\[" + "x + " * 60 + "x\\]"))
    site.until(text(".message.assistant .stats"))
    site.resize(390, 844)
    site.until("!document.querySelector('#sidebar').checkVisibility()")
    assert site.evaluate("return document.documentElement.scrollWidth;") <= 390
    assert site.evaluate("const all = document.querySelector('#scroll'); return all.scrollWidth - all.clientWidth;") == 0
    site.click("#open-sidebar")
    site.until("document.activeElement.id === 'close-sidebar'")
    site.press("Escape")
    site.until("!document.querySelector('#sidebar').checkVisibility()")
