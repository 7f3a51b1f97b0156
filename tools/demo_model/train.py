"""Trains the demo model on one CUDA device and writes it as a checkpoint.

    python train.py --out ../../models/demo --seconds 440 --workers 14

Expert weights are trained through MXFP4 rounding and all others through bf16 rounding, so the
checkpoint holds exactly the function that was trained. The learning rate follows whichever runs out
first, steps or seconds, so a slower machine also ends at rate zero.
"""

import argparse
import json
import multiprocessing
import time
from pathlib import Path

import numpy as np
import torch

import checkpoint
import harmony
import model as demo
from corpus import Corpus

BALANCE = 0.01          # weight of the router's balance loss
WARMUP_STEPS = 200
DECAY_FROM = 0.4        # of the whole run; from there the rate falls linearly to zero


def produce(queue, tokenizer, seed, batch, length, long_share):
    """Worker: batches of sequences for ever, as (ids, weights in percent)."""
    corpus = Corpus(harmony.Encoder(tokenizer), seed)
    while True:
        sequences = [corpus.sequence(length + 1, long_share) for _ in range(batch)]
        ids = np.array([s[0] for s in sequences], dtype=np.uint16)
        weights = np.array([s[1] for s in sequences], dtype=np.float32)
        queue.put((ids, np.rint(weights * 100).astype(np.uint8)))


class Batches:
    """The workers' batches in a fixed order: one of each worker in turn."""

    def __init__(self, args):
        self.queues, self.workers, self.turn = [], [], 0
        for i in range(args.workers):
            queue = multiprocessing.Queue(4)
            settings = (queue, args.tokenizer, args.seed * 1000 + i, args.batch, args.length, args.long_share)
            worker = multiprocessing.Process(target=produce, args=settings, daemon=True)
            worker.start()
            self.queues.append(queue)
            self.workers.append(worker)

    def next(self, device):
        ids, weights = self.queues[self.turn].get()
        self.turn = (self.turn + 1) % len(self.queues)
        ids = torch.from_numpy(ids.astype(np.int64)).to(device, non_blocking=True)
        weights = torch.from_numpy(weights).to(device, non_blocking=True).float() / 100
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), weights[:, 1:].contiguous()

    def close(self):
        for worker in self.workers:
            worker.terminate()


def make_optimizer(model, rate):
    groups = {"matrix": [], "other": []}
    for name, p in model.named_parameters():
        inner = p.dim() >= 2 and name.startswith("model.layers") and not name.endswith("bias")
        groups["matrix" if inner else "other"].append(p)
    return torch.optim.AdamW([{"params": groups["matrix"], "weight_decay": 0.1},
                              {"params": groups["other"], "weight_decay": 0.0}],
                             lr=rate, betas=(0.9, 0.95), eps=1e-10, fused=True)


def rate_factor(step, progress):
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    return warm * min(1.0, max(0.0, (1 - progress) / (1 - DECAY_FROM)))


def train(model, batches, args, device):
    """Runs the steps; returns a summary."""
    fast = demo.FastForward(model, args.length, device)
    compute = torch.compile(fast) if args.compile else fast
    optimizer = make_optimizer(model, args.rate)
    started = time.time()
    first, step, progress, history = None, 0, 0.0, []
    while progress < 1:
        loss, balance, right = compute(*batches.next(device))
        (loss + BALANCE * balance).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = args.rate * rate_factor(step, progress)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step == 5:   # compiled by now: the clock of the schedule starts
            torch.cuda.synchronize()
            first = time.time()
            print(f"compiled after {first - started:.0f} s", flush=True)
        elapsed = time.time() - first if first else 0.0
        progress = max(step / args.steps, elapsed / args.seconds)
        if step % 200 == 0 or progress >= 1:
            history.append((step, round(loss.item(), 4), round(right.item(), 4)))
            rate = (step - 5) * args.batch * args.length / max(elapsed, 1e-9)
            print(f"step {step:6} loss {loss.item():.4f} right {right.item():.4f} balance {balance.item():.3f} "
                  f"grad {norm.item():.2f} {rate / 1e6:.2f}M tokens/s {elapsed:.0f} s", flush=True)
    return {"steps": step, "tokens": step * args.batch * args.length, "seconds": round(time.time() - started),
            "history": history}


def save_masters(model, prefix):
    """The unrounded weights, as bf16 in two files, to go on from."""
    from safetensors.torch import save_file
    items = [(n, p.detach().to(torch.bfloat16).cpu().contiguous()) for n, p in model.named_parameters()]
    total, written, parts = sum(t.numel() for _, t in items), 0, [{}, {}]
    for name, tensor in items:
        parts[min(1, 2 * written // total)][name] = tensor
        written += tensor.numel()
    for i, part in enumerate(parts):
        save_file(part, f"{prefix}-{i}.safetensors")


def load_masters(model, prefix):
    from safetensors.torch import load_file
    tensors = {**load_file(f"{prefix}-0.safetensors"), **load_file(f"{prefix}-1.safetensors")}
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(tensors[name])


def arguments():
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokenizer", default=str(here / "../../models/demo/tokenizer.json"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10**6)
    parser.add_argument("--seconds", type=float, default=450)
    parser.add_argument("--batch", type=int, default=32, help="sequences a step")
    parser.add_argument("--length", type=int, default=2048, help="tokens a sequence")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--long-share", type=float, default=0.4, help="sequences that start with a recall exercise")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--masters", help="prefix of files for the unrounded weights, written at the end")
    parser.add_argument("--resume", help="prefix of such files to start from")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    return parser.parse_args()


def main():
    args = arguments()
    batches = Batches(args)   # before CUDA is touched: the workers are forked
    encoder = harmony.Encoder(args.tokenizer)
    config = demo.hf_config(encoder.tokenizer.get_vocab_size(), encoder.specials)
    torch.set_float32_matmul_precision("highest")
    demo.assert_parity(config, args.device, 256, torch.float32, 1e-4, compile_it=False)
    if args.compile:
        demo.assert_parity(config, args.device, 256, torch.bfloat16, 4e-2, compile_it=True)
        torch._dynamo.reset()
    model = demo.build_model(config, args.seed).to(args.device)
    if args.resume:
        load_masters(model, args.resume)
    summary = train(model, batches, args, torch.device(args.device))
    batches.close()
    if args.masters:
        save_masters(model, args.masters)
    parameters = dict(model.named_parameters())
    checkpoint.save(parameters, config, encoder.specials, args.out)
    checkpoint.assert_same(args.out, parameters)
    summary["device"] = torch.cuda.get_device_name() if args.device != "cpu" else "cpu"
    summary["arguments"] = {k: v for k, v in vars(args).items() if k in
                            ("seed", "seconds", "batch", "length", "rate", "long_share", "workers")}
    print("summary", json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
