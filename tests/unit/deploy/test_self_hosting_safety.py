"""TC-13 for deploys of ourselves (NFR-5): what ends one restarts nothing, pushes nothing, and lets the runner be."""

import ast
import inspect
from types import ModuleType

import pytest

from orchestrator import main
from orchestrator.daemons import recovery, self_deploys
from orchestrator.deploy import guard
from orchestrator.effects import deploy as deploy_effect
from orchestrator.stage_engine import acts, engine

MECHANISM = (self_deploys, recovery, guard, engine, acts, deploy_effect, main)
ENDS = {"kill", "killpg", "signal_group", "terminate", "end_session", "pidfd_send_signal"}
STARTS = {"spawn", "Popen", "system", "run_command", "execvp"}


def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _imported(module: ModuleType) -> set[str]:
    names = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _called(module: ModuleType, on: str = "") -> set[str]:
    """Names of the methods that are called, ``on`` one attribute or on anything."""
    return {
        node.func.attr
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (not on or (isinstance(node.func.value, ast.Attribute) and node.func.value.attr == on))
    }


@pytest.mark.parametrize("module", MECHANISM, ids=lambda module: module.__name__)
def test_tc13_the_mechanism_starts_and_ends_no_process(module: ModuleType) -> None:
    assert not {"subprocess", "signal", "os", "shutil"} & _imported(module)
    assert not (ENDS | STARTS) & _called(module)


@pytest.mark.parametrize("module", MECHANISM, ids=lambda module: module.__name__)
def test_tc13_the_mechanism_restarts_no_container_and_no_service(module: ModuleType) -> None:
    """How production is restarted is the repository's deploy command alone."""
    text = inspect.getsource(module).lower()
    assert not [word for word in ("systemctl", "docker", "podman", "supervisorctl") if word in text]


@pytest.mark.parametrize("module", MECHANISM, ids=lambda module: module.__name__)
def test_tc13_the_mechanism_pushes_nothing(module: ModuleType) -> None:
    """Main is moved by the effect merge_pr and by nothing else."""
    assert not {
        name
        for name in _imported(module)
        if name.startswith(("orchestrator.forges", "orchestrator.runtime.git"))
    }
    assert not {"merge", "push", "update_ref", "force_push"} & _called(module)


def test_tc13_the_restarted_service_only_reads_records_and_reports() -> None:
    assert _called(self_deploys, on="_deployer") == {"started", "prepared", "report"}
    assert not {name for name in _imported(recovery) if name.startswith("orchestrator.deploy")}


def test_tc13_the_engine_drives_a_deploy_by_its_effect_alone() -> None:
    assert _called(acts, on="_deployer") <= {"exit", "started", "log_tail"}
    assert "_deployer" not in inspect.getsource(engine)
