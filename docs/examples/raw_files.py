"""Write raw files as a company has them: four tables that cannot be joined, and customers to score.

``python docs/examples/raw_files.py shop`` writes files of a made-up shop. With ``--email FILE``
they are made of the public e-mail campaign (see `unjoined.datasets.fetch_email` for where it is).
"""

import argparse
from pathlib import Path

from unjoined.reproduce import write_email_files, write_raw_files


def main() -> None:
    """Write the files and name them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--email", type=Path, help="the public e-mail file, plain or gzipped")
    parser.add_argument("--rows", type=int, default=5000, help="rows of each simulated table")
    given = parser.parse_args()
    if given.folder.is_dir() and any(given.folder.iterdir()):
        parser.error(f"the folder {str(given.folder)!r} is not empty")
    if given.email is None:
        written = write_raw_files(given.folder, n_per_table=given.rows, n_customers=2000, seed=0)
    else:
        written = write_email_files(given.folder, given.email)
    for path in written.values():
        print(path)


if __name__ == "__main__":
    main()
