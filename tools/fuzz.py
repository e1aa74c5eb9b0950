"""Feed every parser bytes that nobody meant: each input is read, or refused by a clear error.

Coverage-guided by atheris if it is installed (`pip install atheris`), else by chance. Whatever is
raised but an error of ours, and whatever a parser opens for writing, imports from nowhere, runs or
connects to, ends the study with the input in hand.

    python tools/fuzz.py models --runs 2000     # one parser
    python tools/fuzz.py --runs 2000            # all of them, one after the other
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

try:
    import atheris
except ImportError:
    atheris = None
with (
    nullcontext()
    if atheris is None
    else atheris.instrument_imports(include=["unjoined"])
):
    import unjoined
    from unjoined import federated
    from unjoined.cli import program
    from unjoined.data import paper_problem
    from unjoined.datasets import fetch_email
    from unjoined.errors import UnjoinedError
    from unjoined.federated import PlannedSums, fourier_plan, read_sums, write_sums

FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))
WATCHED: set[str] = set()  # the parser at work
FORBIDDEN = (
    "os.system",
    "subprocess.Popen",
    "os.exec",
    "os.fork",
    "socket.connect",
    "shutil.",
)
EXTRA = b"{}[]\":,-0123456789.eE+ \n\t|='aAzZ_\\/\x00\xff"
WORDS = [
    b"null",
    b"true",
    b"NaN",
    b"1e400",
    b"-1",
    b"[]",
    b"{}",
    b'"',
    b"__reduce__",
    b"os",
]
WORDS += [
    b"system",
    b"builtins",
    b"eval",
    b"../x",
    b"99999999999999999999",
    b"\xff\xfe",
    b"",
]


class Target(NamedTuple):
    """A parser: inputs to begin with, and what is done with one."""

    seeds: list[bytes]
    read: Callable[[bytes], Any]


def as_file(read: Callable[[Path], Any], name: str = "input") -> Callable[[bytes], Any]:
    """Return a parser of bytes from one of files."""

    def parse(raw: bytes) -> Any:
        file = FOLDER / name
        file.write_bytes(raw)
        return read(file)

    return parse


def models() -> dict[str, Target]:
    """Return the parser of models."""
    data = paper_problem().draw(60, random_state=0)
    income, word = (
        50_000.0 + 1_000.0 * data.X[:, 0],
        np.where(data.X[:, 1] > 0.0, "a", "b"),
    )
    table = pa.table({"income": income, "word": word})
    fitted = [
        unjoined.MinMaxUplift(basis="linear", random_state=0).fit(**data),
        unjoined.Uplift(random_state=0).fit(**data),
        unjoined.TwoStageUplift().fit(**data),
        unjoined.Uplift(random_state=0).fit(**{**data, "X": table}),
    ]
    files = [unjoined.save_model(m, FOLDER / "seed.skops").read_bytes() for m in fitted]
    rows = [data.X, data.X, data.X, table]
    wanted = [m.predict(X) for m, X in zip(fitted, rows, strict=True)]

    def predict(raw: bytes) -> str:
        (FOLDER / "m.skops").write_bytes(raw)
        model = unjoined.load_model(FOLDER / "m.skops")
        found = model.predict(table if hasattr(model, "encoder_") else data.X)
        return (
            "same" if any(np.array_equal(found, want) for want in wanted) else "changed"
        )

    return {"model files": Target(files, predict)}


def sums() -> dict[str, Target]:
    """Return parsers of sums and plans: their bytes, and their manifest under a right checksum."""
    data = paper_problem().draw(100, random_state=0)
    model = unjoined.MinMaxUplift(n_centers=2, center=False, n_jobs=1, random_state=0)
    plan = fourier_plan({"age": (0.0, 1.0)}, ["n", "s"], n_functions=2)
    nothing = PlannedSums.of_no_rows(plan)
    found = [
        write_sums(made, FOLDER / "seed.sums").read_bytes()
        for made in (model.collect_sums(data), nothing)
    ]
    members = []
    for raw in found:
        with np.load(io.BytesIO(raw)) as archive:
            members.append(
                {name: archive[name] for name in archive.files if name != "sha256"}
            )

    def lie(raw: bytes) -> Any:
        own = members[raw[0] % len(members) if raw else 0]
        made = own | {federated.MANIFEST: np.frombuffer(raw[1:], dtype=np.uint8)}
        np.savez(file := io.BytesIO(), **made, sha256=federated._checksum(made))
        return as_file(read_sums, "lie.sums")(file.getvalue())

    manifests = [
        bytes([i]) + own[federated.MANIFEST].tobytes() for i, own in enumerate(members)
    ]
    return {
        "sums files": Target(found, as_file(read_sums)),
        "sums and plan manifests": Target(manifests, lie),
    }


def texts() -> dict[str, Target]:
    """Return parsers of text: settings, the e-mail trial and tables."""
    known = {name: name for name in (*program.SHARED, "estimator", "checkpoint", "out")}
    settings = b"outcomes = 'o.csv'\nseed = 3\n[treatments]\nn = 't.csv'\n[fit]\nestimator = 'auto'"
    email = (
        b"recency,history_segment,history,mens,womens,zip_code,newbie,channel,segment,visit,"
        b"conversion,spend\n10,2) $100 - $200,142.44,1,0,Surburban,0,Phone,Womens E-Mail,0,0,0\n"
    )
    table = 'age;name;"a;b"\n1,5;x;"y\n"\n2,5;\u00e9;z\n'
    tables = [
        table.encode(),
        table.encode("utf-16"),
        table.encode("cp1252"),
        b"a\tb\n1\t2\n",
    ]

    return {
        "settings": Target(
            [settings], as_file(lambda f: program.read_config(f, "fit", known))
        ),
        "e-mail trial": Target(
            [email], as_file(lambda f: fetch_email(path=f, download=False), "email.csv")
        ),
        "tables": Target(tables, as_file(unjoined.read_table, "table.csv")),
    }


GROUPS = {"models": models, "sums": sums, "texts": texts}


def watch(event: str, given: tuple[Any, ...]) -> None:
    """Stop at whatever a parser has no business to do."""
    if not WATCHED:
        return
    if event.startswith(FORBIDDEN):
        raise SystemExit(f"a parser did {event} {given!r}")
    if event == "open" and isinstance(given[1], str) and re.search("[wax+]", given[1]):
        path = str(given[0])
        if not path.startswith((str(FOLDER), "/dev/", tempfile.gettempdir())):
            raise SystemExit(f"a parser wrote {path}")


class Trial:
    """Inputs tried on one parser, and what became of them."""

    def __init__(self, name: str, target: Target) -> None:
        self.name, self.target, self.ends = name, target, Counter[str]()

    def __call__(self, raw: bytes) -> None:
        """Try one input."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                WATCHED.add(self.name)
                end = self.target.read(raw)
            self.ends[end if isinstance(end, str) else "read"] += 1
        except UnjoinedError:
            self.ends["refused"] += 1
        except BaseException as error:
            kept = Path(tempfile.gettempdir()) / f"fuzz-{type(error).__name__}.bin"
            kept.write_bytes(raw)
            print(
                f"{self.name}: {type(error).__name__}: {error}; the input is in {kept}"
            )
            raise
        finally:
            WATCHED.clear()
        self.tell()

    def tell(self) -> None:
        """Keep the counts where the study finds them, should this process end."""
        if sum(self.ends.values()) % 50 == 0:
            (FOLDER / "ends").write_text(json.dumps(self.ends))


