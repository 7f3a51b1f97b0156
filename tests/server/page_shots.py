"""Pictures of the page for docs/server-page.md, with answers from the stand-in.

    build/venv/bin/python tests/server/page_shots.py docs
"""
import json
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from page_site import CHROMIUM  # noqa: E402
from standin import Answer, StandIn  # noqa: E402

ANSWER = """A **gossamer** is a fine strand of spider silk that drifts in the air. Young spiders climb, raise the abdomen and let out \
threads until the wind, and the electric field of the air, carry them off.

| Material | Strength, GPa | Density, g/cm³ |
|:--|--:|--:|
| Dragline silk | 1.1 | 1.3 |
| Steel | 1.5 | 7.8 |

The force at which a thread breaks is its strength times its section, \\(F = \\sigma \\, \\pi r^2\\):

```python
def breaking_force(diameter, strength=1.1e9):
    \"\"\"Newtons, for a round thread; the diameter in metres.\"\"\"
    radius = diameter / 2
    return strength * 3.14159 * radius ** 2  # 4 micrometres: 0.014 N
```
"""
REASONING = ("The user asks what gossamer is and how strong it is. I should explain ballooning briefly, compare with steel, and give "
             "a small formula. A table and a few lines of code are enough.")
TOOL = '[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]'

EARLIER = ["A proof that primes never end", "Bread with walnuts", "تاريخ بغداد", "Rename files by date in a shell"]


def fill_list(page, folder):
    for number, title in enumerate(EARLIER):
        file = Path(folder) / f"{number}.json"
        file.write_text(json.dumps({"messages": [{"role": "user", "content": title}, {"role": "assistant", "content": "…"}]}))
        page.set_input_files("#import-file", str(file))
        expect(page.locator(".talk")).to_have_count(number + 1)
    page.keyboard.press("Alt+n")


def talk(page, standin, text, *answers):
    standin.answers = list(answers)
    page.fill("#message", text)
    page.keyboard.press("Enter")
    expect(page.locator(".message").last.locator(".stats")).to_be_visible(timeout=30000)
    page.wait_for_timeout(400)


def main(folder):
    standin = StandIn(n_ctx=32768)
    looks = {"light": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
             "dark": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
             "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "is_mobile": True, "has_touch": True}}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        for name, options in looks.items():
            page = browser.new_context(**options).new_page()
            page.goto(standin.url)
            with tempfile.TemporaryDirectory() as files:
                fill_list(page, files)
            talk(page, standin, "What is gossamer, and how strong is it?", Answer(REASONING, ANSWER, pieces=5, delay=0.012))
            if name != "light":
                page.click("#settings")
                page.fill("#tools", TOOL)
                page.click("#save-settings")
                talk(page, standin, "Is there wind in Tokyo now?", Answer("I ask the function.", "", [("get_weather", '{"location": "Tokyo"}')],
                                                                         pieces=5, delay=0.012))
            else:
                page.click(".reasoning summary")
                page.evaluate("document.querySelector('#scroll').scrollTop = 0")
                page.mouse.move(5, 400)
            page.wait_for_timeout(300)
            page.screenshot(path=f"{folder}/server-page-{name}.png")
        browser.close()
    standin.close()


if __name__ == "__main__":
    main(sys.argv[1])
