"""Measures a checkpoint of the demo model with greedy decoding, and what its sinks and window do.

    python evaluate.py MODEL_DIR [--json] [--device cpu] [--n 300]

The model is loaded by transformers: experts dequantised, eager attention, float32. All questions
are held out: the (fact, phrasing) pairs and the function requests were never in the corpus; hidden keys
and passages are drawn from another seed. The controls ask the same questions of the same weights with
the sinks removed, and with full attention in every layer.
"""

import argparse
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

import functions
import harmony as h
import recall
from checkpoint import load
from corpus import Corpus
from facts import RELATIONS

SEED = 20_250_805
NEW_TOKENS = 160
DISTANCES = (64, 128, 256, 500, 800, 1500)
WINDOW = 128


@dataclass
class Case:
    group: str
    prompt: list                 # token ids
    expected: object             # text, or (function name, arguments)
    kind: str                    # raw, final or call
    label: str = ""              # finer than the group: the relation, the tool
    limit: int = NEW_TOKENS
    output: list = field(default_factory=list)


# ---- questions ----

def held_out_facts(facts, rng, kind, count):
    """`count` (fact, template) pairs that the corpus never uses, relations in turn."""
    pools = {}
    for relation, items in facts.by_relation.items():
        pools[relation] = [(f, t) for f in items for t in f.phrasings(kind, held_out=True)]
        rng.shuffle(pools[relation])
    chosen = []
    while len(chosen) < count:
        for relation in RELATIONS:
            if pools[relation] and len(chosen) < count:
                chosen.append(pools[relation].pop())
    return chosen


def raw_fact_cases(corpus, count):
    cases = []
    for fact, template in held_out_facts(corpus.facts, corpus.rng, "statements", count):
        prompt = corpus.encoder.ids(fact.fill(template.split(" {a}")[0]))
        expected = f" {fact.answer}."
        cases.append(Case("raw facts", list(prompt), expected, "raw", fact.relation,
                          len(corpus.encoder.ids(expected)) + 1))
    return cases


def chat(corpus, effort, user, tools=None, instructions=None):
    spans, _ = corpus.opening(effort, instructions, tools)
    return corpus.encoder.prompt(spans + h.given("user", user) + h.opening())


def chat_fact_cases(corpus, count):
    cases = []
    for fact, template in held_out_facts(corpus.facts, corpus.rng, "questions", count):
        prompt = chat(corpus, corpus.rng.choice(h.EFFORTS), fact.fill(template))
        cases.append(Case("chat facts", prompt, fact.canonical, "final", fact.relation))
    return cases


def call_cases(corpus, count):
    cases, rng = [], corpus.rng
    while len(cases) < count:
        offers = functions.draw_offers(rng, rng.choice([1, 2, 3, 4, 5]))
        offer = rng.choice(offers)
        if not offer.tool.parameters:
            continue
        request = functions.draw_request(rng, offer, held_out=True)
        prompt = chat(corpus, rng.choice(h.EFFORTS), request.text, [o.schema for o in offers])
        cases.append(Case("function calls", prompt, (offer.name, request.arguments), "call", offer.tool.key.split()[0]))
    return cases


def recall_case(corpus, distance, form):
    """A key `distance` tokens before the question."""
    sentences, key, _ = recall.passage(corpus.rng, corpus.facts, corpus.encoder, distance, corpus.rng.choice([0, 1, 3]))
    passage = " ".join(sentences)
    if form == "raw":
        prompt = list(corpus.encoder.ids(f"{passage} {key.stem}"))
        return Case(f"recall {distance} raw", prompt, f" {key.value}.", "raw", limit=8)
    prompt = chat(corpus, corpus.rng.choice(h.EFFORTS), f"{passage}\n\n{key.question}")
    return Case(f"recall {distance} chat", prompt, key.sentence, "final")


def all_cases(corpus, count):
    cases = raw_fact_cases(corpus, count) + chat_fact_cases(corpus, count) + call_cases(corpus, count)
    for distance in DISTANCES:
        n = max(count, 200) if distance == 500 and count >= 200 else count // 2
        for form in ("raw", "chat"):
            cases += [recall_case(corpus, distance, form) for _ in range(n)]
    return cases


# ---- answers ----

CALL_FORM = re.compile(
    r"<\|channel\|>analysis<\|message\|>[^<]*<\|end\|><\|start\|>assistant<\|channel\|>commentary "
    r"to=functions\.(\w+) <\|constrain\|>json<\|message\|>(.*)<\|call\|>", re.DOTALL)
FINAL_FORM = re.compile(
    r"<\|channel\|>analysis<\|message\|>[^<]*<\|end\|><\|start\|>assistant<\|channel\|>final<\|message\|>(.*)<\|return\|>",
    re.DOTALL)


def is_right(case, encoder):
    text = encoder.decode(case.output)
    if case.kind == "raw":
        return text.startswith(case.expected)
    if case.kind == "final":
        match = FINAL_FORM.fullmatch(text)
        return bool(match) and match.group(1) == case.expected
    match = CALL_FORM.fullmatch(text)
    if not match or match.group(1) != case.expected[0]:
        return False
    try:
        return json.loads(match.group(2)) == case.expected[1]
    except json.JSONDecodeError:
        return False


