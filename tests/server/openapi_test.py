"""The description of the API against the running server: schemathesis makes requests from it, right and wrong ones, and
looks whether the answers are what it says. Bounded by their number, so that they are the same on a fast machine and on a
slow one: OPENAPI_EXAMPLES (20) of each operation, beside those that cover the description.

    GOSSAMER=build/gossamer build/venv/bin/python -m pytest -q tests/server/openapi_test.py
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serving import PATIENCE, Server, line  # noqa: E402

CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
          "response_schema_conformance,negative_data_rejection,unsupported_method")
EXAMPLES = os.environ.get("OPENAPI_EXAMPLES", "20")


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", "512", script=[line("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>")] * 20000) as one:
        yield one


def test_it_is_valid_and_served_without_a_key():
    with Server("--ctx", "512", key="some key") as server:
        served = httpx.get(server.url + "/openapi.json", timeout=PATIENCE, trust_env=False)
        assert served.status_code == 200 and served.headers["content-type"] == "application/json"
        description = served.json()
    assert description["openapi"].startswith("3.1")
    for schema in description["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    references = {part.split('"')[0] for part in json.dumps(description).split("#/components/schemas/")[1:]}
    assert references <= set(description["components"]["schemas"])


def test_every_path_is_described_and_every_description_is_a_path(server):
    """The table of routes in the sources and the description name the same things."""
    text = (Path(__file__).resolve().parents[2] / "src/server/routes.c").read_text()
    routes = set()
    for row in text.split("gs_routes[] = {")[1].split("};")[0].splitlines():
        parts = row.split('"')
        if len(parts) >= 5:
            routes.add((parts[1].lower(), re.sub("(?<=.)/$", "/*", parts[3])))
    described = set()
    for path, item in server.client.get("/openapi.json").json()["paths"].items():
        described |= {(method, re.sub("{[^}]*}", "*", path)) for method in item if method in ("get", "post", "delete")}
    assert routes - described == {("get", "/page/*")} and described - routes == set()


@pytest.mark.parametrize("phase", ["coverage", "fuzzing"])
def test_the_server_does_what_it_says(server, tmp_path, phase):
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", server.url + "/openapi.json", "--checks", CHECKS,
               "--phases", phase, "--max-examples", EXAMPLES, "--seed", "1",
               "--suppress-health-check", "all", "--request-timeout", "300", "--no-color", "--no-shrink", "--exclude-path", "/"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stdout[-12000:] + result.stderr[-2000:]
    assert server.client.get("/health").status_code == 200
