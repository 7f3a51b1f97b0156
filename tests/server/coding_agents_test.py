"""Codex and Claude Code themselves, each with a home of its own, against scripted tokens: a question, and a loop in which
the agent runs a tool. Their programs are part of the packages in requirements-agents.txt (or CODEX and CLAUDE_CODE say where
they are); without them the tests are skipped.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/coding_agents_test.py
"""
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import Server, line  # noqa: E402

THINK = "<|channel|>analysis<|message|>I think about it.<|end|><|start|>assistant"
FINAL = THINK + "<|channel|>final<|message|>%s<|return|>"
CALL = THINK + "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s<|call|>"
SECRET = "gossamer drifts"


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


def run(command, home, **environment):
    return subprocess.run(command, cwd=home / "work", capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL,
                          env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", **environment})


def scripted(*texts):
    return Server("--ctx", "131072", script=[line(text) for text in texts])


def posts(server, path):
    return [row for row in server.logged().splitlines() if f"POST {path}" in row]


# ---------------------------------------------------------------- Codex


def codex(server, home, prompt):
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(
        'model = "gpt-oss-20b"\nmodel_provider = "gossamer"\nmodel_context_window = 131072\n'
        f'[model_providers.gossamer]\nname = "gossamer"\nbase_url = "{server.url}/v1"\nwire_api = "responses"\n')
    result = run([program("CODEX", "codex_cli_bin", "bin/codex"), "exec", "--skip-git-repo-check", "--json",
                  "--sandbox", "danger-full-access", prompt], home)
    assert result.returncode == 0, result.stdout + result.stderr
    events = [json.loads(row) for row in result.stdout.splitlines() if row.startswith("{")]
    assert events[-1]["type"] == "turn.completed", events
    return events


def test_codex_answers(home):
    with scripted(FINAL % "Paris.") as server:
        events = codex(server, home, "What is the capital of France?")
        said = [event["item"]["text"] for event in events if event.get("item", {}).get("type") == "agent_message"]
        assert said == ["Paris."] and events[-1]["usage"]["reasoning_output_tokens"] > 0


def test_codex_runs_a_command(home):
    with scripted(CALL % ("exec_command", json.dumps({"cmd": "cat note.txt"})), FINAL % "It is read.") as server:
        events = codex(server, home, "What is in note.txt?")
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        ran = [item for item in items if item["type"] == "command_execution"]
        assert ran[0]["aggregated_output"].strip() == SECRET and ran[0]["exit_code"] == 0
        assert items[-1]["text"] == "It is read." and len(posts(server, "/v1/responses")) == 2


# ---------------------------------------------------------------- Claude Code


def claude(server, home, prompt):
    result = run([program("CLAUDE_CODE", "claude_agent_sdk", "_bundled/claude"), "-p", prompt, "--model", "gpt-oss-20b",
                  "--output-format", "stream-json", "--verbose", "--allowedTools", "Read"], home,
                 ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY="any", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
                 DISABLE_AUTOUPDATER="1", CLAUDE_CODE_MAX_CONTEXT_TOKENS="131072")
    assert result.returncode == 0, result.stdout + result.stderr
    events = [json.loads(row) for row in result.stdout.splitlines() if row.startswith("{")]
    assert events[-1]["type"] == "result" and not events[-1]["is_error"], events[-1]
    return events


def test_claude_code_answers(home):
    with scripted(*[FINAL % "Paris."] * 4) as server:
        assert claude(server, home, "What is the capital of France?")[-1]["result"] == "Paris."


def test_claude_code_reads_a_file(home):
    read = CALL % ("Read", json.dumps({"file_path": str(home / "work/note.txt")}))
    with scripted(read, *[FINAL % "It is read."] * 4) as server:
        events = claude(server, home, "What is in note.txt?")
        assert events[-1]["result"] == "It is read." and events[-1]["num_turns"] == 2
        results = json.dumps([event["message"]["content"] for event in events if event["type"] == "user"])
        assert SECRET in results and len(posts(server, "/v1/messages")) >= 2
