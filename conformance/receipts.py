#!/usr/bin/env python3
"""Verifies receipts `receipt-2026-04-25`, without any code of Dormouse.

    receipts.py FILE [--key ID=base64:KEY]... [--at TIME]

FILE holds one receipt in each line, in the order of their issue. A line `{"object": "receipt.keys", "data": [...]}`
names keys; with --key only those given are trusted. Keys are believed as at TIME, without it as now. Prints a JSON object for each receipt: its canonical form (without
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
from datetime import datetime, timedelta, timezone

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PREFIX = "base64:"
# What may stand in a signature: the hash is over all of a receipt but this.
SIGNATURE = {"key_id", "algorithm", "signature", "signed_at"}
# By how much the clocks of issuer and verifier may differ.
SKEW = timedelta(minutes=5)
# How long a key may still sign when the next one does: machines that were started before hold it.
GRACE = timedelta(days=1)


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
    decoded = base64.b64decode(text[len(PREFIX) :], validate=True)
    if PREFIX + base64.b64encode(decoded).decode("ascii") != text:
        raise ValueError("the same bytes are written otherwise")
    return decoded


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


def instant(text):
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text} is no instant: it has no offset")
    return moment


def signatures_of(receipt):
    """The signatures that are verified, all of which have their form."""
    found = receipt.get("signatures", [])
    for one in found:
        if not set(one) <= SIGNATURE or not all(isinstance(value, str) and value for value in one.values()):
            raise ValueError("a signature has another form")
        if "signed_at" in one:
            instant(one["signed_at"])
    return [one for one in found if one["algorithm"] == "ed25519"]


def fault(receipt, digest, keys, at):
    """What is wrong with the receipt alone."""
    claimed = receipt["chain"]["receipt_hash"]
    signatures = signatures_of(receipt)
    if claimed != digest:
        return "hash_mismatch"
    if not signatures:
        return "unsigned"
    trusted = [one for one in signatures if one["key_id"] in keys]
    if not all(signed_by(keys[one["key_id"]]["key"], claimed.encode("ascii"), one["signature"]) for one in trusted):
        return "bad_signature"
    if not trusted:
        return "unknown_key"
    named = receipt["issuer"].get("public_key_id")
    if named is not None and all(one["key_id"] != named for one in trusted):
        return "other_key_named"
    issued_at = instant(receipt["issued_at"])
    if issued_at > at + SKEW:
        return "not_yet_issued"
    return disbelieved([keys[one["key_id"]] for one in trusted], issued_at, at)


def disbelieved(keys, issued_at, at):
    """Why one of `keys`, which signed at `issued_at`, is not to be believed at `at`."""
    for key in keys:
        if "revoked_at" in key and at >= instant(key["revoked_at"]):
            return "key_revoked"
        is_too_early = "created_at" in key and issued_at < instant(key["created_at"])
        if is_too_early or ("retired_at" in key and issued_at > instant(key["retired_at"]) + GRACE):
            return "key_not_in_use"
    return None


def broken_link(receipt, heads):
    """True if the receipt does not follow the last one of its session."""
    session = receipt["identifiers"]["session_id"]
    chain, before = receipt["chain"], heads.get(session)
    heads[session] = chain["receipt_hash"]
    return chain["previous_receipt_hash"] != before


def examine(text, keys, heads, at):
    try:
        receipt = parse(text)
        form = canonical(receipt)
        digest = "sha256:" + hashlib.sha256(form).hexdigest()
        found = fault(receipt, digest, keys, at)
        link = broken_link(receipt, heads)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, rfc8785.CanonicalizationError) as error:
        return {"fault": "malformed", "reason": str(error)}
    return {
        "receipt_id": receipt.get("receipt_id"),
        "canonical": form.decode("utf-8"),
        "hash": digest,
        "fault": found or ("broken_link" if link else None),
    }


def public_key(text, **times):
    """A public key, and since when and until when it signed, as far as that is known."""
    key = Ed25519PublicKey.from_public_bytes(from_base64(text))
    return {"key": key, **{name: time for name, time in times.items() if time is not None}}


def dated(key):
    times = ("created_at", "retired_at", "revoked_at")
    return public_key(key["public_key"], **{name: key.get(name) for name in times})


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
                keys.update({key["id"]: dated(key) for key in named})
    return lines, keys


def main():
    parser = argparse.ArgumentParser(description="Verifies receipts.")
    parser.add_argument("file")
    parser.add_argument("--key", action="append", default=[], metavar="ID=base64:KEY")
    parser.add_argument("--at", type=instant, default=datetime.now(timezone.utc), metavar="TIME")
    given = parser.parse_args()
    lines, keys = read(given.file)
    if given.key:
        keys = {name: public_key(text) for name, text in (key.split("=", 1) for key in given.key)}
    heads = {}
    found = [examine(line, keys, heads, given.at) for line in lines]
    for one in found:
        print(json.dumps(one, ensure_ascii=False))
    return 0 if found and all(one["fault"] is None for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
