"""Tables in Stata's binary format 117 (Stata 13), numbers only; enough for one public file.

The format is a sequence of tagged parts whose positions a map near the beginning lists:
https://www.stata.com/help.cgi?dta_117. Text columns are skipped, missing numbers become NaN.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from unjoined._typing import Array
from unjoined.data._lines import open_bytes
from unjoined.errors import TableError

__all__ = ["read_stata"]

# Type code in the file -> numpy type, and the largest number that is not a code for "missing".
NUMBERS = {
    65526: ("f8", float.fromhex("0x1.fffffffffffffp+1022")),
    65527: ("f4", float.fromhex("0x1.fffffep+126")),
    65528: ("i4", 2_147_483_620.0),
    65529: ("i2", 32_740.0),
    65530: ("i1", 100.0),
}
LONGEST_TEXT = 2045
NAME_BYTES = 33
HEADER = re.compile(
    rb"<stata_dta><header><release>117</release><byteorder>(LSF|MSF)</byteorder>"
    rb"<K>(..)</K><N>(....)</N>.*?<map>(.{112})</map>",
    re.DOTALL,
)


def read_stata(path: Path) -> dict[str, Array]:
    """Return the numeric columns of a Stata 13 file by name, float64.

    The file is read whole: this is for small tables.

    Raises
    ------
    TableError
        The file is of another kind, or damaged.
    """
    with open_bytes(path) as file:
        content = file.read()
    found = HEADER.match(content)
    if found is None:
        raise TableError(
            f"{str(path)!r} is no Stata file of release 117. Check path=, or fetch it again."
        )
    order = "<" if found[1] == b"LSF" else ">"
    n_columns = int(np.frombuffer(found[2], f"{order}u2")[0])
    n_rows = int(np.frombuffer(found[3], f"{order}u4")[0])
    places = [int(place) for place in np.frombuffer(found[4], f"{order}u8")]
    try:
        types = np.frombuffer(_part(content, places[2], b"variable_types"), f"{order}u2", n_columns)
        names = np.frombuffer(_part(content, places[3], b"varnames"), f"S{NAME_BYTES}", n_columns)
        record = np.dtype([(f"c{j}", _numpy_type(int(t), order)) for j, t in enumerate(types)])
        rows = np.frombuffer(_part(content, places[9], b"data"), record, n_rows)
    except ValueError as error:
        raise TableError(f"{str(path)!r} is damaged: {error}. Fetch it again.") from error
    columns = {}
    for j, (name, code) in enumerate(zip(names, types, strict=True)):
        if int(code) in NUMBERS:
            column = rows[f"c{j}"].astype(np.float64)
            column[column > NUMBERS[int(code)][1]] = np.nan
            # A name ends at its first zero byte; what follows is whatever was in memory.
            columns[bytes(name).partition(b"\0")[0].decode("ascii", "replace")] = column
    return columns


def _part(content: bytes, place: int, tag: bytes) -> bytes:
    opening = b"<" + tag + b">"
    if not content.startswith(opening, place):
        raise ValueError(f"its part {tag.decode()!r} is not where its map says")
    return content[place + len(opening) :]


def _numpy_type(code: int, order: str) -> str:
    if code in NUMBERS:
        return order + NUMBERS[code][0]
    if 1 <= code <= LONGEST_TEXT:
        return f"S{code}"
    raise ValueError(f"a column has the type {code}, which is neither a number nor plain text")
