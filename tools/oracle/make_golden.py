"""Record what transformers computes for a checkpoint, component by component (README.md has the format).

    python tools/oracle/make_golden.py MODEL_DIR OUT.safetensors [--dtype float32|bfloat16] [--seed N]
                                       [--length 1000] [--tokens FILE | --random] [--rows few|all]
                                       [--device cpu|cuda]
    python tools/oracle/make_golden.py MODEL_DIR   both goldens of one model, under tests/golden/data
    python tools/oracle/make_golden.py --all       every committed golden
The demo model's goldens lie beside it, where gossamer verify looks for them.

Tokens come from --tokens (ids separated by blanks, or another golden), else, where the folder has a tokenizer.json, from
passage.txt mixed with random ids, else at random. Random ids are redrawn with the next seed until no router
choice and no argmax hangs on less than rounding noise: then "equal everywhere" can be asked of any engine.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

import reference
from tiny_models import SHAPES

HERE = Path(__file__).parent
MODELS = Path("tests/golden/models")
DATA = Path("tests/golden/data")
DEMO = Path("models/demo")

LENGTHS = (1, 5, 127, 128, 129, 140, 300, 1000)
# Both sides of each length's end, of the windows' edges, and the last tokens.
ROWS = (0, 1, 3, 4, 5, 16, 126, 127, 128, 129, 139, 140, 298, 299, 300, 512, 998, 999)
LOGIT_BYTES = 256 << 10
ROPE_POSITIONS = (0, 1, 2, 127, 128, 999, 4095, 4096, 65537, 131070, 131071)

# float32 sums of this size, in any order, agree to a few 1e-6; twice that must not decide anything.
ROUTER_MARGIN = 2e-5
ARGMAX_MARGIN = 2e-4
PREFIX_TOLERANCE = {"cpu": 2e-5, "cuda": 1e-4}  # a GPU's library chooses other kernels for other lengths
TRIES = 60


def margins(run, n_layer, n_active):
    """The closest call among router choices (order included), and that among argmaxes."""
    router = np.inf
    for i in range(n_layer):
        logits = np.sort(run[f"layers.{i}.router"], axis=-1)[:, ::-1][:, : n_active + 1]
        if logits.shape[1] > 1:
            router = min(router, float(np.min(logits[:, :-1] - logits[:, 1:])))
    best = np.partition(run["logits"], -2, axis=-1)[:, -2:]
    return router, float(np.min(best[:, 1] - best[:, 0]))


def relative_error(found, expected):
    return float(np.max(np.abs(found - expected)) / max(np.max(np.abs(expected)), 1e-30))


def check_prefixes(model, tokens, run, lengths):
    """The rows of a run do not depend on what follows them, so one run of the full length serves all lengths."""
    worst = 0.0
    for length in lengths:
        short = reference.forward(model, tokens[:length])
        for key, values in short.items():
            if key.endswith("router_choice"):
                if not np.array_equal(values, run[key][:length]):
                    raise SystemExit(f"length {length}: {key} differs from that of the full length")
            else:
                worst = max(worst, relative_error(values, run[key][:length]))
    if worst > PREFIX_TOLERANCE[model.device.type]:
        raise SystemExit(f"a prefix differs from the full length by {worst:.2e}")
    return worst


def draw(folder, n_vocab, length, seed, random):
    generator = np.random.default_rng(seed)
    ids = generator.integers(0, n_vocab, length)
    vocabulary = Path(folder) / "tokenizer.json"
    if random or not vocabulary.exists():
        return ids
    from tokenizers import Tokenizer

    text = Tokenizer.from_file(str(vocabulary)).encode((HERE / "passage.txt").read_text(), add_special_tokens=False)
    words = np.resize(np.array(text.ids), length)
    return np.where(generator.random(length) < 0.1, ids, words)


def find_tokens(model, folder, length, seed, random):
    """The first seed whose run has no close call, or else the best of all tries; its tokens and its run."""
    best = None
    for attempt in range(seed, seed + TRIES):
        tokens = draw(folder, model.config.vocab_size, length, attempt, random)
        run = reference.forward(model, tokens)
        router, argmax = margins(run, model.config.num_hidden_layers, model.config.num_experts_per_tok)
        slack = min(router / ROUTER_MARGIN, argmax / ARGMAX_MARGIN)
        if best is None or slack > best[0]:
            best = (slack, attempt, tokens, run, router, argmax)
        if slack >= 1:
            break
    if best[0] < 1:
        print(f"{folder}: {TRIES} drawings all had a close call; kept that of seed {best[1]}")
    return best[1:]


def make(folder, dtype=torch.float32, seed=1, length=1000, tokens=None, random=False, rows="few",
         device="cpu"):
    """{name: array} and metadata of a golden."""
    model = reference.load(folder, dtype, device)
    config = model.config
    if tokens is None:
        seed, tokens, run, router, argmax = find_tokens(model, folder, length, seed, random)
    else:
        run = reference.forward(model, tokens)
        router, argmax = margins(run, config.num_hidden_layers, config.num_experts_per_tok)
    count = len(tokens)
    metadata = {
        **reference.versions(),
        "model": Path(folder).name,
        "dtype": str(dtype).removeprefix("torch."),
        "seed": str(seed),
        "router_margin": f"{router:.3e}",
        "argmax_margin": f"{argmax:.3e}",
    }
    kept = np.arange(count) if rows == "all" else np.array([row for row in ROWS if row < count])
    logit_rows = kept if rows == "all" else kept[-max(4, LOGIT_BYTES // (4 * config.vocab_size)) :]
    golden = {
        "tokens": np.array(tokens, dtype=np.int32),
        "lengths": np.array([n for n in LENGTHS if n <= count], dtype=np.int32),
        "rows": kept.astype(np.int32),
        "logit_rows": logit_rows.astype(np.int32),
        "logits": run.pop("logits"),
    }
    golden["argmax"] = golden["logits"].argmax(-1).astype(np.int32)
    golden["logits"] = golden["logits"][logit_rows]
    for key in [key for key in run if key.endswith("router_choice")]:
        golden[key] = run.pop(key).astype(np.uint8)
    if dtype == torch.float32:
        golden |= {key: values[kept] for key, values in run.items()}
        golden |= reference.rope_tables(model, [p for p in ROPE_POSITIONS if p < config.max_position_embeddings])
        golden |= reference.expert_checksums(model)
        prefix = check_prefixes(model, tokens, reference.forward(model, tokens), golden["lengths"])
        metadata["prefix_error"] = f"{prefix:.1e}"
    return golden, metadata


def write(path, golden, metadata):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({key: np.ascontiguousarray(values) for key, values in golden.items()}, path,
              {"golden": json.dumps(metadata, sort_keys=True)})  # one key: the writer shuffles several
    path.chmod(0o644)
    print(f"{path}: {path.stat().st_size} bytes; " + ", ".join(f"{key} {metadata[key]}" for key in sorted(metadata)))


def read(path):
    with safe_open(path, "np") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, json.loads(file.metadata()["golden"])


def make_mxfp4():
    """All scale bytes x all codes, as transformers dequantises them to bfloat16 and to float32: [256][16]."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    pairs = torch.arange(0, 16, 2, dtype=torch.uint8) | (torch.arange(1, 16, 2, dtype=torch.uint8) << 4)
    blocks = pairs.repeat(2).expand(1, 256, 1, 16).contiguous()
    scales = torch.arange(256, dtype=torch.uint8).reshape(1, 256, 1)
    tables = {}
    for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        values = convert_moe_packed_tensors(blocks, scales.clone(), dtype=dtype)
        tables[name] = values[0].T[:, :16].float().contiguous().numpy()
    return tables, reference.versions()


