"""Writes the seeds of fuzz_safetensors and fuzz_json (valid and malformed, one rule each) to a corpus folder.

    python tests/fuzz/make_corpus.py tests/fuzz/corpus
"""

import os
import sys

ENTRY = '{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}'
EMPTY = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'


def entry(dtype="I32", shape="[2,2]", offsets="[0,16]", extra=""):
    return f'{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{extra}}}}}'


# name: header, bytes of data
HEADERS = {
    "valid": ('{"test":' + ENTRY + "}", 16),
    "valid_empty": ("{}", 0),
    "valid_blanks": ('{ "test" : ' + ENTRY + " } \t\r\n  ", 16),
    "valid_metadata": ('{"__metadata__":{"format":"pt","é":"\\ud83d\\ude00"},"test":' + ENTRY + "}", 16),
    "valid_three": ('{"b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]},"a\\u00e9":{"data_offsets":[0,16],'
                    '"shape":[2,4],"dtype":"BF16"},"":{"dtype":"F32","shape":[],"data_offsets":[19,23]}}', 23),
    "valid_sub_byte": ('{"f4":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},"f6":{"dtype":"F6_E2M3","shape":[4],'
                       '"data_offsets":[1,4]}}', 4),
    "valid_zero": (entry("F64", "[0,18446744073709551615]", "[0,0]"), 0),
    "valid_float8": (entry("F8_E4M3", "[4]", "[0,4]"), 4),
    "trailing_data": ('{"test":' + ENTRY + "}", 17),
    "truncated": ('{"test":' + ENTRY + "}", 14),
    "size_mismatch": (entry(offsets="[0,4]"), 16),
    "overflow": (entry(shape="[2,18446744073709551614]"), 16),
    "overflow_bits": (entry("U8", "[2305843009213693952]"), 16),
    "overflow_before_zero": (entry("U8", "[18446744073709551615,2,0]", "[0,0]"), 0),
    "large_dimension": (entry(shape="[4398046511105]"), 16),
    "negative": (entry(shape="[-1]"), 16),
    "minus_zero": (entry(shape="[-0]"), 0),
    "float": (entry(shape="[1.0]"), 4),
    "exponent": (entry(shape="[1e3]"), 16),
    "true": (entry(shape="[true]"), 4),
    "string": (entry(shape='["2"]'), 8),
    "beyond_u64": (entry(shape="[18446744073709551616]"), 16),
    "partial_byte": (entry("F4", "[3]", "[0,2]"), 2),
    "reversed": (entry(offsets="[16,0]"), 16),
    "end_past_file": (entry(offsets="[0,17]"), 16),
    "three_offsets": (entry(offsets="[0,16,16]"), 16),
    "overlap": ('{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],'
                '"data_offsets":[3,7]}}', 7),
    "hole": ('{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],'
             '"data_offsets":[5,9]}}', 9),
    "duplicate_name": ('{"a":' + EMPTY + ',"\\u0061":' + EMPTY + "}", 0),
    "duplicate_key": (entry(extra=',"dtype":"I32"'), 16),
    "duplicate_metadata": ('{"__metadata__":{"a":"b","a":"b"}}', 0),
    "metadata_number": ('{"__metadata__":{"a":1}}', 0),
    "unknown_key": (entry(extra=',"x":[[1]]'), 16),
    "unknown_dtype": (entry("I31"), 16),
    "missing_key": ('{"a":{"dtype":"U8","shape":[0]}}', 0),
    "nul_in_name": ('{"a\\u0000b":' + EMPTY + "}", 0),
    "lone_surrogate": ('{"\\ud800":' + EMPTY + "}", 0),
    "deep": ('{"a":' + "[" * 9 + "]" * 9 + "}", 0),
    "leading_blank": (' {"a":' + EMPTY + "}", 0),
    "not_an_object": ("[]", 0),
    "incomplete": ('{"test":' + ENTRY, 16),
}

FILES = {
    "file_empty": b"",
    "file_8_bytes": bytes(8),
    "file_length_ff": b"\xff" * 8 + b"{}",
    "file_not_utf8": b"\x01" + bytes(7) + b"\xff",
    "file_valid": b"\x3c" + bytes(7) + b'{"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}' + bytes(16),
    "file_header_past_end": b"\x03" + bytes(7) + b"{}",
    "file_lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}

TEXTS = {
    "all_kinds": '{"a":[1,-2.5e3,true,false,null,"x\\u00e9\\n\\ud83d\\ude00"],"b":{"c":{},"d":[[],[0]]},"e":"模"}',
    "numbers": "[0,1,10,-0,0.5,1e5,1E-7,1.25e+2,18446744073709551615,18446744073709551616]",
    "escapes": '"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000"',
    "blanks": " \t\r\n[ 1 , 2 ] \n",
    "scalar": "true",
    "bad_number": "[01]",
    "bad_escape": '"\\x"',
    "bad_comma": "[1,]",
    "bad_key": "{a:1}",
    "lone_surrogate": '"\\ud800\\u0041"',
    "open_string": '{"a":"b',
    "two_values": "{}{}",
    "depth_64": "[" * 64 + "]" * 64,
    "depth_65": "[" * 65 + "]" * 65,
    "control": '"a\nb"',
    "duplicate": '{"a":1,"a":2}',
    "header": '{"test":' + ENTRY + "}  ",
    "tokenizer": '{"version":"1.0","added_tokens":[{"id":1,"content":"<|x|>","special":true}],'
                 '"model":{"type":"BPE","vocab":{"a":0,"Ġb":1},"merges":[["a","b"]]}}',
    "index": '{"metadata": {"total_size": 4}, "weight_map": {"a": "model-00000-of-00001.safetensors", '
             '"b": "model-00001-of-00001.safetensors"}}',
    "index_outside": '{"weight_map":{"a":"../a.safetensors"}}',
    "index_nul": '{"weight_map":{"a":"a\\u0000.safetensors"}}',
    "index_duplicate": '{"weight_map":{"a":"a.safetensors","a":"b.safetensors"}}',
    "index_number": '{"weight_map":{"a":1},"metadata":[]}',
    "index_deep": '{"weight_map":{"a":"a.safetensors"},"x":[[[[[[[[1]]]]]]]]}',
}


def write(folder, name, data):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def main():
    corpus = sys.argv[1]
    for name, (header, size) in HEADERS.items():
        write(os.path.join(corpus, "safetensors"), name, b"\x01" + size.to_bytes(2, "little") + header.encode())
    for name, data in FILES.items():
        write(os.path.join(corpus, "safetensors"), name, b"\x00" + data)
    for name, text in TEXTS.items():
        write(os.path.join(corpus, "json"), name, text.encode())


if __name__ == "__main__":
    main()
