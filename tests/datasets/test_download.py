"""Files from the network arrive whole and verified, or not at all with a message that helps."""

import gzip
import hashlib
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pooch
import pytest

from unjoined.datasets import data_folder, locate
from unjoined.errors import TableError

CONTENT = b"age,visit\n" + b"31,1\n54,0\n" * 100_000  # some blocks long
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PACKED = gzip.compress(CONTENT, mtime=0)


class Handler(BaseHTTPRequestHandler):
    """Serve the file well and badly, and count who asks."""

    asked: list[str] = []  # noqa: RUF012 - emptied for each server
    waits, go_on = threading.Event(), threading.Event()

    def do_GET(self):
        self.asked.append(self.path)
        body = {"/altered.csv": CONTENT.replace(b"54", b"45", 1), "/packed.csv": PACKED}
        if self.path == "/gone.csv":
            self.send_error(404, "Not Found")
            return
        content = body.get(self.path, CONTENT)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = self.path in ("/cut.csv", "/slow.csv")
        self.wfile.write(content[: len(content) // 2] if half else content)
        if self.path == "/slow.csv":
            self.waits.set()
            self.go_on.wait(30)

    def log_message(self, *args):
        pass


@pytest.fixture(name="server")
def _server():
    Handler.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def source(address="http://127.0.0.1:9/x", *, sha256=(SHA256,), name="good.csv"):
    return name, address, "1 MB", sha256


def test_a_file_is_fetched_once_and_read_offline_afterwards(server, cache):
    wanted = source(f"{server}/good.csv")
    assert locate(wanted) == cache / "good.csv"
    assert (cache / "good.csv").read_bytes() == CONTENT
    assert locate(source("http://127.0.0.1:9/nowhere")) == cache / "good.csv"
    assert locate(wanted, download=False) == cache / "good.csv"
    assert Handler.asked == ["/good.csv"]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("gone.csv", "404 Client Error: Not Found"),
        ("cut.csv", r".*500005 bytes read, 500005 more expected"),
        ("altered.csv", rf"hash of downloaded file .* does not match .*{SHA256}"),
    ],
)
def test_a_failed_download_leaves_nothing_and_says_what_to_do(
    server, cache, page, message
):
    address = f"{server}/{page}"
    with pytest.raises(
        TableError, match=f"'good.csv' could not be downloaded: .*{message}"
    ) as e:
        locate(source(address))
    said = str(e.value)
    assert (
        f"Fetch 'good.csv' (1 MB) by hand from {address} and put it in '{cache}'"
        in said
    )
    assert "UNJOINED_DATA" in said
    assert "path=" in said
    assert list(cache.iterdir()) == []


def test_no_network_says_so(cache):
    with pytest.raises(TableError, match=r"refused.* by hand from"):
        locate(source("http://127.0.0.1:9/good.csv"))
    assert list(cache.iterdir()) == []


def test_an_answer_that_is_no_http_is_a_failed_download(cache):
    def answer(listener):
        with listener.accept()[0] as connection:
            connection.sendall(b"no HTTP\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/good.csv"
        with pytest.raises(TableError, match=r"could not be downloaded.*no HTTP"):
            locate(source(address))
        thread.join()
    assert list(cache.iterdir()) == []


def test_a_cache_folder_that_cannot_be_made_is_named(cache):
    """As on a full disk."""
    cache.write_text("in the way")
    with pytest.raises(TableError, match=r"could not be downloaded: .*cache'"):
        locate(source())


def test_an_interrupted_download_leaves_nothing(server, cache, interrupt_when):
    """The server sends half of the file and waits; then somebody presses Ctrl-C."""
    interrupt_when(Handler.waits.is_set)
    try:
        with pytest.raises(KeyboardInterrupt):
            locate(source(f"{server}/slow.csv"))
    finally:
        Handler.go_on.set()
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content"), [("good.csv", CONTENT), ("good.csv.gz", PACKED)]
)
def test_a_file_put_into_the_cache_by_hand_is_found_packed_or_not(cache, name, content):
    cache.mkdir(parents=True)
    (cache / name).write_bytes(content)
    known = SHA256, hashlib.sha256(PACKED).hexdigest()
    assert locate(source(sha256=known)) == cache / name


def test_an_altered_file_in_the_cache_is_refused(cache):
    cache.mkdir(parents=True)
    (cache / "good.csv").write_bytes(CONTENT + b"1,1\n")
    with pytest.raises(
        TableError, match=r"in the cache is not the file expected.* Delete it"
    ):
        locate(source())


def test_without_download_a_missing_file_is_described(cache):
    with pytest.raises(
        TableError, match=r"there is no 'good.csv' in .* Fetch 'good.csv' \(1 MB\)"
    ):
        locate(source(), download=False)
    assert not cache.exists()


def test_the_users_own_file_is_taken_as_it_is(tmp_path):
    own = tmp_path / "mine.csv"
    own.write_text("anything")
    assert locate(source(), path=own) == own
    assert locate(source(name="mine.csv"), path=tmp_path) == own
    with pytest.raises(TableError, match=r"there is no 'good.csv' in '.*Fetch"):
        locate(source(), path=tmp_path)
    with pytest.raises(
        TableError, match=r"there is no file '.*absent.csv'. Check path="
    ):
        locate(source(), path=tmp_path / "absent.csv")


# --- where the cache is ---------------------------------------------------------------------


def test_the_cache_is_where_the_user_or_the_platform_says(cache):
    assert data_folder() == cache
    del os.environ["UNJOINED_DATA"]
    assert data_folder() == Path(pooch.os_cache("unjoined"))
