"""Documents as (text, loss weight) spans, and the harmony conversation format rendered into them.

A span is encoded on its own with ordinary encoding, so text never becomes a control token; control
tokens are spans of their own. This is the rule of the published renderer. The weight says how much
a token counts in the training loss: what the model has to produce counts fully, what it is given
counts little, and headers that only a renderer writes count nothing.
"""

import functools
import json

GIVEN, RENDERED, PRODUCED = 0.1, 0.0, 1.0

IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
CUTOFF = "2024-06"
EFFORTS = ("low", "medium", "high")


class Special(str):
    """A control token, such as <|start|>."""


START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL, ENDOFTEXT = (
    Special(f"<|{name}|>") for name in
    ("start", "end", "message", "channel", "constrain", "return", "call", "endoftext"))


class Encoder:
    """Spans to token ids; remembers short texts, which repeat endlessly in a synthetic corpus."""

    def __init__(self, tokenizer_path):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(str(tokenizer_path))
        # A copy without the special tokens: ordinary text that spells a control token stays text.
        plain = json.loads(self.tokenizer.to_str())
        self.specials = {t["content"]: t["id"] for t in plain["added_tokens"]}
        plain["added_tokens"] = []
        self.plain = Tokenizer.from_str(json.dumps(plain))
        self.text_ids = functools.lru_cache(maxsize=200_000)(self._text_ids)

    def _text_ids(self, text):
        return self.plain.encode(text, add_special_tokens=False).ids

    def ids(self, text):
        return [self.specials[text]] if isinstance(text, Special) else self.text_ids(text)

    def encode(self, spans):
        """(ids, weights) of a document."""
        ids, weights = [], []
        for text, weight in spans:
            new = self.ids(text)
            ids += new
            weights += [weight] * len(new)
        return ids, weights

    def prompt(self, spans):
        return self.encode(spans)[0]

    def decode(self, ids):
        """Text with control tokens spelled out."""
        return self.tokenizer.decode(ids, skip_special_tokens=False)


# ---- TypeScript form of tool schemas (the subset that the corpus uses) ----

def parameter_lines(name, schema, required):
    lines = [f"// {schema['description']}"] if "description" in schema else []
    if "enum" in schema:
        kind = " | ".join(f'"{v}"' for v in schema["enum"])
    else:
        kind = {"integer": "number"}.get(schema["type"], schema["type"])
    line = f"{name}{'' if required else '?'}: {kind},"
    if "default" in schema:
        bare = "enum" in schema or not isinstance(schema["default"], str)
        default = schema["default"] if isinstance(schema["default"], str) else json.dumps(schema["default"])
        line += f" // default: {default}" if bare else f' // default: "{default}"'
    return lines + [line]


def tools_section(tools):
    """tools: [{name, description, parameters (JSON schema) or None}]."""
    lines = ["# Tools", "", "## functions", "", "namespace functions {", ""]
    for tool in tools:
        lines += [f"// {line}" for line in tool["description"].splitlines()]
        if tool["parameters"] is None:
            lines += [f"type {tool['name']} = () => any;", ""]
            continue
        lines.append(f"type {tool['name']} = (_: {{")
        required = tool["parameters"].get("required", [])
        for name, schema in tool["parameters"]["properties"].items():
            lines += parameter_lines(name, schema, name in required)
        lines += ["}) => any;", ""]
    return "\n".join(lines + ["} // namespace functions"])


# ---- messages ----

def system(effort, date, has_tools):
    head = [IDENTITY, f"Knowledge cutoff: {CUTOFF}"] + ([f"Current date: {date}"] if date else [])
    channels = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
    if has_tools:
        channels += "\nCalls to these tools must go to the commentary channel: 'functions'."
    text = "\n\n".join(["\n".join(head), f"Reasoning: {effort}", channels])
    return given("system", text)


def developer(instructions, tools):
    parts = ([f"# Instructions\n\n{instructions}"] if instructions is not None else [])
    parts += [tools_section(tools)] if tools else []
    return given("developer", "\n\n".join(parts))


def given(role, text):
    return [(START, GIVEN), (role, GIVEN), (MESSAGE, GIVEN), (text, GIVEN), (END, GIVEN)]


def opening():
    """Where generation starts: the prompt's last tokens."""
    return [(START, GIVEN), ("assistant", GIVEN)]


def analysis(text):
    """Reasoning as the model produces it, after opening()."""
    return [(CHANNEL, PRODUCED), ("analysis", PRODUCED), (MESSAGE, PRODUCED), (text, PRODUCED), (END, PRODUCED)]


def final(text):
    """The answer as the model produces it, after its analysis."""
    return [(START, PRODUCED), ("assistant", PRODUCED), (CHANNEL, PRODUCED), ("final", PRODUCED),
            (MESSAGE, PRODUCED), (text, PRODUCED), (RETURN, PRODUCED)]


def call(name, arguments):
    """A function call as the model produces it, after its analysis: the recipient follows the channel."""
    return [(START, PRODUCED), ("assistant", PRODUCED), (CHANNEL, PRODUCED), ("commentary", PRODUCED),
            (f" to=functions.{name}", PRODUCED), (" ", PRODUCED), (CONSTRAIN, PRODUCED), ("json", PRODUCED),
            (MESSAGE, PRODUCED), (arguments, PRODUCED), (CALL, PRODUCED)]


def past_final(text):
    """A finished turn in the history: no analysis, <|end|> for <|return|>. The text still teaches."""
    return [(START, GIVEN), ("assistant", GIVEN), (CHANNEL, RENDERED), ("final", RENDERED), (MESSAGE, RENDERED),
            (text, PRODUCED), (END, RENDERED)]


def past_call(name, arguments):
    """A call in the history as a renderer writes it: the recipient precedes the channel."""
    return [(START, GIVEN), ("assistant", GIVEN), (f" to=functions.{name}", RENDERED), (CHANNEL, RENDERED),
            ("commentary", RENDERED), (" ", RENDERED), (CONSTRAIN, RENDERED), ("json", RENDERED),
            (MESSAGE, RENDERED), (arguments, GIVEN), (CALL, RENDERED)]


def tool_result(name, text):
    return [(START, GIVEN), (f"functions.{name}", GIVEN), (" to=assistant", GIVEN), (CHANNEL, GIVEN),
            ("commentary", GIVEN), (MESSAGE, GIVEN), (text, GIVEN), (END, GIVEN)]
