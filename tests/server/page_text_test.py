"""What the page makes of texts, a model's and a file's, in Debian's Chromium against a stand-in for the server.

    build/venv/bin/python -m pytest -q tests/server/page_text_test.py
"""
import json
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

sys.path.insert(0, str(Path(__file__).parent))
from page_site import TOOLS, browser, make, site  # noqa: E402, F401
from standin import Answer  # noqa: E402

HOSTILE = [
    '<script>window.pwned = 1</script>',
    '<img src=x onerror="window.pwned = 1">',
    '<svg onload="window.pwned = 1"><style>*{display:none}</style>',
    '[a](javascript:window.pwned=1) [b](JaVaScRiPt:window.pwned=1) [c](data:text/html,<script>1</script>)',
    '[d](java\tscript:window.pwned=1) [e](&#106;avascript:window.pwned=1) [f]( javascript:window.pwned=1)',
    '![i](https://evil.example/x.png) ![j](javascript:window.pwned=1) <https://evil.example"onclick="1>',
    '`<script>window.pwned = 1</script>` **<b onmouseover=window.pwned=1>x</b>**',
    '| <script>window.pwned=1</script> | b |\n|--|--|\n| <img src=x onerror=window.pwned=1> | </td></table><script>1</script> |',
    '```html"><script>window.pwned=1</script>\n</code></pre><script>window.pwned = 1</script>\n```',
    '\\(\\text{<script>window.pwned = 1</script>} <img src=x onerror="window.pwned = 1"> \\) $<svg onload=window.pwned=1>_1$',
    '# <iframe srcdoc="<script>parent.pwned=1</script>">\n> <object data=javascript:1>\n- <form action=javascript:1><button>x',
]


# ---------------------------------------------------------------- markdown


def test_markdown(site):
    text = ("# Title\n\nA *b* __c__ ~~d~~ `e*f*` snake_case_name 2 * 3 * 4 \\*g\\* [h](https://example.org/a_(b)) "
            "https://example.org/i.\n\n1. x\n2. y\n   - z\n\n3. w\n\n> q\n> r\n\n|a|b|\n|:-|-:|\n|1|2\\|3|\n\n- [x] t\n\n---\n\n"
            "````md\n```\ninner\n```\n````\nafter")
    site.send("x", Answer("", text, pieces=3))
    answer = site.answer().locator(".answer")
    expect(answer.locator(".level-1")).to_have_text("Title")
    assert answer.locator("em").all_inner_texts() == ["b"]
    assert answer.locator("strong").all_inner_texts() == ["c"]
    assert answer.locator("del").all_inner_texts() == ["d"]
    assert answer.locator("p > code").all_inner_texts() == ["e*f*"]
    assert "snake_case_name 2 * 3 * 4 *g*" in answer.locator("p").first.inner_text()
    assert [a.get_attribute("href") for a in answer.locator("a").all()] == ["https://example.org/a_(b)", "https://example.org/i"]
    assert answer.locator("ol").count() == 1 and answer.locator("ol > li").count() == 3
    assert answer.locator("ol ul li").all_inner_texts() == ["z"]
    assert answer.locator("td").all_inner_texts() == ["1", "2|3"]
    assert answer.locator("blockquote").inner_text() == "q\nr"
    assert answer.locator("li.task input").is_checked()
    assert answer.locator("hr").count() == 1
    assert answer.locator("pre").inner_text() == "```\ninner\n```"
    assert answer.locator("> p").last.inner_text() == "after"


def test_lists_are_tight_or_loose_and_begin_where_their_text_does(site):
    """A blank line deep inside one item parts nothing outside; one between two items parts all of that list."""
    text = ("- a\n  - b\n\n    c\n- d\n\nText.\n\n1. x\n\n2. y\n3. z\n\n"
            "\u05d0\u05d1\n\n- \u05d0\n- \u05d1\n\n> \u05d0\n\n|\u05d0|b|\n|-|-|\n|1|2|")
    site.send("x", Answer("", text, pieces=4))
    answer = site.answer().locator(".answer")
    assert answer.locator("> ul:not([dir]) > li > p").count() == 0 and answer.locator("ul ul.loose > li > p").all_inner_texts() == ["b", "c"]
    assert answer.locator("> ol.loose > li > p").all_inner_texts() == ["x", "y", "z"]
    assert answer.locator("ul[dir=rtl] > li").count() == 2 and answer.locator("blockquote[dir=rtl], .table[dir=rtl]").count() == 2


def test_formulas(site):
    text = ("Inline \\(a_1^2 + \\frac{1}{\\sqrt{x}}\\), $y = mx$, not $5 or $6 nor \\(\\unheard{x}\\), \\(\\sqrt[\\sqrt[3]{2}]{x}\\), _soft_.\n\n"
            "Thus:\n\\[\n\\sum\\limits_{i=1}^{n} \\left( i\n+ \\text{if any} \\right)\n= \\begin{cases} 1 & x > 0 \\\\[2pt] 0 & \\text{else} \\end{cases}\n\\]\n"
            "$$\\mathbf{x}' \\in \\mathbb{R}$$\n\\[ never closed")
    site.send("x", Answer("", text, pieces=3))
    answer = site.answer().locator(".answer")
    assert answer.locator("p math").evaluate_all("all => all.map(one => one.textContent)") == ["a12+1x", "y=mx"]
    assert answer.locator("p math msubsup").count() == answer.locator("p math mfrac msqrt").count() == 1
    assert "not $5 or $6 nor" in answer.locator("p").first.inner_text()
    assert answer.locator("p code").all_inner_texts() == ["\\unheard{x}", "\\sqrt[\\sqrt[3]{2}]{x}"] and answer.locator("em").all_inner_texts() == ["soft"]
    blocks = answer.locator(".formula > math[display=block]")
    assert blocks.evaluate_all("all => all.map(one => one.textContent)") == ["∑i=1n(i+if\u00a0any)={1x>00else", "𝐱′∈ℝ"]
    assert blocks.first.locator("munderover").count() == 1 and blocks.first.locator("mtable.cases mtr").count() == 2
    expect(answer.locator("> p").last).to_have_text("[ never closed")