def golden_path(folder, suffix=""):
    """Where a committed golden is."""
    return DEMO / f"golden{suffix}.safetensors" if folder == DEMO else DATA / f"{folder.name}{suffix}.safetensors"


def make_both(folder):
    """The committed goldens of a model: float32, and bfloat16 on the same tokens."""
    golden, metadata = make(folder)
    write(golden_path(folder), golden, metadata)
    write(golden_path(folder, "-bf16"), *make(folder, torch.bfloat16, tokens=golden["tokens"]))


def make_all():
    write(DATA / "mxfp4.safetensors", *make_mxfp4())
    folders = [MODELS / shape.name for shape in SHAPES]
    if (DEMO / "config.json").exists():
        folders.append(DEMO)
    for folder in folders:
        make_both(folder)


def read_tokens(path):
    if path.suffix == ".safetensors":
        return read(path)[0]["tokens"]
    return np.array(path.read_text().split(), dtype=np.int64)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--tokens", type=Path)
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--device", default="cpu", help="torch's name of the device that computes")
    parser.add_argument("--rows", choices=("few", "all"), default="few")
    options = parser.parse_args()
    if options.all:
        make_all()
        return
    if options.folder is None:
        parser.error("MODEL_DIR or --all is needed")
    if options.out is None:
        make_both(options.folder)
        return
    tokens = read_tokens(options.tokens) if options.tokens else None
    write(options.out, *make(options.folder, getattr(torch, options.dtype), options.seed, options.length, tokens,
                             options.random, options.rows, options.device))


if __name__ == "__main__":
    main()
