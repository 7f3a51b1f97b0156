"""Conversations and tool schemas against the openai-harmony package, live; generated outputs against its parser.

    python tools/oracle/check_harmony.py --gossamer build/gossamer [--count N] [--seed N]

Needs the package openai-harmony (0.0.8) and build/o200k/tokenizer.json (tools/vocab/make_tokenizer.py); where one
of them is missing it says so and ends well. The package's vocabulary is written from that file, so nothing is
fetched. Renders with --form harmony --reference, where the two must be equal, token by token. Exit status 1 if
anything differs.
"""

import argparse
import base64
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

VOCABULARY = Path("build/o200k/tokenizer.json")
WORDS = ["city", "The name.", "a\nb", "x", "", "日本 💖", 'say "hi"', "back\\slash", "<|end|>", "  two  ", "null",
         "line\r\n\r\nother\n", "\u0007", "true"]


def write_ranks(folder):
    """o200k_base.tiktoken, as the package wants it."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    of_char = {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}
    vocab = json.loads(VOCABULARY.read_text(encoding="utf-8"))["model"]["vocab"]
    with open(Path(folder) / "o200k_base.tiktoken", "wb") as file:
        for text, rank in sorted(vocab.items(), key=lambda item: item[1]):
            file.write(base64.b64encode(bytes(of_char[c] for c in text)) + b" %d\n" % rank)


# ---------------------------------------------------------------- random conversations


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, share):
        return self.random.random() < share

    def text(self):
        return self.random.choice(WORDS)

    def value(self):
        return self.random.choice([self.text(), 1, 1.0, 1.5, 1e30, -0.25, True, None, ["q", 1, {}], {"k": [1.0]}])

    def schema(self, depth=0):
        kind = self.random.choice(["object"] * 3 + ["string", "string", "integer", "number", "boolean", "array", "null",
                                                    "types", "one", "none", "strange"])
        schema = {}
        if kind == "types":
            schema["type"] = self.random.choice([["string", "null"], ["integer", "object"], []])
        elif kind == "strange":
            schema = self.random.choice([{"$ref": "#/$defs/X"}, {"anyOf": [{"type": "string"}]}, {"const": 5},
                                         {"enum": ["a"]}])
        elif kind not in ("one", "none"):
            schema["type"] = kind
        if kind == "one" and depth < 4:
            schema["oneOf"] = [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]
        if kind == "array" and depth < 4 and self.chance(0.8):
            schema["items"] = self.schema(depth + 1)
        if kind == "object" and self.chance(0.9):
            names = self.random.sample(["a", "b", "z", "long_name", "ä", "with space"], self.random.randint(0, 4))
            schema["properties"] = {n: self.schema(depth + 1) if depth < 4 else {"type": "string"} for n in names}
            if self.chance(0.6):
                schema["required"] = [n for n in names if self.chance(0.5)] + ["other"] * self.chance(0.2)
            schema["additionalProperties"] = False
        if kind in ("string", "integer") and self.chance(0.3):
            schema["enum"] = [self.random.choice(["a", "b", 'q"', 1, None]) for _ in range(self.random.randint(0, 3))]
        for key, share, make in (("description", 0.4, self.text), ("title", 0.15, self.text),
                                 ("default", 0.3, self.value), ("nullable", 0.2, lambda: self.chance(0.8)),
                                 ("examples", 0.15, lambda: [self.value() for _ in range(self.random.randint(0, 3))])):
            if self.chance(share):
                schema[key] = make()
        return schema

    def namespaces(self, names):
        spaces = {}
        for name in names:
            tools = [{"name": f"tool_{i}", "description": self.text(),
                      "parameters": self.schema() if self.chance(0.9) else None}
                     for i in range(self.random.randint(0, 4))]
            spaces[name] = {"name": name, "description": self.text() if self.chance(0.5) else None, "tools": tools}
        return spaces

    def system(self):
        content = {"type": "system_content", "model_identity": self.random.choice(["I am.", None]),
                   "reasoning_effort": self.random.choice(["Low", "Medium", "High"]),
                   "knowledge_cutoff": self.random.choice(["2024-06", None]),
                   "conversation_start_date": self.random.choice(["2025-06-28", None]),
                   "channel_config": self.random.choice([None, {"valid_channels": ["analysis", "final"],
                                                                "channel_required": self.chance(0.5)}])}
        if self.chance(0.3):
            content["tools"] = self.namespaces(["python", "browser"])
        return {"role": "system", "content": [content]}

    def developer(self):
        content = {"type": "developer_content"}
        if self.chance(0.7):
            content["instructions"] = self.text()
        if self.chance(0.8):
            content["tools"] = self.namespaces(["functions"] + ["extra"] * self.chance(0.2))
        return {"role": "developer", "content": [content]}

    def message(self):
        kind = self.random.choice(["user", "analysis", "final", "preamble", "call", "result", "parts"])
        text = self.text()
        if kind == "user":
            return {"role": "user", "content": text} | ({"name": "bob"} if self.chance(0.1) else {})
        if kind == "parts":
            return {"role": "user", "content": [{"type": "text", "text": self.text()} for _ in range(2)]}
        if kind == "result":
            return {"role": "tool", "name": "functions.f", "content": text, "recipient": "assistant",
                    "channel": "commentary"}
        if kind == "call":
            call = {"role": "assistant", "channel": self.random.choice(["commentary", "analysis"]), "content": text,
                    "recipient": self.random.choice(["functions.f", "python", "all"])}
            if self.chance(0.8):
                call["content_type"] = self.random.choice(["<|constrain|>json", "json", "code", "<|constrain|>"])
            return call
        channel = {"preamble": "commentary"}.get(kind, kind)
        return {"role": "assistant", "channel": channel, "content": text}

    def conversation(self):
        messages = [self.system()] * self.chance(0.8) + [self.developer()] * self.chance(0.8)
        return messages + [self.message() for _ in range(self.random.randint(0, 8))]

    def output(self):
        """A turn as the model writes it, without faults."""
        def text():
            return self.text().replace("<|end|>", "end")

        parts = []
        for _ in range(self.random.randint(0, 2)):
            parts.append(f"<|channel|>analysis<|message|>{text()}<|end|>")
        if self.chance(0.3):
            parts.append(f"<|channel|>commentary<|message|>{text()}<|end|>")
        if self.chance(0.5):
            parts.append(f"<|channel|>final<|message|>{text()}<|return|>")
        else:
            kind = self.random.choice([" <|constrain|>json", " json", "<|constrain|>json", ""])
            body = self.random.choice(['{"a": 1}', "", text()])
            parts.append(self.random.choice(
                [f" to=functions.f<|channel|>commentary{kind}<|message|>{body}<|call|>",
                 f"<|channel|>commentary to=functions.f{kind}<|message|>{body}<|call|>"]))
        return "<|start|>assistant".join(parts)


# ---------------------------------------------------------------- both sides


def ask(command, text):
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        return None, done.stderr.decode().strip()
    return done.stdout.decode(), None


def render_reference(harmony, encoding, messages, drop, end):
    conversation = harmony.Conversation.from_json(json.dumps({"messages": messages}))
    config = harmony.RenderConversationConfig(auto_drop_analysis=drop)
    if end == "completion":
        return encoding.render_conversation_for_completion(conversation, harmony.Role.ASSISTANT, config=config)
    if end == "training":
        return encoding.render_conversation_for_training(conversation, config=config)
    return encoding.render_conversation(conversation, config=config)


def check_render(gossamer, harmony, encoding, seed):
    maker = Maker(seed)
    messages, drop = maker.conversation(), maker.chance(0.7)
    end = maker.random.choice(["completion", "plain", "training"])
    expected = render_reference(harmony, encoding, messages, drop, end)
    command = [gossamer, "harmony", "render", "--model", str(VOCABULARY), "--form", "harmony", "--reference", "--ids",
               "--end", end] + ([] if drop else ["--drop", "none"])
    out, error = ask(command, json.dumps(messages))
    if error:
        return f"seed {seed}: {error}"
    found = [int(number) for number in out.replace(",", " ").split()]
    if found == expected:
        return None
    at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)))
    return (f"seed {seed}: token {at}: ...{encoding.decode(found[max(0, at - 12):at + 8])!r}, "
            f"not ...{encoding.decode(expected[max(0, at - 12):at + 8])!r}")


def check_parse(gossamer, harmony, encoding, seed):
    output = Maker(seed).output()
    ids = encoding.encode(output, allowed_special="all")
    parser = harmony.StreamableParser(encoding, harmony.Role.ASSISTANT)
    for token in ids:
        parser.process(token)
    parser.process_eos()
    reasoning, content, calls = "", "", []
    for message in parser.messages:
        text = "".join(part.text for part in message.content)
        if message.recipient:
            calls.append((message.recipient.removeprefix("functions."), text))
        elif message.channel == "analysis":
            reasoning += text
        else:
            content += text
    out, error = ask([gossamer, "harmony", "parse", "--model", str(VOCABULARY)], " ".join(map(str, ids)))
    if error:
        return f"seed {seed}: {error}"
    answer = json.loads(out)["message"]
    found = (answer.get("reasoning", ""), answer["content"] or "",
             [(c["function"]["name"], c["function"]["arguments"]) for c in answer.get("tool_calls", [])])
    return None if found == (reasoning, content, calls) else f"seed {seed}: {output!r}: {found}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--gossamer", default="build/gossamer")
    arguments.add_argument("--count", type=int, default=150)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    try:
        import openai_harmony as harmony
    except ImportError:
        print("check_harmony: the package openai-harmony is missing; nothing was compared")
        return 0
    if not VOCABULARY.exists():
        print(f"check_harmony: {VOCABULARY} is missing (tools/vocab/make_tokenizer.py makes it); nothing was compared")
        return 0
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        write_ranks(folder)
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = folder
        encoding = harmony.load_harmony_encoding(harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
        seeds = range(options.seed, options.seed + options.count)
        with ThreadPoolExecutor(2) as pool:
            for name, check in (("conversations rendered", check_render), ("outputs parsed", check_parse)):
                found = [f for f in pool.map(lambda s: check(options.gossamer, harmony, encoding, s), seeds) if f]
                print(f"harmony: {options.count} {name}, {len(found)} differ from openai-harmony")
                failures += found
    for failure in failures[:20]:
        print(f"  {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
