"""Codex and Claude Code themselves, each with a home of its own, against scripted tokens: a question, a loop in which the
agent runs a tool, and both in a terminal, as a person starts them. Claude Code's lines are those of README.md and
docs/server-dialects.md, Codex's settings those of the latter, with the test's port. The programs are part of the packages in
requirements-agents.txt (or CODEX and CLAUDE_CODE say where they are), the terminal is tmux; without them the tests are skipped.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/coding_agents_test.py
"""
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import PATIENCE, ROOT, Server, line  # noqa: E402

THINK = "<|channel|>analysis<|message|>I think about it.<|end|><|start|>assistant"
FINAL = THINK + "<|channel|>final<|message|>%s<|return|>"
CALL = THINK + "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s<|call|>"
SECRET = "gossamer drifts"
SETTINGS = (ROOT / "docs/server-dialects.md").read_text()
TYPED = {"README.md": re.search(r"^\| Claude Code \| `(.*?)`", (ROOT / "README.md").read_text(), re.M)[1],
         "docs": re.search(r"^Claude Code:\n\n((?: {4}.*\n)+)", SETTINGS, re.M)[1].strip()}
CONFIG = re.search(r"^Codex, .*:\n\n((?: {4}.*\n)+)", SETTINGS, re.M)[1]


def program(variable, package, path):
    """Where the program is, or a skip that says how to get it."""
    if os.environ.get(variable):
        return os.environ[variable]
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"{package} is missing: pip install -r tests/server/requirements-agents.txt")
    file = Path(found.origin).parent / path
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def home(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "note.txt").write_text(SECRET + "\n")
    return tmp_path


def environment(home):
    return {"PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm-256color"}


def install(home, name, file):
    (home / "bin").mkdir(exist_ok=True)
    (home / "bin" / name).symlink_to(file)


def run(shell, home):
    return subprocess.run(["sh", "-c", shell], cwd=home / "work", capture_output=True, text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL, env=environment(home))


class Terminal:
    """A shell in tmux in the folder work."""

    def __init__(self, home):
        if not shutil.which("tmux"):
            pytest.skip("tmux is missing")
        self.folder = tempfile.TemporaryDirectory()  # a socket's path must be short
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "45", "-c", str(home / "work"), "sh", env=environment(home))

    def tmux(self, *arguments, **options):
        return subprocess.run(["tmux", "-S", f"{self.folder.name}/s", *arguments], check=True, capture_output=True, text=True, **options).stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")
        self.folder.cleanup()

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def until(self, *texts):
        """The first of the texts that is seen."""
        end = time.time() + PATIENCE
        while time.time() < end:
            shown = self.screen()
            for text in texts:
                if text in shown:
                    return text
            time.sleep(0.2)
        raise AssertionError(f"none of {texts} in\n{self.screen()}")

    def key(self, name):
        self.tmux("send-keys", name)

    def line(self, text):
        self.tmux("send-keys", "-l", text)
        self.key("Enter")

    def write(self, text):
        """A line into a program's own prompt, which may lose keys that come right after it has drawn something."""
        end = time.time() + PATIENCE
        self.tmux("send-keys", "-l", text)
        while not self.seen(text):
            assert time.time() < end, self.screen()
            self.key("C-u")
            self.tmux("send-keys", "-l", text)
        self.key("Enter")

    def seen(self, text, looks=50):
        return any(text in self.screen() or time.sleep(0.2) for _ in range(looks))

    def gone(self, text, looks=50):
        return any(text not in self.screen() or time.sleep(0.2) for _ in range(looks))


def scripted(*texts):
    return Server("--ctx", "131072", script=[line(text) for text in texts])


def posts(server, path):
    return [row for row in server.logged().splitlines() if f"POST {path}" in row]


# ---------------------------------------------------------------- Codex


def codex(server, home):
    install(home, "codex", program("CODEX", "codex_cli_bin", "bin/codex"))
    (home / ".codex").mkdir()
    config = "\n".join(row[4:] for row in CONFIG.splitlines())
    assert "http://127.0.0.1:8080/" in config
    (home / ".codex/config.toml").write_text(config.replace("http://127.0.0.1:8080", server.url))


def codex_exec(server, home, prompt):
    codex(server, home)
    result = run(f"codex exec --skip-git-repo-check --json --sandbox danger-full-access {shlex.quote(prompt)}", home)
    assert result.returncode == 0, result.stdout + result.stderr
    events = [json.loads(row) for row in result.stdout.splitlines() if row.startswith("{")]
    assert events[-1]["type"] == "turn.completed", events
    return events


