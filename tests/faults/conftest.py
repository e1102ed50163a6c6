"""One run that nothing happens to, for all tests to compare with."""

import pytest

from tests.faults.killing import finish, results, write_recipe


@pytest.fixture(scope="session")
def expected(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert finish(write_recipe(folder, folder / "run"), log=folder / "log") == 0, (folder / "log").read_text()[-3000:]
    found = results(folder / "run")
    assert len({name: found[name] for name in found if name.endswith("model.safetensors")}) == 4
    return found
