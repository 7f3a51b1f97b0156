"""The page in Debian's Chromium, against a stand-in for the server (standin.py) that says what each test wants, and
against the real one with the demo model.

    build/venv/bin/python -m pytest -q tests/server/page_test.py
"""
import json
import sys
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

sys.path.insert(0, str(Path(__file__).parent))
from page_site import PATIENCE, TOOLS, browser, make, site  # noqa: E402, F401
from serving import Server  # noqa: E402
from standin import PAGE, TYPES, Answer, policy  # noqa: E402

# ---------------------------------------------------------------- chatting


def test_an_answer_streams_with_reasoning_folded(site):
    page = site.page
    expect(page.locator("#empty-model")).to_have_text("gpt-oss-20b · context of 2,048 tokens")
    page.check("input[value=high]", force=True)
    gate = threading.Event()
    site.send("What is 2 + 2?", Answer("I add the numbers.", "2 + 2 = **4**.\n\n```c\nint x = 4;\n```", gate=gate), wait=False)
    expect(site.answer().locator("summary")).to_have_text("Thinking…")
    expect(site.answer().locator(".reasoning .text")).to_have_text("I add the numbers.")
    page.wait_for_timeout(50)  # what came in less has no rate
    gate.set()
    expect(site.answer().locator(".answer strong")).to_have_text("4")
    expect(site.answer().locator("figcaption span")).to_have_text("c")
    expect(site.answer().locator(".tok-word")).to_have_text("int")
    expect(site.answer().locator(".reasoning .text")).to_be_hidden()
    site.answer().locator("summary").click()
    expect(site.answer().locator(".reasoning .text")).to_have_text("I add the numbers.")
    assert "reused" in site.answer().locator(".stats").inner_text()
    assert "tok/s" in site.answer().locator(".stats").inner_text()
    expect(page.locator("#context")).to_have_attribute("aria-valuemax", "2048")
    body = site.standin.requests[0]
    assert body["reasoning_effort"] == "high" and body["stream"] and body["messages"] == [
        {"role": "user", "content": "What is 2 + 2?"}]


def test_the_next_turn_sends_what_was_said(site):
    site.settings(system="Be brief.")
    site.send("one", Answer("r1", "a1"))
    site.send("two", Answer("", "a2"))
    assert site.standin.requests[1]["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"},
        {"role": "assistant", "content": "a1", "reasoning_content": "r1"}, {"role": "user", "content": "two"}]


def test_sampling_settings_are_sent_and_checked(site):
    page = site.page
    page.click("#settings")
    page.click("#sampling summary")
    page.fill("#temperature", "7")
    page.click("#save-settings")
    expect(page.locator("#settings-error")).to_be_visible()
    page.fill("#temperature", "0.5")
    page.fill("#seed", "7")
    page.click("#save-settings")
    site.send("x", Answer("", "y"))
    assert site.standin.requests[0]["temperature"] == 0.5 and site.standin.requests[0]["seed"] == 7


def test_stop_keeps_what_came_and_ends_the_request(site):
    site.send("x", Answer("", "so far", hang=True), wait=False)
    expect(site.answer().locator(".answer")).to_have_text("so far")
    site.page.keyboard.press("Escape")
    expect(site.answer().locator(".stats")).to_contain_text("stopped")
    expect(site.page.locator("#send")).to_be_visible()
    deadline = time.time() + PATIENCE
    while "gone" not in site.standin.paths and time.time() < deadline:
        time.sleep(0.05)
    assert "gone" in site.standin.paths
    site.send("y", Answer("", "z"))
    assert site.standin.requests[1]["messages"][1] == {"role": "assistant", "content": "so far"}


def test_errors_are_said_and_can_be_tried_again(site):
    site.send("x", Answer(fail=(500, "the <b>model</b> broke")))
    expect(site.answer().locator(".failure span")).to_have_text("the <b>model</b> broke")
    site.standin.answers = [Answer("", "fine")]
    site.answer().locator(".failure button").click()
    expect(site.answer().locator(".answer")).to_have_text("fine")
    assert len(site.standin.requests[1]["messages"]) == 1


