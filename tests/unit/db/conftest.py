"""The tests of this folder run on each database."""

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def database_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)
