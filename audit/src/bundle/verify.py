#!/usr/bin/env python3
"""Checks a bundle of a Portcullis audit log, with only Python's standard library.

    python3 verify.py BUNDLE [--key KEY] [--anchor FILE]

KEY is the log's key, as its operator has published it;
without it, the key in the bundle is used, and its owner could have made the whole bundle. FILE has checkpoints that you
kept: signed notes, or lines of a journal with `portcullis-checkpoint`. The exit code is 0 if all that is there holds.

A row is a line of JSON. Its hash is the SHA-256 of its bytes before `,"hash":"`, and `prev` is the hash of the row
before. Rows that are not disclosed are a `-` and their hash. The tree over the hashes is that of RFC 6962, and a
checkpoint is a note as in c2sp.org/signed-note, signed with Ed25519 (RFC 8032).
"""
import argparse, base64, hashlib, json, pathlib, re, sys, tarfile

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)
sha256 = lambda data: hashlib.sha256(data).digest()


def point_x(y, sign):
    """The x of a point of the curve (RFC 8032, section 5.1.3)."""
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x * ROOT % P if (x * x - square) % P else x
    if (x * x - square) % P or (x == 0 and sign):
        return None
    return P - x if x & 1 != sign else x


def point(text):
    number = int.from_bytes(text, "little")
    y, sign = number & (2**255 - 1), number >> 255
    x = point_x(y, sign) if y < P else None
    if x is None:
        raise ValueError("not a point of the curve")
    return (x, y, 1, x * y % P)


def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def multiply(scalar, factor):
    result = (0, 1, 1, 0)
    while scalar:
        result = add(result, factor) if scalar & 1 else result
        factor, scalar = add(factor, factor), scalar >> 1
    return result


def signature_holds(key, message, signature):
    s = int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or s >= L:
        return False
    try:
        public, r = point(key), point(signature[:32])
    except ValueError:
        return False
    y = 4 * pow(5, P - 2, P) % P
    x = point_x(y, 0)
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % L
    left, right = multiply(s, (x, y, 1, x * y % P)), add(r, multiply(challenge, public))
    return not any((left[i] * right[2] - right[i] * left[2]) % P for i in (0, 1))


class Tree:
    """The right edge of a tree: the roots of its largest whole subtrees."""

    def __init__(self, size=0, roots=()):
        self.size, self.roots = size, list(roots)
        assert len(self.roots) == bin(size).count("1"), "the tree before the first row has a wrong size"

    def push(self, row_hash):
        node, size = sha256(b"\0" + row_hash), self.size
        while size & 1:
            node, size = sha256(b"\1" + self.roots.pop() + node), size >> 1
        self.roots.append(node)
        self.size += 1

    def root(self):
        node = self.roots[-1] if self.roots else sha256(b"")
        for left in reversed(self.roots[:-1]):
            node = sha256(b"\1" + left + node)
        return node


def continues(old, old_root, new, new_root, proof):
    """Whether the proof shows that the new tree continues the old one (RFC 9162, section 2.1.4.2)."""
    if old == 0 or old >= new:
        return old <= new and not proof and (old == 0 or old_root == new_root)
    proof = ([old_root] if old & (old - 1) == 0 else []) + proof
    if not proof:
        return False
    a, b, first, second = old - 1, new - 1, proof[0], proof[0]
    while a & 1:
        a, b = a >> 1, b >> 1
    for node in proof[1:]:
        if b == 0:
            return False
        if a & 1 or a == b:
            first, second = sha256(b"\1" + node + first), sha256(b"\1" + node + second)
            while a and not a & 1:
                a, b = a >> 1, b >> 1
        else:
            second = sha256(b"\1" + second + node)
        a, b = a >> 1, b >> 1
    return b == 0 and (first, second) == (old_root, new_root)