def test_a_server_that_ends_in_the_middle_of_an_answer(site):
    """What came stays, the page says what happened, and another try is one key away."""
    site.send("x", Answer("I think.", "Half an ans", cut=True))
    expect(site.answer().locator(".answer")).to_have_text("Half an ans")
    expect(site.answer().locator(".failure span")).to_have_text("The answer broke off: the connection was closed.")
    assert site.answer().locator(".foot button").evaluate_all("all => all.map(one => one.ariaLabel.split(':')[0])") == ["Copy", "Edit", "Branch"]
    site.standin.answers = [Answer("", "whole")]
    site.answer().get_by_text("Try again").press("Enter")
    expect(site.answer().locator(".answer")).to_have_text("whole")


def test_an_answer_whose_connection_goes_with_the_page_is_unfinished(site):
    """Firefox and WebKit take the connections away while a page that is left still runs; here the page is only told that it is left."""
    gate = threading.Event()
    site.send("x", Answer("I think.", "so far", cut=True, gate=gate), wait=False)
    expect(site.answer().locator(".reasoning .text")).to_have_text("I think.")
    site.page.evaluate("void dispatchEvent(new Event('beforeunload'))")
    gate.set()
    site.until_kept("kept.some((one) => Object.values(one.nodes).some((node) => node.content === 'so far'))")
    site.reload()
    expect(site.answer().locator(".answer")).to_have_text("so far")
    expect(site.answer().locator(".stats")).to_have_text("unfinished")
    expect(site.answer().locator(".failure")).to_have_count(0)


# ---------------------------------------------------------------- versions and conversations


def test_regenerate_edit_and_versions(site):
    page = site.page
    site.send("q", Answer("", "first"))
    site.standin.answers = [Answer("", "second")]
    site.answer().get_by_label("Answer anew").click()
    expect(site.answer().locator(".answer")).to_have_text("second")
    expect(site.answer().locator(".branches")).to_contain_text("2/2")
    site.answer().get_by_label("Previous version").click()
    expect(site.answer().locator(".answer")).to_have_text("first")
    page.locator(".message.user").hover()
    site.standin.answers = [Answer("", "third")]
    page.locator(".message.user").get_by_label("Edit", exact=True).click()
    page.locator(".edit textarea").fill("q changed")
    page.keyboard.press("Control+Enter")
    expect(site.answer().locator(".answer")).to_have_text("third")
    assert site.standin.requests[-1]["messages"] == [{"role": "user", "content": "q changed"}]
    page.locator(".message.user").get_by_label("Previous version").click()
    expect(page.locator(".message.user .text")).to_have_text("q")


def test_conversations_are_kept_and_branch(site):
    page = site.page
    site.send("first question", Answer("r", "a"))
    site.send("second question", Answer("", "b"))
    page.locator(".message.assistant").first.hover()
    page.locator(".message.assistant").first.get_by_label("Branch").click()
    expect(page.locator(".message")).to_have_count(2)
    expect(page.locator("#conversations .talk")).to_have_count(2)
    site.until_kept("kept.length === 2")
    site.until_answer_kept("b")
    page.close()
    site.open()
    page = site.page
    expect(page.locator(".message")).to_have_count(2)
    page.locator("#conversations .talk:not([aria-current])").click()
    expect(page.locator(".message")).to_have_count(4)
    page.click("#settings")
    page.click("#delete")
    page.click("#ask-ok")
    expect(page.locator("#conversations .talk")).to_have_count(1)


