"""Says which version an environment runs, and writes down that it was asked."""

import json
import pathlib
import sys

with pathlib.Path(__file__).with_name("probes.jsonl").open("a") as journal:
    journal.write(json.dumps({"env": sys.argv[1]}) + "\n")
try:
    print(pathlib.Path(__file__).with_name("running-" + sys.argv[1]).read_text())
except FileNotFoundError:
    sys.exit("nothing runs here")
