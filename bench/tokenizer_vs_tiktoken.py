#!/usr/bin/env python3
"""gossamer's tokenizer against tiktoken, one thread each, on the same texts, in turn in one sitting.

The texts: prose from the licences under /usr/share/common-licenses (else from Python's docstrings), code from
Python's standard library, Chinese from a list of words. Prints medians of several runs, the slowest and the
fastest, and the machine. Both are timed by the processor time of their thread, which other programs on the
machine disturb less than they do the clock.

usage: tokenizer_vs_tiktoken.py [--bench BIN] [--tokenizer FILE] [--rounds N]
"""

import argparse
import ast
import glob
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

import tiktoken

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/text"))
from compare_tokenizers import make_tiktoken

SIZE = 1_000_000  # bytes of each text, about
CHINESE = (
    "的 是 在 我们 他们 和 一个 中国 可以 时间 语言 模型 学习 问题 发展 北京 因为 所以 经济 文化 科学 研究 历史 春天 图书馆 "
    "政府 世界 人民 技术 城市 生活 教育 市场 已经 非常 没有 什么 现在 开始 工作 大学 计算机 电影 音乐 朋友 家庭 健康 "
    "环境 信息 公司 产品 服务 第一 重要 不同 方法 系统 数据 分析 结果"
).split()


def python_sources():
    for path in sorted(glob.glob(os.path.join(sysconfig.get_path("stdlib"), "*.py"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            yield file.read()


def docstrings():
    for source in python_sources():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                yield (ast.get_docstring(node) or "") + "\n\n"


def licences():
    for path in sorted(glob.glob("/usr/share/common-licenses/*")):
        if os.path.isfile(path) and not os.path.islink(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield file.read()


def clauses():
    source = random.Random(1)
    while True:
        words = "".join(source.choice(CHINESE) for _ in range(source.randint(2, 8)))
        yield words + source.choice("，，，。。！？；")


def up_to_size(parts):
    text = []
    size = 0
    for part in parts:
        text.append(part)
        size += len(part.encode())
        if size >= SIZE:
            break
    return "".join(text)


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return re.search(r"model name\s*: (.*)", file.read()).group(1)
    except (OSError, AttributeError):
        return platform.processor() or platform.machine()


def time_tiktoken(encoding, text):
    start = time.thread_time()
    ids = encoding.encode_ordinary(text)
    return len(text.encode()) / 1e6 / (time.thread_time() - start), len(ids)


def time_gossamer(options, path):
    output = subprocess.run(
        [options.bench, "--tokenizer", options.tokenizer, path], stdout=subprocess.PIPE, check=True, text=True
    ).stdout
    found = re.search(r"([\d.]+) MB/s .* (\d+) tokens", output)
    return float(found.group(1)), int(found.group(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bench", default="build/bench/bench_tokenizer")
    parser.add_argument("--tokenizer", default="build/o200k/tokenizer.json")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    encoding = make_tiktoken(options.tokenizer)
    texts = {
        "prose": up_to_size([*licences(), *docstrings()]),
        "code": up_to_size(python_sources()),
        "Chinese": up_to_size(clauses()),
    }
    print(f"{cpu_name()}, {os.cpu_count()} processors, {platform.system()} {platform.release()}")
    print(f"gossamer against tiktoken {tiktoken.__version__}, one thread each, {options.rounds} rounds in turn; MB per second of processor time")
    for name, text in texts.items():
        with tempfile.NamedTemporaryFile(suffix=".txt") as file:
            file.write(text.encode())
            file.flush()
            ours, theirs = [], []
            time_tiktoken(encoding, text)
            for _ in range(options.rounds):
                speed, n_ours = time_gossamer(options, file.name)
                ours.append(speed)
                speed, n_theirs = time_tiktoken(encoding, text)
                theirs.append(speed)
        if n_ours != n_theirs:
            sys.exit(f"{name}: {n_ours} tokens by gossamer, {n_theirs} by tiktoken")
        one, other = statistics.median(ours), statistics.median(theirs)
        print(
            f"{name:8} {one:7.2f} ({min(ours):.2f} ... {max(ours):.2f}) against "
            f"{other:6.2f} ({min(theirs):.2f} ... {max(theirs):.2f}): {one / other:.1f} times; {n_ours} tokens"
        )


if __name__ == "__main__":
    main()