def test_a_table_has_a_thousand_columns_at_most(site):
    site.send("x", Answer("", "|a" * 1000 + "|\n" + "|-" * 1000 + "|", pieces=100_000), Answer("", "|a" * 1001 + "|\n" + "|-" * 1001 + "|", pieces=100_000))
    expect(site.answer().locator("th")).to_have_count(1000)
    site.send("y")
    expect(site.answer().locator("p")).to_contain_text("|a|a|")
    assert site.answer().locator("table").count() == 0


def test_code_is_copied(site):
    site.context.grant_permissions(["clipboard-read", "clipboard-write"])
    site.send("x", Answer("", "```sh\necho <b>\n\n  two\n```"))
    site.listen("figure button", "aria-label")
    site.page.click("figure button")
    site.until("said.startsWith('Copied')")  # it goes after a moment
    assert site.page.evaluate("navigator.clipboard.readText()") == "echo <b>\n\n  two"


def test_code_is_copied_where_there_is_no_clipboard(site):
    """As on a page that came over plain http from another machine. Who copies with a key stays on the button."""
    page = site.page
    page.evaluate("void Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    site.send("x", Answer("", "```sh\necho <b>\n\n  two\n```"))
    site.listen("figure button", "aria-label")
    page.locator("figure button").press("Enter")
    site.until("said.startsWith('Copied')")
    expect(page.locator("figure button")).to_be_focused()
    page.focus("#message")
    page.keyboard.press("Control+v")
    expect(page.locator("#message")).to_have_value("echo <b>\n\n  two")


# ---------------------------------------------------------------- hostile text


def unharmed(site):
    page = site.page
    page.wait_for_timeout(100)
    assert page.evaluate("window.pwned") is None
    assert page.locator("#messages :is(script, img, iframe, object, style, form, svg style)").count() == 0
    for a in page.locator("#messages a").all():
        assert a.get_attribute("href").startswith(("https://", "http://", "mailto:"))
        assert a.get_attribute("rel").startswith("noopener")
    events = page.evaluate("[...document.querySelectorAll('#messages *')].flatMap(e => [...e.attributes])"
                           ".filter(a => a.name.startsWith('on')).length")
    assert events == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_model_says_never_becomes_markup(site, text):
    site.settings(tools=TOOLS)
    site.send(text, Answer(text, text, [(text, text)], pieces=7))
    site.answer().locator("summary").click()
    unharmed(site)
    assert text.split("\n")[0].replace("\t", " ")[:10].strip() in site.page.locator(".message.user .text").inner_text().replace("\t", " ")


def test_what_a_file_says_never_becomes_markup(site, tmp_path):
    file = tmp_path / "x.json"
    nodes = {"root": {"children": ["a"]}, "a": {"role": "user", "content": HOSTILE[1], "children": ["b"]},
             "b": {"role": "assistant", "content": "\n\n".join(HOSTILE), "reasoning": HOSTILE[0], "children": [],
                   "stats": {"output": HOSTILE[1]}, "calls": [{"name": HOSTILE[1], "arguments": HOSTILE[0]}]}}
    file.write_text(json.dumps({"conversations": [{"title": HOSTILE[1], "effort": HOSTILE[0], "nodes": nodes, "leaf": "b"}]}))
    site.page.set_input_files("#import-file", str(file))
    expect(site.page.locator(".message")).to_have_count(2)
    expect(site.page.locator("#title")).to_have_text(HOSTILE[1])
    unharmed(site)


@pytest.mark.parametrize("text", [
    "x" * 1_000_000, "word " * 100_000, "[" * 60_000, "*" * 60_000, "`" * 60_001, "![](" * 20_000, "_a" * 40_000,
    ">" * 20_000 + " x", "- " * 20_000 + "x", "|" * 30_000 + "\n" + "|-" * 15_000 + "|", "\n" * 100_000, "1. a\n" * 10_000,
    "```\n" + "y" * 500_000, "a\n> b\n" * 10_000, "http://a" * 20_000,
    ("\\(x " * 4_900 + "\\)\n\n") * 8, "$$" + "{" * 3000 + "^x_" * 300 + "$$", "\\[\n" * 20_000], ids=lambda text: text[:6].replace("\n", "n"))
def test_huge_and_odd_text_is_drawn_in_time(site, text):
    cdp = site.context.new_cdp_session(site.page)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    site.send("x", Answer("", text, pieces=100_000))
    spent = {one["name"]: one["value"] for one in cdp.send("Performance.getMetrics")["metrics"]}
    assert 0 < spent["TaskDuration"] < 60  # of the page's own processor time: minutes, if something in it were quadratic
    wide = site.page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide
