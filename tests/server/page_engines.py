"""Firefox and WebKitGTK's MiniBrowser, each spoken to in its own protocol, with no package between: Marionette over a socket,
WebDriver over HTTP. Both name the same commands, so that one `Browser` serves both."""
import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from serving import free_port  # noqa: E402

PATIENCE = 300  # seconds for what must come, however busy the machine
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Control": "\ue009", "Alt": "\ue00a", "ArrowUp": "\ue013"}
FIREFOX = os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
WEBKIT_DRIVER, XVFB = shutil.which("WebKitWebDriver"), shutil.which("Xvfb")

# Windows as narrow as a phone; a mouse, which a browser without a screen does not see; no traffic of the browser's own.
GTK_CHROME = "* { min-width: 0; padding: 0; margin: 0; font-size: 4px; }"
FIREFOX_CHROME = ":root, #browser { min-width: 0 !important; }"
FIREFOX_PREFERENCES = {
    "marionette.port": 0, "ui.primaryPointerCapabilities": 6, "ui.allPointerCapabilities": 6, "ui.systemUsesDarkTheme": 0,
    "toolkit.legacyUserProfileCustomizations.stylesheets": True, "network.dns.disabled": True,
    "browser.shell.checkDefaultBrowser": False, "browser.aboutwelcome.enabled": False, "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False, "app.update.disabledForTesting": True, "browser.startup.page": 0,
    "services.settings.server": "data:,", "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False,
    "browser.safebrowsing.downloads.enabled": False, "extensions.systemAddon.update.enabled": False,
}


def wait_for(question, what):
    """What `question` returns, as soon as that is true."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := question()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return answer


class Refused(Exception):
    """The browser did not do what it was told."""


class Browser:
    """One window at a time of one browser. What is below `command` is the same for both."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.processes, self.version = [], None
        try:
            self.begin()
        except BaseException:
            self.close()
            raise

    def start(self, *arguments, **options):
        self.processes.append(subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                               env={**os.environ, "HOME": self.folder.name, **options.pop("env", {})}, **options))
        return self.processes[-1]

    def close(self):
        with contextlib.suppress(OSError, Refused):
            if self.version:
                self.end()
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.folder.cleanup()

    def evaluate(self, script, *arguments):
        """What a function body returns in the page; a promise is waited for."""
        answer = self.command("WebDriver:ExecuteAsyncScript", "POST", "execute/async", {"args": list(arguments), "script":
            "const done = arguments[arguments.length - 1]; Promise.resolve((async function () { %s }).apply(null, arguments))"
            ".then((value) => done({value: value === undefined ? null : value}), (error) => done({error: String(error)}));" % script})

        if "error" in answer:
            raise Refused(answer["error"])
        return answer["value"]

    def until(self, expression, *arguments):
        return wait_for(lambda: self.evaluate(f"return {expression};", *arguments), expression)

    def go(self, url):
        self.command("WebDriver:Navigate", "POST", "url", {"url": url})

    def reload(self):
        self.command("WebDriver:Refresh", "POST", "refresh", {})

    def actions(self, *sources):
        self.command("WebDriver:PerformActions", "POST", "actions", {"actions": list(sources)})

    def press(self, combination):
        """As on a keyboard: "Alt+k"."""
        keys = [KEYS.get(key, key) for key in combination.split("+")]
        self.actions({"type": "key", "id": "keyboard", "actions": [{"type": "keyDown", "value": key} for key in keys]
                      + [{"type": "keyUp", "value": key} for key in reversed(keys)]})

    def point(self, selector, *more):
        """Brings the mouse to the middle of the last element that `selector` finds, once that can be reached there."""
        x, y = self.until("""(() => { const one = [...document.querySelectorAll(arguments[0])].at(-1);
            if (!one || !one.checkVisibility()) return null;
            one.scrollIntoView({block: 'nearest'});
            const box = one.getBoundingClientRect(), x = Math.floor(box.x + box.width / 2), y = Math.floor(box.y + box.height / 2);
            const hit = document.elementFromPoint(x, y);
            return hit && one.contains(hit) ? [x, y] : null; }).apply(null, arguments)""", selector)
        self.actions({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"},
                      "actions": [{"type": "pointerMove", "duration": 0, "x": x, "y": y, "origin": "viewport"}, *more]})

    def click(self, selector):
        self.point(selector, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0})

    def put(self, selector, text):
        """In place of what a field holds, as if it were pasted."""
        self.click(selector)
        self.until("document.activeElement.matches(arguments[0])", selector)
        self.evaluate("document.activeElement.select(); document.execCommand('insertText', false, arguments[0]);", text)

    def resize(self, width, height):
        """The page's own width and height, without what the browser draws around it."""
        rect = self.command("WebDriver:GetWindowRect", "GET", "window/rect", {})
        more = self.evaluate("return [arguments[0] - innerWidth, arguments[1] - innerHeight];", width, height)
        self.command("WebDriver:SetWindowRect", "POST", "window/rect", {"width": rect["width"] + more[0], "height": rect["height"] + more[1]})
        self.until("innerWidth === arguments[0] && innerHeight === arguments[1]", width, height)

    def windows(self):
        return self.command("WebDriver:GetWindowHandles", "GET", "window/handles", {})

    def new_window(self):
        made = self.command("WebDriver:NewWindow", "POST", "window/new", {"type": "window"})["handle"]
        self.switch(made)
        return made

    def close_window(self):
        self.command("WebDriver:CloseWindow", "DELETE", "window", {})

    def switch(self, handle):
        self.command("WebDriver:SwitchToWindow", "POST", "window", {"handle": handle})