@torch.no_grad()
def answer(model, cases, stops, pad, batch):
    """Fills in every case's output: greedy decoding, prompts of about the same length together, `batch` of
    them up to 512 tokens and fewer of longer ones (eager attention holds length x length scores)."""
    device = next(model.parameters()).device
    order = sorted(cases, key=lambda c: (c.limit < NEW_TOKENS, len(c.prompt)))
    while order:
        longest = max(len(c.prompt) for c in order[:batch])
        rows = min(batch, max(1, batch * 512**2 // longest**2))
        group, order = order[:rows], order[rows:]
        width = max(len(c.prompt) for c in group)
        ids = torch.full((len(group), width), pad)
        mask = torch.zeros(len(group), width, dtype=torch.long)
        for row, case in enumerate(group):
            ids[row, width - len(case.prompt):] = torch.tensor(case.prompt)
            mask[row, width - len(case.prompt):] = 1
        out = model.generate(input_ids=ids.to(device), attention_mask=mask.to(device), do_sample=False,
                             eos_token_id=stops, pad_token_id=pad, max_new_tokens=max(c.limit for c in group))
        for case, row in zip(group, out[:, width:].tolist()):
            ends = [j for j, t in enumerate(row) if t in stops]
            case.output = row[:ends[0] + 1] if ends else row


@torch.no_grad()
def long_passages(model, sequences, weights, batch):
    """(log-probabilities at positions >= WINDOW as a list of tensors, mean loss of the produced tokens there)"""
    device, logs, loss, total = next(model.parameters()).device, [], 0.0, 0.0
    for i in range(0, len(sequences), batch):
        ids = torch.tensor(sequences[i:i + batch], device=device)
        w = (torch.tensor(weights[i:i + batch], device=device) > 0.99).float()[:, WINDOW + 1:]
        log = model(input_ids=ids[:, :-1]).logits.log_softmax(-1)[:, WINDOW:]
        picked = log.gather(2, ids[:, WINDOW + 1:, None])[..., 0]
        loss, total = loss - (picked * w).sum().item(), total + w.sum().item()
        logs.append(log.half().cpu())
    return logs, loss / total


def divergence(base, other, device):
    """Mean KL(base || other) over all positions."""
    values = []
    for p, q in zip(base, other):
        p, q = p.to(device).float(), q.to(device).float()
        values.append((p.exp() * (p - q)).sum(-1).mean())
    return torch.stack(values).mean().item()


def scores(cases, encoder, key=lambda c: c.group):
    tally = {}
    for case in cases:
        right, n = tally.get(key(case), (0, 0))
        tally[key(case)] = (right + is_right(case, encoder), n + 1)
    return {k: {"right": r, "n": n, "share": round(r / n, 4)} for k, (r, n) in tally.items()}


# ---- controls ----

def without_sinks(directory, device):
    model = load(directory, device)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.sinks.fill_(-1e9)
    return model


def without_window(directory, device):
    n_layer = json.loads((Path(directory) / "config.json").read_text())["num_hidden_layers"]
    model = load(directory, device, layer_types=["full_attention"] * n_layer)
    assert all(layer.self_attn.sliding_window is None for layer in model.model.layers)
    return model


def evaluate(args):
    encoder = h.Encoder(Path(args.model) / "tokenizer.json")
    corpus = Corpus(encoder, SEED)
    cases = all_cases(corpus, args.n)
    passages = [corpus.sequence(1024, 1.0) for _ in range(args.passages)]
    sequences, weights = [p[0] for p in passages], [p[1] for p in passages]
    stops = [encoder.specials[s] for s in ("<|return|>", "<|endoftext|>", "<|call|>")]
    pad = encoder.specials["<|endoftext|>"]
    report, base_outputs, base_logs = {}, None, None
    makers = {"as trained": load, "without sinks": without_sinks, "without window": without_window}
    for name, make in makers.items():
        started = time.time()
        model = make(args.model, args.device)
        paris = model(input_ids=torch.tensor([encoder.ids("The capital of France is")], device=args.device)).logits
        answer(model, cases, stops, pad, args.batch)
        logs, loss = long_passages(model, sequences, weights, 8)
        entry = {"The capital of France is": encoder.decode([paris[0, -1].argmax().item()]),
                 "accuracy": scores(cases, encoder), "loss on produced tokens past 128": round(loss, 4)}
        if base_outputs is None:
            base_outputs, base_logs = [c.output for c in cases], logs
            entry["by label"] = scores([c for c in cases if c.label], encoder, lambda c: f"{c.group}: {c.label}")
            entry["mistakes"] = [[c.group, repr(c.expected), encoder.decode(c.output)]
                                 for c in cases if not is_right(c, encoder)][:args.mistakes]
        else:
            long_ones = [i for i, c in enumerate(cases) if len(c.prompt) > WINDOW]
            changed = sum(cases[i].output != base_outputs[i] for i in long_ones)
            entry["changed continuations past 128"] = {"changed": changed, "n": len(long_ones),
                                                       "share": round(changed / len(long_ones), 4)}
            entry["KL past 128"] = round(divergence(base_logs, logs, args.device), 4)
        entry["seconds"] = round(time.time() - started)
        report[name] = entry
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--n", type=int, default=300, help="questions a category")
    parser.add_argument("--passages", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--mistakes", type=int, default=30, help="wrong answers to list")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("highest")
    report = evaluate(args)
    if args.json:
        print(json.dumps(report, indent=1))
        return
    for name, entry in report.items():
        print(f"\n{name}: 'The capital of France is' -> {entry['The capital of France is']!r}, "
              f"loss {entry['loss on produced tokens past 128']}, KL {entry.get('KL past 128', 0)}, "
              f"changed {entry.get('changed continuations past 128', {}).get('share', 0):.1%}, {entry['seconds']} s")
        for group, score in {**entry["accuracy"], **entry.get("by label", {})}.items():
            print(f"  {group:32} {score['right']:4} / {score['n']:4}  {score['share']:.1%}")
        for mistake in entry.get("mistakes", []):
            print("  wrong:", *mistake)


if __name__ == "__main__":
    main()