def mutated(raw: bytes, rng: np.random.Generator) -> bytes:
    """Return bytes with a few changes."""
    found = bytearray(raw)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(found) + 1))
        match rng.integers(6):
            case 0:
                found = found[:at]
            case 1 if at < len(found):
                found[at] ^= 1 << int(rng.integers(8))
            case 2:
                found[at : at + int(rng.integers(8))] = WORDS[
                    int(rng.integers(len(WORDS)))
                ]
            case 3:
                found[at:at] = bytes([EXTRA[int(rng.integers(len(EXTRA)))]])
            case 4:
                end = at + int(rng.integers(60))
                found[at:at] = found[at:end]
            case _:
                found[at : at + int(rng.integers(60))] = b""
    return bytes(found)


def run(name: str, target: Target, runs: int, seed: int) -> Counter[str]:
    """Try so many inputs on one parser."""
    trial, rng = Trial(name, target), np.random.default_rng(seed)
    for raw in target.seeds:
        trial(raw)
    if atheris is None:
        for _ in range(runs):
            trial(mutated(target.seeds[int(rng.integers(len(target.seeds)))], rng))
        return trial.ends

    def mutate(raw: bytes, most: int, mutation_seed: int) -> bytes:
        own = np.random.default_rng(mutation_seed)
        if own.random() < 0.3 or len(raw) < 4:
            raw = target.seeds[int(own.integers(len(target.seeds)))]
        made = mutated(raw, own) if own.random() < 0.7 else atheris.Mutate(raw, most)
        return made[:most]

    def one(raw: bytes) -> None:
        trial(raw)
        if sum(trial.ends.values()) >= runs:
            (FOLDER / "ends").write_text(json.dumps(trial.ends))
            os._exit(0)

    longest = 2 * max(map(len, target.seeds)) + 1000
    words = [sys.argv[0], f"-seed={seed + 1}", f"-max_len={longest}", "-verbosity=0"]
    child = os.fork()  # the fuzzer ends its process, and may be set up but once in each
    if child == 0:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 2
        )  # libFuzzer speaks of its own matters
        atheris.Setup(words, one, custom_mutator=mutate)
        atheris.Fuzz()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit(f"{name}: an input was neither read nor refused, see above")
    return Counter(json.loads((FOLDER / "ends").read_text()))


def main() -> None:
    """Fuzz, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "groups", nargs="*", metavar="group", help=f"of {', '.join(GROUPS)}"
    )
    parser.add_argument("--runs", type=int, default=1000, help="inputs for each parser")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the counts, as JSON")
    given = parser.parse_args()
    found: dict[str, dict[str, int]] = {}
    targets = {
        n: t for group in given.groups or GROUPS for n, t in GROUPS[group]().items()
    }
    sys.addaudithook(watch)
    for name, target in targets.items():
        found[name] = dict(run(name, target, given.runs, given.seed))
        print(f"{name}: {found[name]}", flush=True)
    total = sum(sum(ends.values()) for ends in found.values())
    print(f"{total:,} inputs: each was read or refused by a clear error")
    if given.out:
        given.out.write_text(
            json.dumps({"total": total, "parsers": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