def test_conversations_are_searched_renamed_and_deleted_in_their_list(site):
    page = site.page
    for question, answer in (("about bread", "Flour (wheat), water."), ("about walnuts", "They are\nseeds of wheat? No."), ("about time", "nothing")):
        site.send(question, Answer("", answer))
        page.keyboard.press("Alt+n")
    page.keyboard.press("Alt+k")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("WHEAT about")  # words of the title and of an answer together
    expect(page.locator(".excerpt mark")).to_have_text(["wheat", "wheat"])
    expect(page.locator(".talk")).to_have_count(2)
    expect(page.locator("#announcer p").last).to_have_text("2 conversations found")
    page.fill("#search", "(wheat)")
    expect(page.locator(".talk .name")).to_have_text(["about bread"])
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant")).to_be_focused()
    expect(page.locator(".answer")).to_have_text("Flour (wheat), water.")
    page.fill("#search", "nowhere")
    expect(page.locator("#conversations")).to_have_text("Nothing found")
    page.keyboard.press("Escape")
    expect(page.locator(".talk")).to_have_count(3)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("F2")
    page.keyboard.type("On nuts")
    page.keyboard.press("Enter")
    expect(page.locator(".talk .name")).to_have_text(["about time", "On nuts", "about bread"])
    expect(page.locator("#title")).to_have_text("about bread")
    page.get_by_label("Delete “about time”").click()
    page.click("#ask-ok")
    expect(page.locator(".talk .name")).to_have_text(["On nuts", "about bread"])


def test_a_turn_leaves_the_messages_above_alone(site, tmp_path):
    """So that a conversation of a thousand messages streams like one of ten; what is far up is drawn later, and all of it."""
    file = tmp_path / "long.json"
    file.write_text(json.dumps({"messages": [{"role": role, "content": f"{role} {i} **bold**"} for i in range(200) for role in ("user", "assistant")]}))
    page = site.page
    page.set_input_files("#import-file", str(file))
    expect(page.locator(".message .foot")).to_have_count(400)
    expect(page.locator(".answer strong")).to_have_count(200)
    assert page.locator(".message").first.evaluate("e => getComputedStyle(e).contentVisibility") == "auto"
    page.evaluate("""() => { window.touched = 0; new MutationObserver((all) => { touched += all.filter((one) =>
        one.target.closest('.message') && !one.target.closest('.message:nth-last-child(-n+2)') || one.removedNodes.length && one.target.id === 'messages').length; })
        .observe(document.querySelector('#messages'), {childList: true, subtree: true, attributes: true, characterData: true}); }""")
    site.send("one more", Answer("r", "an answer in several pieces", pieces=4))
    expect(page.locator(".message")).to_have_count(402)
    assert page.evaluate("touched") == 0
    site.until("(() => { const s = document.querySelector('#scroll'); return s.scrollHeight - s.scrollTop - s.clientHeight < 2; })()")


def test_a_browser_without_room_says_so_and_goes_on(site):
    cdp = site.context.new_cdp_session(site.page)
    cdp.send("Storage.overrideQuotaForOrigin", {"origin": site.standin.url.rstrip("/"), "quotaSize": 50_000})
    site.listen("#notice")
    site.send("x", Answer("", "y" * 200_000, pieces=1000))
    site.until("said.includes('room for this site is used up')")  # it goes after some seconds
    site.send("z", Answer("", "goes on"))
    expect(site.answer().locator(".answer")).to_have_text("goes on")


def test_a_server_that_is_away_is_found_when_it_comes(site):
    away = [True]
    site.page.route("**/v1/models", lambda route: route.abort() if away[0] else route.continue_())
    site.page.reload()
    expect(site.page.locator("#empty-model")).to_have_text("The server cannot be reached. This page tries again.")
    away[0] = False
    expect(site.page.locator("#empty-model")).to_contain_text("gpt-oss-20b")


def test_editing_while_an_answer_runs_asks_anew(site):
    page = site.page
    site.send("q", Answer("", "never ends", hang=True), wait=False)
    expect(site.answer().locator(".answer")).to_contain_text("never ends")
    site.standin.answers = [Answer("", "to the new question")]
    page.locator(".message.user").hover()
    page.locator(".message.user").get_by_label("Edit", exact=True).click()
    page.locator(".edit textarea").fill("q changed")
    page.keyboard.press("Control+Enter")
    expect(site.answer().locator(".answer")).to_have_text("to the new question")
    expect(page.locator("#stop")).to_be_hidden()


def test_what_is_deleted_while_it_runs_stays_deleted(site):
    page = site.page
    site.send("q", Answer("", "never ends", hang=True), wait=False)
    expect(site.answer().locator(".answer")).to_contain_text("never ends")
    page.click("#settings")
    page.click("#delete")
    page.click("#ask-ok")
    expect(page.locator("#conversations .talk")).to_have_count(0)
    page.wait_for_timeout(2500)  # longer than the page waits before it saves
    site.until_kept("!kept.length")
    site.reload()
    expect(page.locator("#empty")).to_be_visible()
    expect(page.locator("#conversations .talk")).to_have_count(0)


