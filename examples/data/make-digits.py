#!/usr/bin/env python3
"""Makes digits-train.jsonl.gz and digits-test.jsonl.gz from scikit-learn's digits.csv.gz.

    pip download scikit-learn --no-deps
    unzip scikit_learn-*.whl sklearn/datasets/data/digits.csv.gz
    python3 make-digits.py sklearn/datasets/data/digits.csv.gz

Writes into this file's directory, the same bytes each time.
"""

import gzip
import io
import json
import pathlib
import sys

STEP = 5  # every fifth example is for testing


def examples(path):
    """The file's rows: 64 grey values in 0..16, then the digit."""
    with gzip.open(path, "rt") as rows:
        for row in rows:
            *tokens, label = (int(float(field)) for field in row.split(","))
            assert len(tokens) == 64 and all(0 <= t <= 16 for t in tokens) and 0 <= label <= 9
            yield {"tokens": tokens, "label": label}


def write(path, rows):
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    packed = io.BytesIO()
    # No name and no time in the header: the bytes depend on the rows alone.
    with gzip.GzipFile("", "wb", 9, packed, mtime=0) as file:
        file.write(text.encode())
    path.write_bytes(packed.getvalue())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = list(examples(sys.argv[1]))
    assert len(rows) == 1797
    # Every fifth in the order of the digits, so that both parts have each digit's share.
    by_digit = sorted(range(len(rows)), key=lambda i: rows[i]["label"])
    test = set(by_digit[::STEP])
    here = pathlib.Path(__file__).resolve().parent
    write(here / "digits-train.jsonl.gz", [row for i, row in enumerate(rows) if i not in test])
    write(here / "digits-test.jsonl.gz", [row for i, row in enumerate(rows) if i in test])


main()
