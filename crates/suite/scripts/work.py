"""Files, json, zlib, re, decimal, hashes, generators and exceptions for a second or two."""
import collections
import decimal
import hashlib
import json
import os
import random
import re
import struct
import zlib


def words(limit):
    with open("input/text") as text:
        for number, line in enumerate(text):
            if number >= limit:
                return
            yield from line.split()


def compressed(data):
    packer = zlib.compressobj(6)
    parts = [packer.compress(data[i : i + 5000]) for i in range(0, len(data), 5000)]
    parts.append(packer.flush())
    packed = b"".join(parts)
    assert zlib.decompress(packed) == data
    return len(packed), zlib.crc32(packed)


def digits(count):
    decimal.getcontext().prec = count
    a, b, t, p = decimal.Decimal(1), 1 / decimal.Decimal(2).sqrt(), decimal.Decimal("0.25"), 1
    for _ in range(10):
        a, b, t, p = (a + b) / 2, (a * b).sqrt(), t - p * ((a - b) / 2) ** 2, 2 * p
    return str((a + b) ** 2 / (4 * t))


counts = collections.Counter(words(20000))
print(counts.most_common(5), len(counts))
table = {word: {"count": n, "len": len(word)} for word, n in sorted(counts.items())}
text = json.dumps(table, indent=1)
with open("table.json", "w") as out:
    out.write(text)
with open("table.json") as back:
    assert json.load(back) == table
print(hashlib.sha256(text.encode()).hexdigest(), compressed(text.encode()))
matches = re.findall(r"\b(\w*?(?:oo|zen))(\w+)\b \d*", text.replace("\n", " "))
print(len(matches), re.subn(r"(\d)(\d)", r"\2\1", text)[1])
print(digits(600)[-30:])
random.seed(7)
numbers = [random.random() for _ in range(100000)]
print(sum(sorted(numbers)[:1000]), struct.pack("<d", sum(numbers)).hex())
for i in range(30):
    name = f"part-{i}"
    with open(name, "wb") as part:
        part.write(bytes((i * k) % 251 for k in range(3000)))
    os.rename(name, f"done-{i}")
print(hashlib.md5(b"".join(open(f"done-{i}", "rb").read() for i in range(30))).hexdigest())
try:
    raise ValueError("as expected")
except ValueError as error:
    print(error)