class Firefox(Browser):
    def begin(self):
        profile = Path(self.folder.name) / "profile"
        (profile / "chrome").mkdir(parents=True)
        (profile / "chrome/userChrome.css").write_text(FIREFOX_CHROME)
        (profile / "user.js").write_text("".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in FIREFOX_PREFERENCES.items()))
        process = self.start(FIREFOX, "--headless", "--marionette", "--no-remote", "--profile", str(profile), "about:blank")
        port = profile / "MarionetteActivePort"
        wait_for(lambda: process.poll() is not None or (port.exists() and port.read_text().strip()), "Firefox listens")
        assert process.poll() is None, "Firefox ended"
        self.socket = socket.create_connection(("127.0.0.1", int(port.read_text())), timeout=PATIENCE)
        self.stream, self.number = self.socket.makefile("rb"), 0
        self.receive()
        made = self.command("WebDriver:NewSession", None, None, {"capabilities": {"alwaysMatch": {"timeouts": {"script": PATIENCE * 1000}}}})
        self.version = f"Firefox {made['capabilities']['browserVersion']}"

    def receive(self):
        digits = b""
        while (byte := self.stream.read(1)) != b":":
            assert byte, "Firefox hung up"
            digits += byte
        return json.loads(self.stream.read(int(digits)))

    def command(self, name, _method, _path, parameters):
        self.number += 1
        text = json.dumps([0, self.number, name, parameters]).encode()
        self.socket.sendall(b"%d:%s" % (len(text), text))
        _, _, error, result = self.receive()
        if error:
            raise Refused(error["message"])
        return result["value"] if isinstance(result, dict) and list(result) == ["value"] else result

    def end(self):
        self.command("Marionette:Quit", None, None, {"flags": ["eForceQuit"]})
        self.socket.close()
        self.processes[0].wait(PATIENCE)


class WebKit(Browser):
    def begin(self):
        style = Path(self.folder.name) / ".config/gtk-3.0/gtk.css"
        style.parent.mkdir(parents=True)
        style.write_text(GTK_CHROME)
        read, write = os.pipe()
        self.start(XVFB, "-displayfd", str(write), "-screen", "0", "1600x1200x24", "-nolisten", "tcp", pass_fds=[write])
        os.close(write)
        with os.fdopen(read) as said:
            display = f":{int(said.readline())}"
        self.port = free_port()
        self.driver = self.start(WEBKIT_DRIVER, f"--port={self.port}", env={
            "DISPLAY": display, "GTK_THEME": "Adwaita", "GDK_BACKEND": "x11", "NO_AT_BRIDGE": "1",
            "XDG_RUNTIME_DIR": self.folder.name, "XDG_CONFIG_HOME": str(Path(self.folder.name) / ".config"), "LIBGL_ALWAYS_SOFTWARE": "1"})
        wait_for(self.listens, "WebKitWebDriver listens")
        made = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {"timeouts": {"script": PATIENCE * 1000}}}})
        self.session = made["sessionId"]
        self.version = f"{made['capabilities']['browserName']} {made['capabilities']['browserVersion']}"

    def listens(self):
        assert self.driver.poll() is None, "WebKitWebDriver ended"
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        return False

    def ask(self, method, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(method, path, None if method == "GET" else json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())["value"]
        connection.close()
        if isinstance(answer, dict) and "error" in answer and "stacktrace" in answer:
            raise Refused(answer["message"])
        return answer

    def command(self, _name, method, path, parameters):
        return self.ask(method, f"/session/{self.session}/{path}", parameters)

    def end(self):
        self.ask("DELETE", f"/session/{self.session}", {})


def missing(engine):
    """Why a browser cannot be run here, or None."""
    if engine is Firefox:
        return None if FIREFOX else "no Firefox is installed"
    lacks = [name for name, found in (("WebKitWebDriver", WEBKIT_DRIVER), ("Xvfb", XVFB)) if not found]
    return f"not installed: {', '.join(lacks)}" if lacks else None
