"""Run the command line with ``python -m unjoined``."""

import sys

try:
    from unjoined.cli.entry import main
except KeyboardInterrupt:
    sys.stderr.write("unjoined: interrupted\n")
    raise SystemExit(130) from None

main()
