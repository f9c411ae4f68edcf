"""Says which version an environment runs."""

import pathlib
import sys

try:
    print(pathlib.Path(__file__).with_name("running-" + sys.argv[1]).read_text())
except FileNotFoundError:
    sys.exit("nothing runs here")
