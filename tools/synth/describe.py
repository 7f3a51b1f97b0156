#!/usr/bin/env python3
"""What random weights do to a model: the residual stream's size and the routers' load, from a golden.

    describe.py GOLDEN.safetensors        (tools/oracle/make_golden.py writes it)
"""

import sys

import numpy as np
from safetensors import safe_open


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: describe.py GOLDEN.safetensors")
    with safe_open(sys.argv[1], "np") as file:
        golden = {key: file.get_tensor(key) for key in file.keys()}
    n_layer = sum(key.endswith(".layer") for key in golden)

    def rms(key):
        return np.sqrt(np.mean(np.square(golden[key], dtype=np.float64)))

    print(f"embedding rms {rms('embedding'):.3f}, logits rms {rms('logits'):.3f}")
    print("layer  attention    moe  residual  busiest expert  idle experts   (load over the mean load)")
    for i in range(n_layer):
        n_expert = golden[f"layers.{i}.router"].shape[1]
        load = np.bincount(golden[f"layers.{i}.router_choice"].ravel(), minlength=n_expert)
        print(f"{i:5} {rms(f'layers.{i}.attention'):10.3f} {rms(f'layers.{i}.moe'):6.3f} "
              f"{rms(f'layers.{i}.layer'):9.3f} {load.max() / load.mean():14.2f}x {np.sum(load == 0):13}")


if __name__ == "__main__":
    main()