def test_codex_answers(home):
    with scripted(FINAL % "Paris.") as server:
        events = codex_exec(server, home, "What is the capital of France?")
        said = [event["item"]["text"] for event in events if event.get("item", {}).get("type") == "agent_message"]
        assert said == ["Paris."] and events[-1]["usage"]["reasoning_output_tokens"] > 0


def test_codex_runs_a_command(home):
    with scripted(CALL % ("exec_command", json.dumps({"cmd": "cat note.txt"})), FINAL % "It is read.") as server:
        events = codex_exec(server, home, "What is in note.txt?")
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        ran = [item for item in items if item["type"] == "command_execution"]
        assert ran[0]["aggregated_output"].strip() == SECRET and ran[0]["exit_code"] == 0
        assert items[-1]["text"] == "It is read." and len(posts(server, "/v1/responses")) == 2


def test_codex_in_a_terminal(home):
    with scripted(FINAL % "Paris.") as server, Terminal(home) as terminal:
        codex(server, home)
        terminal.line("codex --no-daemon")  # else a server of its own stays behind
        terminal.until("gpt-oss-20b")
        terminal.write("What is the capital of France?")
        terminal.until("• Paris.")


# ---------------------------------------------------------------- Claude Code


def claude(server, home, typed):
    """The line of a document, for this server."""
    install(home, "claude", program("CLAUDE_CODE", "claude_agent_sdk", "_bundled/claude"))
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:8080 " in typed
    return re.sub(r"\\\n *", "", typed.replace("http://127.0.0.1:8080", server.url))


def claude_print(server, home, prompt):
    shell = claude(server, home, TYPED["docs"])
    result = run(f"{shell} -p {shlex.quote(prompt)} --output-format stream-json --verbose --allowedTools Read", home)
    assert result.returncode == 0, result.stdout + result.stderr
    events = [json.loads(row) for row in result.stdout.splitlines() if row.startswith("{")]
    assert events[-1]["type"] == "result" and not events[-1]["is_error"], events[-1]
    return events


def claude_starts(terminal, shell):
    """The line and the dialogues of a first start, up to its prompt. Keys can be lost here too."""
    restart = "isn't trusted"
    keys = {restart: None, "Choose the text style": "Enter", "Press Enter to continue": "Enter", "❯ Yes, I trust": "Enter", "❯ No, exit": "Down"}
    terminal.line(shell)
    while (said := terminal.until("/effort", *keys)) != "/effort":
        if said == restart:  # a key that came too late for the dialogue before
            terminal.line("clear; " + shell)
        else:
            terminal.key(keys[said])
        terminal.gone(said)


def test_claude_code_answers(home):
    with scripted(*[FINAL % "Paris."] * 4) as server:
        assert claude_print(server, home, "What is the capital of France?")[-1]["result"] == "Paris."


def test_claude_code_reads_a_file(home):
    read = CALL % ("Read", json.dumps({"file_path": str(home / "work/note.txt")}))
    with scripted(read, *[FINAL % "It is read."] * 4) as server:
        events = claude_print(server, home, "What is in note.txt?")
        assert events[-1]["result"] == "It is read." and events[-1]["num_turns"] == 2
        results = json.dumps([event["message"]["content"] for event in events if event["type"] == "user"])
        assert SECRET in results and len(posts(server, "/v1/messages")) >= 2


@pytest.mark.parametrize("document", TYPED)
def test_claude_code_in_a_terminal(home, document):
    with scripted(FINAL % "Paris.") as server, Terminal(home) as terminal:
        claude_starts(terminal, claude(server, home, TYPED[document]))
        assert "recognized" not in terminal.screen()  # how long a context it may fill is said
        terminal.write("What is the capital of France?")
        terminal.until("● Paris.")


def test_claude_code_asks_before_it_runs_a_command(home):
    with scripted(CALL % ("Bash", json.dumps({"command": "echo one >> made", "description": "Writes a line"}))) as server, Terminal(home) as terminal:
        claude_starts(terminal, claude(server, home, TYPED["docs"]))
        terminal.write("Make a file.")
        terminal.until("Do you want to proceed?")
        assert not (home / "work/made").exists()
        terminal.key("Enter")
        end = time.time() + PATIENCE
        while not (home / "work/made").exists():
            assert time.time() < end, terminal.screen()
            time.sleep(0.2)