def test_a_reload_keeps_the_draft_the_settings_and_what_came(site):
    page = site.page
    site.settings(system="Be brief.")
    page.fill("#message", "half a mess")
    site.until_kept("kept.some((one) => one.system === 'Be brief.')")
    site.reload()
    expect(page.locator("#message")).to_have_value("half a mess")
    page.click("#settings")
    expect(page.locator("#system")).to_have_value("Be brief.")
    page.keyboard.press("Escape")
    site.send("q", Answer("", "so far", hang=True), wait=False)
    expect(site.answer().locator(".answer")).to_contain_text("so far")
    site.until_kept("kept.some((one) => Object.values(one.nodes).some((node) => node.content === 'so far'))")
    site.reload()
    expect(page.locator("#message")).to_have_value("")
    expect(site.answer().locator(".answer")).to_have_text("so far")
    expect(site.answer().locator(".stats")).to_have_text("unfinished")


def test_a_message_that_is_sent_before_the_database_is_there_stays(site):
    site.page.close()
    site.context.add_init_script("""const open = IDBFactory.prototype.open; IDBFactory.prototype.open = function (...all) {
        const request = open.apply(this, all);
        Object.defineProperty(request, 'onsuccess', {set(then) { request.addEventListener('success', () => {
            window.release = then; if (sessionStorage.released) then(); }); }});
        return request; }""")
    site.open(settled=False)
    site.send("early", Answer("", "answered"))
    site.page.evaluate("sessionStorage.released = 'yes'; window.release?.()")
    expect(site.page.locator(".talk")).to_have_count(1)
    expect(site.answer().locator(".answer")).to_have_text("answered")
    site.until_answer_kept("answered")
    site.reload()
    expect(site.answer().locator(".answer")).to_have_text("answered")


def test_two_tabs_lose_nothing(site):
    one = site.page
    site.send("first", Answer("", "a"))
    site.until_answer_kept("a")
    site.open()
    two = site.page
    expect(two.locator(".message")).to_have_count(2)
    site.send("second, from the other tab", Answer("", "b"))
    expect(one.locator(".message")).to_have_count(4)
    expect(one.locator(".message.assistant .answer").last).to_have_text("b")
    site.page = one
    site.send("third", Answer("", "c"))
    assert [m["content"] for m in site.standin.requests[-1]["messages"]] == ["first", "a", "second, from the other tab", "b", "third"]
    expect(two.locator(".message")).to_have_count(6)
    one.click("#settings")
    one.click("#delete")
    one.click("#ask-ok")
    expect(two.locator("#empty")).to_be_visible()
    expect(two.locator("#conversations .talk")).to_have_count(0)


def test_tabs_that_write_at_the_same_time_lose_nothing(site):
    """The other tab kept what it had before it heard of this one: its older copy, or one that is removed here."""
    page = site.page
    write = """() => new Promise((resolve) => { const open = indexedDB.open('gossamer', 1); open.onsuccess = () => {
        const write = open.result.transaction('conversations', 'readwrite');
        write.objectStore('conversations').put(window.older);
        write.oncomplete = () => { open.result.close(); const channel = new BroadcastChannel('gossamer');
            channel.postMessage({id: window.older.id, removed: false}); resolve(); }; }; })"""
    site.send("first", Answer("", "a"))
    site.until_kept("(window.older = kept[0]) && Object.values(older.nodes).some((one) => one.content === 'a' && !one.pending)")
    site.send("second", Answer("", "b"))
    site.until_kept("Object.values(kept[0].nodes).some((one) => one.content === 'b' && !one.pending)")
    page.evaluate(write)
    site.until_kept("['first', 'a', 'second', 'b'].every((said) => Object.values(kept[0].nodes).some((one) => one.content === said))")
    expect(page.locator(".message")).to_have_count(4)
    page.click("#settings")
    page.click("#delete")
    page.click("#ask-ok")
    site.until_kept("!kept.length")
    page.evaluate(write)
    site.until_kept("!kept.length")
    expect(page.locator(".talk")).to_have_count(0)


