"""Text line by line: packed or not, with the right numbers, and damage located."""

import gzip
import io
import tarfile

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from unjoined.datasets.fetch import Lines, NumberTable
from unjoined.errors import TableError

TEXT = b"one\r\ntwo\n\nlast without an end"
LINES = ["one", "two", "", "last without an end"]


def archive(content):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, text in (("folder/data.txt", content), ("folder/later.txt", b"not read")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.txt", TEXT),
        ("t.txt.gz", gzip.compress(TEXT, mtime=0)),
        ("wrong name.txt", gzip.compress(TEXT, mtime=0)),
    ],
)
def test_lines_come_without_ends_and_with_numbers(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with Lines(path) as lines:
        seen = [(line, lines.number) for line in lines]
    assert seen == list(zip(LINES, range(1, 5), strict=True))


def test_a_line_pushed_back_comes_again_with_its_number(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(TEXT)
    with Lines(path) as lines:
        line = next(lines)
        lines.push_back(line)
        assert lines.number == 0
        assert (next(lines), lines.number) == ("one", 1)
        assert (next(lines), lines.number) == ("two", 2)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.gz", gzip.compress(b"a line\n" * 9)[:-9], "is damaged or cut off after line"),
        ("flipped.gz", gzip.compress(b"a\n")[:-8] + bytes(8), "is damaged or cut off after line"),
        ("binary.txt", b"fine\n\xff\xfe\xfa\n", "is no text after line"),
        ("cut.tar.gz", archive(TEXT)[:40], "is damaged or cut off after line 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # bytes hold the time
)
def test_damage_is_an_error_that_names_the_file(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableError, match=f"{name}' {message}"), Lines(path) as lines:
        list(lines)


def test_a_table_grows_by_rows_and_by_blocks():
    table = NumberTable(2)
    assert table.matrix().shape == (0, 2)
    table.append([1.0, 2.0])
    table.extend(np.arange(8.0).reshape(2, 4)[:, ::2])
    assert len(table) == 3
    assert_array_equal(table.matrix(), [[1, 2], [0, 2], [4, 6]])


def test_of_an_archive_the_first_file_is_read(tmp_path):
    path = tmp_path / "data.tar.gz"
    path.write_bytes(archive(TEXT))
    with Lines(path) as lines:
        assert list(lines) == LINES
