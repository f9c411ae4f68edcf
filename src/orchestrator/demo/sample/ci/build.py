"""Build what is deployed: the package, the deploy command, and the commit they were made of, in dist/."""

import json
import os
import shutil
from pathlib import Path

root = Path(__file__).resolve().parents[1]
target = root / "dist"
shutil.rmtree(target, ignore_errors=True)
shutil.copytree(root / "greeter", target / "greeter", ignore=shutil.ignore_patterns("__pycache__"))
shutil.copy(root / "ci" / "deploy.py", target / "deploy.py")
(target / "build.json").write_text(json.dumps({"sha": os.environ["ORCH_SHA"]}) + "\n")
print(f"built {os.environ['ORCH_SHA']} into {target}")