def test_export_and_import(site, tmp_path):
    page = site.page
    site.send("<b>question</b>", Answer("r", "answer"))
    with page.expect_download() as download:
        page.click("#export")
    saved = json.loads(Path(download.value.path()).read_text())
    assert saved["format"] == "gossamer-conversations" and len(saved["conversations"]) == 1
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(saved))
    page.set_input_files("#import-file", str(file))
    expect(page.locator("#conversations .talk")).to_have_count(2)
    expect(page.locator(".message.user .text")).to_have_text("<b>question</b>")
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps({"reasoning_effort": "low", "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "reasoning": "t", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "res"}, {"role": "assistant", "content": "end"}]}))
    page.set_input_files("#import-file", str(chat))
    expect(page.locator(".message")).to_have_count(3)
    expect(page.locator(".call-result pre")).to_have_text("res")
    site.send("more", Answer("", "ok"))
    roles = [m["role"] for m in site.standin.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("content", [
    "no json", "[]x", '{"a":1}', '{"messages":[{"role":"evil"}]}', '{"conversations":[{"nodes":null}]}',
    '{"conversations":[{"nodes":{"root":{"children":["x"]},"x":{"role":"<b>"}}}]}',
    '{"conversations":[{"nodes":{"root":{"children":["x"]},"x":{"role":"user","children":["x"]}}}]}',
    '{"conversations":[{"nodes":{"root":{"children":["x"]},"x":{"role":"user","children":["root"]},"root2":{}}}]}',
    '{"conversations":[{"nodes":{"root":{"children":["x","x"]},"x":{"role":"user","children":["y","y"]},"y":{"role":"user"}}}]}',
    '{"conversations":[{"nodes":{"root":{"children":["__proto__"]}}}]}'])
def test_a_bad_file_is_refused(site, tmp_path, content):
    file = tmp_path / "bad.json"
    file.write_text(content)
    site.listen("#notice")
    site.page.set_input_files("#import-file", str(file))
    site.until("said.trim()")  # it goes after some seconds
    expect(site.page.locator("#conversations .talk")).to_have_count(0)


def test_what_no_message_asked_for_is_found_too(site, tmp_path):
    file = tmp_path / "tool.json"
    file.write_text(json.dumps({"messages": [{"role": "tool", "tool_call_id": "c", "content": "\U0001f578" * 20 + " result"}, {"role": "user", "content": "u"}]}))
    site.page.set_input_files("#import-file", str(file))
    expect(site.page.locator(".message")).to_have_count(1)
    site.page.keyboard.press("Alt+k")
    site.page.keyboard.type("result")
    expect(site.page.locator(".excerpt")).to_have_text("…" + "\U0001f578" * 7 + " result")
    site.page.keyboard.press("Enter")
    expect(site.page.locator(".message.user")).to_be_visible()


def test_a_file_sets_only_known_settings(site, tmp_path):
    file = tmp_path / "odd.json"
    file.write_text(json.dumps({"conversations": [{
        "sampling": {"temperature": 0.5, "n": 9, "messages": 3, "__proto__": 1}, "results": {"__proto__": 3}, "effort": ["high"], "leaf": {},
        "tools": json.dumps([{"name": "constructor"}, {"name": "__proto__"}]),
        "nodes": {"root": {"children": ["x"]}, "x": {"role": "user", "content": "u", "time": "now"}}}]}))
    site.page.set_input_files("#import-file", str(file))
    expect(site.page.locator(".message.user .text")).to_have_text("u")
    site.send("q", Answer("", "ok"))
    sent = site.standin.requests[-1]
    assert sent["temperature"] == 0.5 and "n" not in sent and len(sent["messages"]) == 2 and sent["reasoning_effort"] == "medium"
    site.page.click("#settings")
    assert [area.input_value() for area in site.page.locator("#fixed-results textarea").all()] == ["", ""]


# ---------------------------------------------------------------- tools


def test_results_are_typed(site):
    page = site.page
    site.settings(tools=TOOLS)
    expect(page.locator("#tools-badge")).to_have_text("2 tools")
    site.send("weather?", Answer("think", "", [("get_weather", '{"location":"Tokyo"}'), ("flat", "{}")], pieces=3))
    expect(page.locator(".call-head code")).to_have_text(["get_weather", "flat"])
    expect(page.locator(".call-form textarea").first).to_be_focused()
    page.locator(".call-form textarea").last.fill("{}")
    page.locator(".call-form textarea").first.fill("21 degrees")
    page.locator(".call-form").first.get_by_text("Use result").click()
    expect(page.locator(".call-form")).to_have_count(1)
    site.standin.answers = [Answer("", "It is 21.")]
    expect(page.locator(".call-form textarea")).to_be_focused()
    expect(page.locator(".call-form textarea")).to_have_value("{}")  # what was typed into the other field stayed
    page.keyboard.press("Control+Enter")
    expect(site.answer().locator(".answer")).to_have_text("It is 21.")
    messages = site.standin.requests[1]["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool"]
    calls = messages[1]["tool_calls"]
    assert calls[0]["function"] == {"name": "get_weather", "arguments": '{"location":"Tokyo"}'}
    assert messages[2] == {"role": "tool", "tool_call_id": calls[0]["id"], "content": "21 degrees"}
    assert messages[1]["reasoning_content"] == "think"
    assert site.standin.requests[1]["tools"][1]["function"]["name"] == "flat"


def test_results_are_simulated_or_fixed(site):
    page = site.page
    site.settings(tools=TOOLS)
    site.send("x", Answer("", "", [("get_weather", "{}")]))
    site.standin.answers = [Answer("", '{"sky":"clear"}')]
    page.click("text=Simulate")
    expect(page.locator(".call-form textarea")).to_have_value('{"sky":"clear"}')
    assert site.standin.requests[-1]["response_format"] == {"type": "json_object"}
    site.standin.answers = [Answer("", "clear")]
    page.click("text=Use result")
    expect(site.answer().locator(".answer")).to_have_text("clear")
    page.click("#settings")
    page.locator("#fixed-results textarea").first.fill("always rain")
    page.click("#save-settings")
    site.send("y", Answer("", "", [("get_weather", "{}")]), Answer("", "rain"), wait=False)
    expect(site.answer().locator(".answer")).to_have_text("rain")
    assert site.standin.requests[-1]["messages"][-1]["content"] == "always rain"


def test_open_calls_do_not_block_the_next_message(site):
    site.settings(tools=TOOLS)
    site.send("x", Answer("", "", [("flat", "{}")]))
    site.send("never mind", Answer("", "fine"))
    assert [m["role"] for m in site.standin.requests[1]["messages"]] == ["user", "assistant", "tool", "user"]


def test_bad_tools_are_refused(site):
    page = site.page
    page.click("#settings")
    for text in ("{", '[{"type":"function"}]'):
        page.fill("#tools", text)
        page.click("#save-settings")
        expect(page.locator("#settings-error")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#settings-dialog")).to_be_hidden()


# ---------------------------------------------------------------- the key


def test_the_key_is_asked_for(make):
    site = make(key="right key")
    page = site.page
    expect(page.locator("#key-dialog")).to_be_visible()
    expect(page.locator("#key")).to_be_focused()
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#key-error")).to_be_visible()
    page.fill("#key", "right key")
    page.keyboard.press("Enter")
    expect(page.locator("#key-dialog")).to_be_hidden()
    expect(page.locator("#empty-model")).to_contain_text("gpt-oss-20b")
    site.send("x", Answer("", "y"))
    assert page.evaluate("JSON.stringify(localStorage)").find("right key") < 0
    assert "right" not in page.url


# ---------------------------------------------------------------- keys, screen readers, sizes


def test_everything_by_keyboard(site):
    page = site.page
    keyboard = page.keyboard
    site.send("one", Answer("r", "a"))
    site.standin.answers = [Answer("", "again")]
    keyboard.press("Alt+r")
    expect(site.answer().locator(".answer")).to_have_text("again")
    keyboard.press("Alt+3")
    expect(page.locator("input[value=high]")).to_be_checked()
    keyboard.press("Alt+ArrowUp")
    expect(page.locator(".message").last).to_be_focused()
    keyboard.press("Alt+ArrowUp")
    expect(page.locator(".message").first).to_be_focused()
    keyboard.press("/")
    expect(page.locator("#message")).to_be_focused()
    keyboard.press("Alt+e")
    expect(page.locator(".edit textarea")).to_be_focused()
    keyboard.press("Escape")
    expect(page.locator(".edit")).to_have_count(0)
    keyboard.press("?")
    expect(page.locator("#help-dialog")).to_be_visible()
    keyboard.press("Escape")
    page.focus("#message")
    keyboard.press("Alt+h")  # in a field too, where ? is a character
    expect(page.locator("#help-dialog")).to_be_visible()
    keyboard.press("Escape")
    keyboard.press("Alt+s")
    expect(page.locator("#system")).to_be_focused()
    keyboard.press("Escape")
    keyboard.press("Alt+b")
    expect(page.locator("#sidebar")).to_be_hidden()
    keyboard.press("Alt+b")
    keyboard.press("Alt+n")
    expect(page.locator(".message")).to_have_count(0)
    expect(page.locator("#message")).to_be_focused()


def test_focus_is_visible_and_comes_in_order(site):
    page = site.page
    site.send("one", Answer("r", "a"))
    page.evaluate("document.activeElement.blur(); document.querySelector('.skip').focus()")
    seen = []
    for _ in range(40):
        info = page.evaluate("""() => { const e = document.activeElement, s = getComputedStyle(e);
            const ring = s.outlineStyle !== 'none' || e.id === 'message' || e.matches('#effort input');
            return [e.id || e.className || e.tagName, ring, (e.getAttribute('aria-label') || e.textContent || e.labels?.[0]?.textContent || '').trim()]; }""")
        if info[0] == "BODY":
            break
        seen.append(info[0])
        assert info[1], f"no visible focus: {info}"
        assert info[2], f"no name: {info}"
        page.keyboard.press("Tab")
    order = [seen.index(name) for name in ("skip", "new", "import", "settings", "message", "send") if name in seen]
    assert order == sorted(order) and "message" in seen


def test_a_screen_reader_hears_sentences(site):
    lines = site.page.locator("#announcer p")
    site.send("zero", Answer("I think about this for a while.", "", hang=True), wait=False)
    expect(lines).to_have_text(["Thinking"])
    site.page.keyboard.press("Escape")
    expect(lines).to_have_text(["Thinking", "Stopped"])
    site.send("one", Answer("", "This is the first sentence of several sentences. And this one follows right behind it. End", pieces=4, delay=0.02))
    heard = lines.all_inner_texts()
    assert heard[-1] == "End of answer"
    assert " ".join(heard[2:-1]) == "This is the first sentence of several sentences. And this one follows right behind it. End"
    unnamed = site.page.evaluate("""[...document.querySelectorAll('button, input:not([type=file]), textarea')].filter(e =>
        !(e.getAttribute('aria-label') || e.textContent.trim() || [...(e.labels ?? [])].some(l => l.textContent.trim()))).map(e => e.outerHTML)""")
    assert unnamed == []


def test_phone_width(make):
    site = make({"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True})
    page = site.page
    site.settings(tools=TOOLS)
    site.send("a question that is not short", Answer("r", "text\n\n```\n" + "long " * 60 + "\n```\n\n|a|b|\n|-|-|\n|" + "x" * 80 + "|" + "y" * 80 + "|",
                                                       [("get_weather", "{}")]))
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.querySelector('#scroll').scrollWidth <= document.querySelector('#scroll').clientWidth")
    small = page.evaluate("""[...document.querySelectorAll('#composer button, header button')].filter(e => e.offsetParent)
        .filter(e => e.getBoundingClientRect().height < 24).map(e => e.id)""")
    assert small == []
    site.standin.answers = [Answer("", "again")]
    site.answer().get_by_label("Answer anew").click()
    expect(site.answer().locator(".branches")).to_be_visible()
    assert site.answer().locator(".branches").bounding_box()["height"] < 40  # one line
    assert min(box["width"] for box in (one.bounding_box() for one in site.answer().locator(".foot .action").all())) >= 28
    page.click("#open-sidebar")
    expect(page.locator("#close-sidebar")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#sidebar")).to_be_hidden()


def test_themes(make):
    site = make({"color_scheme": "dark"})
    page = site.page
    ground = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    dark = ground()
    page.click("#theme")
    light = ground()
    assert light != dark
    page.reload()
    assert ground() == light
    page.click("#theme")
    assert ground() == dark


def contrast(one, two):
    def light(color):
        parts = [int(p) / 255 for p in color[color.index("(") + 1:-1].split(",")[:3]]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b
    high, low = sorted((light(one), light(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(make, scheme):
    site = make({"color_scheme": scheme})
    site.send("q", Answer("r", "a [l](https://example.org) `c`\n\n```c\n/* x */ int y = 1;\n```"))
    ground = site.page.evaluate("getComputedStyle(document.body).backgroundColor")
    for selector, least in ((".answer p", 7), (".answer a", 4.5), ("#title", 4.5), (".reasoning summary", 4.5), (".stats", 4.5), (".tok-comment", 4.5)):
        color = site.page.evaluate("s => getComputedStyle(document.querySelector(s)).color", selector)
        assert contrast(color, ground) >= least, selector
    site.page.click("#settings")
    site.page.click("#delete")
    expect(site.page.locator("#ask-ok")).to_be_visible()
    for button in ("#save-settings", "#ask-ok"):
        colors = site.page.evaluate("s => { const c = getComputedStyle(document.querySelector(s)); return [c.color, c.backgroundColor]; }", button)
        assert contrast(*colors) >= 4.5, button


# ---------------------------------------------------------------- the real server, the demo model

WEATHER = json.dumps([{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a place.",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}}}])


def test_with_the_demo_model(browser):
    """A fact and a loop of tools, behind a key, under the policy that the server itself sends."""
    with Server("--ctx", "2048", key="the key of this test") as server:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE * 1000)
        page = context.new_page()
        asked, complaints = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if "401" not in message.text else None)
        reply = page.goto(server.url)
        assert reply.headers["content-security-policy"] == policy()
        expect(page.locator("#key-dialog")).to_be_visible()
        page.fill("#key", "the key of this test")
        page.keyboard.press("Enter")
        expect(page.locator("#empty-model")).to_have_text("demo · context of 2,048 tokens")
        page.click("#settings")
        page.fill("#tools", WEATHER)
        page.click("#sampling summary")
        page.fill("#temperature", "0")
        page.click("#save-settings")
        page.fill("#message", "What is the capital of France?")
        expect(page.locator("#live")).to_have_text("10 tokens")
        page.keyboard.press("Enter")
        expect(page.locator(".answer")).to_have_text("The capital of France is Paris.")
        expect(page.locator(".stats")).to_contain_text("tokens · ")
        expect(page.locator("#context")).to_be_visible()
        page.fill("#message", "What is the weather in Tokyo?")
        page.keyboard.press("Enter")
        page.wait_for_selector(".call-form")
        assert json.loads(page.locator(".call pre").inner_text()) == {"location": "Tokyo"}
        page.fill(".call-form textarea", '{"temperature": 21, "sky": "sunny"}')
        page.keyboard.press("Control+Enter")
        expect(page.locator(".answer").last).to_have_text("It is sunny in Tokyo, with 21 degrees.")
        context.close()
        assert complaints == [] and all(url.startswith(server.url) for url in asked)


def test_every_file_of_the_page_is_served():
    with Server("--ctx", "512") as server:
        for file in PAGE.iterdir():
            if file.suffix in TYPES:
                path = "/" if file.name == "page.html" else f"/page/{file.name}"
                reply = server.client.get(path)
                assert reply.status_code == 200 and reply.content == file.read_bytes(), path
                assert reply.headers["content-type"] == TYPES[file.suffix]
                assert reply.headers["x-content-type-options"] == "nosniff"
        for path in ("/page/", "/page/page.c", "/page/page.html", "/page/../page.c", "/page/%2e%2e/page.c", "/page.html"):
            assert server.client.get(path).status_code == 404, path
