"""Packs the program ZIP holds anew, as small as it goes: pack.py ZIP...

The library for it is libdeflate, which takes some seconds; what cargo-lambda packs with is made to be quick, and leaves a
twenty-fifth more. The instant is a fixed one, so that the same program is the same file.
"""

import struct
import sys
import zipfile
import zlib
from pathlib import Path

import deflate

LEVEL = 12
# The first of January 1980, in the two numbers of a zip; older there is none.
TIME, DATE = 0, 0x21
# What made it is a Unix, and it is a file that all may run: those bits stand in the upper half.
UNIX, EXECUTABLE = 3 << 8 | 20, 0o100755 << 16
DEFLATED = 8


def packed(name: str, content: bytes) -> bytes:
    """A zip with one program, called `name`."""
    body = deflate.deflate_compress(content, LEVEL)
    about = (20, 0, DEFLATED, TIME, DATE, zlib.crc32(content), len(body), len(content), len(name), 0)
    entry = b"PK\3\4" + struct.pack("<5H3I2H", *about) + name.encode() + body
    directory = b"PK\1\2" + struct.pack("<6H3I5H2I", UNIX, *about, 0, 0, 0, EXECUTABLE, 0) + name.encode()
    return entry + directory + b"PK\5\6" + struct.pack("<4H2IH", 0, 0, 1, 1, len(directory), len(entry), 0)


for path in map(Path, sys.argv[1:]):
    with zipfile.ZipFile(path) as before:
        [name] = before.namelist()
        content = before.read(name)
    new = path.with_suffix(".new")
    new.write_bytes(packed(name, content))
    with zipfile.ZipFile(new) as after:
        if after.read(name) != content:
            sys.exit(f"{path}: what was packed anew is not what it was")
    new.replace(path)