def parse_note(text, key):
    """The size and the root of a note, after a check of its signature."""
    name, key_id, public = key.strip().split("+", 2)
    public = base64.b64decode(public)
    body, _, signatures = text.partition("\n\n")
    origin, size, root = body.split("\n")[:3]
    if origin != name or public[:1] != b"\1":
        raise ValueError(f"the checkpoint of {size} rows is of another log or key")
    for line in signatures.splitlines():
        signer, _, signature = line.removeprefix("— ").partition(" ")
        signature = base64.b64decode(signature)
        if signer == name and signature[:4].hex() == key_id:
            if signature_holds(public[1:], (body + "\n").encode(), signature[4:]):
                return int(size), base64.b64decode(root)
    raise ValueError(f"the checkpoint of {size} rows has no valid signature of the key")


def notes_in(text):
    for origin, size, root, signature in re.findall(r"portcullis-checkpoint (\S+) (\d+) (\S+) ([\w+/=]+)", text):
        yield f"{origin}\n{size}\n{root}\n\n— {origin} {signature}\n"
    yield from re.findall(r"^\S+\n\d+\n[\w+/=]+\n\n(?:— .*\n)+", text, re.MULTILINE)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bundle", "--key", "--anchor"):
        options.add_argument(name)
    options = options.parse_args()
    archive = tarfile.open(options.bundle)
    names, read = archive.getnames(), archive.extractfile
    facts = json.load(read("bundle.json"))
    key, faults = options.key or facts["key"], []
    texts = {name: read(name).read().decode() for name in names if name.startswith("notes/")}
    for number, text in enumerate(notes_in(open(options.anchor, errors="replace").read()) if options.anchor else ()):
        texts[f"anchor {number + 1}"] = text
    if options.anchor and not any(name.startswith("anchor") for name in texts):
        faults.append(f"{options.anchor} has no checkpoint")
    notes = {}
    for name, text in texts.items():
        try:
            notes.setdefault(parse_note(text, key), name)
        except ValueError as fault:
            faults.append(f"{name}: {fault}")
    tree = Tree(facts["first"] - 1, map(bytes.fromhex, facts["left"]))
    sizes, roots, disclosed, prev = {size for size, _ in notes}, {}, 0, None
    roots[tree.size] = tree.root()
    for line in read("rows.txt"):
        if line.startswith(b"-"):
            row_hash = line[1:65].decode()
        else:
            body, _, rest = line.rpartition(b',"hash":"')
            row_hash, row = rest[:64].decode(), json.loads(line)
            disclosed += 1
            if hashlib.sha256(body).hexdigest() != row_hash or row["seq"] != tree.size + 1:
                faults.append(f"row {tree.size + 1} was changed")
            if prev not in (None, row["prev"]):
                faults.append(f"row {tree.size + 1} does not follow the row before it")
        prev = row_hash
        tree.push(bytes.fromhex(row_hash))
        if tree.size in sizes:
            roots[tree.size] = tree.root()
    for (size, root), name in notes.items():
        if size in roots and roots[size] != root:
            faults.append(f"{name}: the rows up to {size} differ from those of the checkpoint")
        elif size > tree.size:
            faults.append(f"{name}: rows {tree.size + 1} to {size} are missing")
        elif size < facts["first"] - 1:
            proofs = [p["hashes"] for p in facts["consistency"] if p["size"] == size]
            hashes = [[bytes.fromhex(node) for node in proof] for proof in proofs]
            if not any(continues(size, root, tree.size, tree.root(), proof) for proof in hashes):
                faults.append(f"{name}: no proof shows that the log continues it")
    if not any(size == tree.size for size, _ in notes):
        faults.append("no checkpoint covers the last row")
    for name in names:
        file = pathlib.PurePath(name)
        if file.parent.name in ("policies", "questions") and file.suffix in (".json", ".txt"):
            if hashlib.sha256(read(name).read()).hexdigest() != file.stem:
                faults.append(f"{name} is not the text that rows name")
    for fault in faults:
        print(f"FAULT: {fault}")
    print(f"{'not ' if faults else ''}proven: rows {facts['first']} to {tree.size}, {disclosed} disclosed, key {key}")
    return 1 if faults else 0


sys.exit(main())
