"""What an operator can set: read once from ``ORCH_*`` into one frozen record."""

from orchestrator.config.environment import load_settings
from orchestrator.config.secret import MASK, Secret, Secrets
from orchestrator.config.settings import (
    Language,
    LogFormat,
    LogLevel,
    SettingDoc,
    Settings,
    describe_settings,
)

__all__ = [
    "MASK",
    "Language",
    "LogFormat",
    "LogLevel",
    "Secret",
    "Secrets",
    "SettingDoc",
    "Settings",
    "describe_settings",
    "load_settings",
]
