#!/usr/bin/env python3
"""Verifies receipts `receipt-2026-04-25`, without any code of Dormouse.

    receipts.py FILE [--key ID=base64:KEY]...

FILE holds one receipt in each line, in the order of their issue. A line `{"object": "receipt.keys", "data": [...]}`
names keys; with --key only those given are trusted. Prints a JSON object for each receipt: its canonical form (without
`chain.receipt_hash` and `signatures`), its hash, and what is wrong with it (null if nothing is). Exit status 0 if
nothing is wrong with any, else 1.

Needs the packages that receipts.txt pins: rfc8785 (canonical JSON, RFC 8785) and cryptography (Ed25519, RFC 8032).
"""

import argparse
import base64
import binascii
import hashlib
import json
import sys

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PREFIX = "base64:"


def once(pairs):
    """An object whose names come once."""
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError("a name comes twice in one object")
    return read


def refuse(constant):
    raise ValueError(f"{constant} is not JSON")


def parse(text):
    return json.loads(text, object_pairs_hook=once, parse_constant=refuse)


def from_base64(text):
    if not text.startswith(PREFIX):
        raise ValueError("no base64: in front")
    return base64.b64decode(text[len(PREFIX) :], validate=True)


def canonical(receipt):
    """The bytes that the hash is over."""
    hashed = {name: value for name, value in receipt.items() if name != "signatures"}
    chain = hashed.get("chain", {})
    hashed["chain"] = {name: value for name, value in chain.items() if name != "receipt_hash"}
    return rfc8785.dumps(hashed)


def signed_by(key, message, signature):
    try:
        key.verify(from_base64(signature), message)
        return True
    except (InvalidSignature, ValueError, binascii.Error):
        return False


def fault(receipt, digest, keys):
    """What is wrong with the receipt alone."""
    claimed = receipt["chain"]["receipt_hash"]
    if claimed != digest:
        return "hash_mismatch"
    signatures = [one for one in receipt.get("signatures", []) if one["algorithm"] == "ed25519"]
    if not signatures:
        return "unsigned"
    trusted = [one for one in signatures if one["key_id"] in keys]
    if not all(signed_by(keys[one["key_id"]], claimed.encode("ascii"), one["signature"]) for one in trusted):
        return "bad_signature"
    return None if trusted else "unknown_key"


def broken_link(receipt, heads):
    """True if the receipt does not follow the last one of its session."""
    session = receipt["identifiers"]["session_id"]
    chain, before = receipt["chain"], heads.get(session)
    heads[session] = chain["receipt_hash"]
    return chain["previous_receipt_hash"] != before


def examine(text, keys, heads):
    try:
        receipt = parse(text)
        form = canonical(receipt)
        digest = "sha256:" + hashlib.sha256(form).hexdigest()
        found = fault(receipt, digest, keys)
        link = broken_link(receipt, heads)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, rfc8785.CanonicalizationError) as error:
        return {"fault": "malformed", "reason": str(error)}
    return {
        "receipt_id": receipt.get("receipt_id"),
        "canonical": form.decode("utf-8"),
        "hash": digest,
        "fault": found or ("broken_link" if link else None),
    }


def public_key(text):
    return Ed25519PublicKey.from_public_bytes(from_base64(text))


def keys_of(line):
    """The keys that a line names, if it is one of keys."""
    try:
        value = parse(line)
    except (ValueError, RecursionError):
        return None
    is_of_keys = isinstance(value, dict) and value.get("object") == "receipt.keys"
    return value["data"] if is_of_keys else None


def read(path):
    """The lines of receipts in the file, and the keys that it names."""
    lines, keys = [], {}
    with open(path, encoding="utf-8") as file:
        for line in filter(None, map(str.strip, file)):
            named = keys_of(line)
            if named is None:
                lines.append(line)
            else:
                keys.update({key["id"]: public_key(key["public_key"]) for key in named})
    return lines, keys


def main():
    parser = argparse.ArgumentParser(description="Verifies receipts.")
    parser.add_argument("file")
    parser.add_argument("--key", action="append", default=[], metavar="ID=base64:KEY")
    given = parser.parse_args()
    lines, keys = read(given.file)
    if given.key:
        keys = {name: public_key(text) for name, text in (key.split("=", 1) for key in given.key)}
    heads = {}
    found = [examine(line, keys, heads) for line in lines]
    for one in found:
        print(json.dumps(one, ensure_ascii=False))
    return 0 if found and all(one["fault"] is None for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
