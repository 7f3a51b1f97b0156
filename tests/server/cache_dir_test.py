"""--cache-dir: what a prompt cost is not lost with the process, and goes to nobody else."""
import contextlib
import os
import re
import resource
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import BINARY, MODEL, PATIENCE, Server  # noqa: E402

LONG = "Tell me a story about a cat that lived in a house by the sea. " * 12
N_TOKENS_AT = 40  # in a file: struct gs_prefix_head


def options(folder, *more):
    return ["--ctx", "2048", "--parallel", "2", "--precision", "exact", "--cache-dir", str(folder), "--cache-dir-seconds",
            "0", "--stop-seconds", str(PATIENCE), *more]


def wait_written(server, folder, n_tokens):
    """For the file of a whole prompt: that of its instructions alone may be there before it, and goes then."""
    end = time.time() + PATIENCE
    while True:
        found = []
        for path in files(folder):
            with contextlib.suppress(FileNotFoundError):  # it goes
                found.append(int.from_bytes(path.read_bytes()[N_TOKENS_AT:N_TOKENS_AT + 8], sys.byteorder))
        if found == [n_tokens] and server.metric("prefix_files") == 1:
            return
        assert time.time() < end, found
        time.sleep(0.05)


def ask(server, content=LONG, **more):
    reply = server.chat(content, max_tokens=24, **more)
    assert reply.status_code == 200, reply.text
    reply = reply.json()
    return reply["choices"][0]["message"], reply["usage"]["prompt_tokens"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def files(folder):
    """But for one that is being written."""
    return sorted(p for p in Path(folder).iterdir() if p.name.startswith("p-") and p.name.endswith(".kv"))


def test_nothing_promised_is_lost_when_the_server_is_killed(tmp_path):
    """What /metrics counts is there after SIGKILL: the next server computes one token, and answers the same bytes."""
    with Server("--ctx", "2048", "--precision", "exact", "--cache-mib", "0") as cold:
        expected, _, cached = ask(cold)
        assert cached == 0
    server = Server(*options(tmp_path))
    first, prompt, _ = ask(server)
    wait_written(server, tmp_path, prompt)
    server.kill()
    assert stat.S_IMODE(os.stat(tmp_path).st_mode) & 0o022 == 0
    assert [stat.S_IMODE(p.stat().st_mode) for p in files(tmp_path)] == [0o600]
    server = Server(*options(tmp_path))
    second, _, cached = ask(server)
    assert first == second == expected
    assert cached == prompt - 1
    assert server.metric("prefix_files_read_total") == 1 and server.metric("prefix_hits_total") == 1
    # Killed while it writes, again and again: every file is whole, and what is half-written is gone.
    for i in range(2):
        ask(server, f"{i} {LONG}")
        server.kill()
        server = Server(*options(tmp_path))
        assert "0 damaged" in server.logged()
        assert all(p.name == "secret" or re.fullmatch(r"p-[0-9a-f]{16}\.kv(\.\w{6})?", p.name) for p in tmp_path.iterdir())
        assert ask(server)[2] == prompt - 1
    server.close()


def test_a_stop_writes_what_is_not_written_yet(tmp_path):
    folder = tmp_path / "made" / "here"
    with Server(*options(folder, "--cache-dir-seconds", "80000")) as server:
        message, prompt, _ = ask(server)
        assert files(folder) == []
    assert len(files(folder)) == 1 and stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    with Server(*options(folder)) as server:
        assert ask(server) == (message, prompt, prompt - 1)


def test_a_key_keeps_its_own(tmp_path):
    """Kept apart by key: another order of the keys at the next start gives nobody what was another's."""
    folder, keys = tmp_path / "cache", tmp_path / "keys"
    keyed = options(folder, "--cache-by-key", "--api-key-file", str(keys))
    keys.write_text("alpha\nbeta\n")
    with Server(*keyed) as server:
        server.client.headers["Authorization"] = "Bearer alpha"
        _, prompt, _ = ask(server)
        server.client.headers["Authorization"] = "Bearer beta"
        assert ask(server)[2] == 0
        server.client.headers["Authorization"] = "Bearer alpha"
        server.wait_metric("prefix_files", 2)
    assert not any(b"alpha" in p.read_bytes() or b"beta" in p.read_bytes() for p in files(folder))
    keys.write_text("gamma\nalpha\n")
    with Server(*keyed) as server:
        server.client.headers["Authorization"] = "Bearer gamma"
        assert ask(server)[2] == 0
        server.client.headers["Authorization"] = "Bearer alpha"
        assert ask(server)[2] == prompt - 1
    with Server(*options(folder)) as server:  # without keys neither is anybody's
        assert ask(server)[2] == 0


def test_damage_and_foreign_files_do_no_harm(tmp_path):
    with Server(*options(tmp_path)) as server:
        message, prompt, _ = ask(server)
        ask(server, "Another " + LONG)
        server.wait_metric("prefix_files", 2)
    for path in files(tmp_path):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    (tmp_path / "notes.txt").write_text("mine")
    with Server(*options(tmp_path)) as server:
        assert "1 that are none of the server's" in server.logged()
        assert ask(server) == (message, prompt, 0)
        assert server.logged().count("is damaged and has been removed") == 1
        assert server.metric("prefix_files_read_total") == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_full_disk_is_one_line_in_the_log(tmp_path):
    with Server(*options(tmp_path)) as server:
        _, prompt, _ = ask(server)
        wait_written(server, tmp_path, prompt)
        before, began = files(tmp_path), time.time()
        limit = before[0].stat().st_size // 2  # the server's log is a file too, and far shorter
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        ask(server, "Another " + LONG)
        end = time.time() + PATIENCE
        while "cannot write" not in server.logged():
            assert time.time() < end
            time.sleep(0.05)
        assert ask(server, "Another " + LONG)[2] > 0  # memory has it
        lines = server.logged().count("cannot write")
        assert 1 <= lines <= 1 + (time.time() - began) / 30, server.logged()  # tried again after 30 seconds, not before
        assert files(tmp_path) == before
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert len(files(tmp_path)) == 2  # written at the end
    with Server(*options(tmp_path)) as server:
        assert ask(server)[2] == prompt - 1


@pytest.mark.parametrize("make, says", [(lambda p: p.chmod(0o777), "others may write to the cache folder"),
                                        (lambda p: (p / "x").write_text("") and None, None)])
def test_only_ones_own_folder_is_used(tmp_path, make, says):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    make(folder)
    path = folder if says else folder / "x"
    run = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--cache-dir", str(path)], capture_output=True, timeout=PATIENCE)
    assert run.returncode == 2 and (says or "Not a directory") in run.stderr.decode(), run.stderr
    assert len(run.stderr.decode().strip().splitlines()) == 1
