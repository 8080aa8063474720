"""A wheel where there is nothing else: in a root with one CPython, the libraries that it and NumPy load, and wheels."""

import pathlib
import shutil
import subprocess
import tempfile

from bare_root import GLIBC, BareRoot, libraries
from try_wheel import COMMANDS, ONE_LINE, PROGRAM

_ENVIRONMENT = {"PATH": "/venv/bin", "HOME": "/home"}


def _add_wheels(root: BareRoot, python: str, wheel: pathlib.Path) -> None:
    wheels = root.path / "wheels"
    wheels.mkdir()
    shutil.copy(wheel, wheels)
    download = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--dest", wheels]
    subprocess.run([*download, f"{wheel}[cuda]", "pip"], check=True)
    with tempfile.TemporaryDirectory(prefix="sparsekiln-unpacked-") as unpacked:
        for file in (*wheels.glob("numpy*.whl"), wheel):
            shutil.unpack_archive(file, unpacked, "zip")
        ours = libraries(pathlib.Path(unpacked, "sparsekiln").rglob("*.so"))
        assert {pathlib.Path(library).name for library in ours} <= GLIBC, ours
        root.add_libraries_of(pathlib.Path(unpacked).rglob("*.so*"), besides=unpacked)


def use(python: str, wheel: pathlib.Path) -> None:
    """Installs the wheel there, without a network, and lets it compile, tune, report and emulate."""
    with BareRoot() as root:
        executable = root.add_python(python)
        _add_wheels(root, python, wheel)
        (pip,) = (root.path / "wheels").glob("pip-*.whl")

        def there(*command: str, output: int | None = subprocess.DEVNULL) -> None:
            root.run(*command, environment=_ENVIRONMENT, check=True, stdout=output)

        there(executable, "-m", "venv", "--without-pip", "/venv")
        there("/venv/bin/python", f"/wheels/{pip.name}/pip", "install", "--no-index", "--find-links", "/wheels", "sparsekiln[cuda]")
        there("/venv/bin/python", "-c", PROGRAM, output=None)
        there("/venv/bin/python", "-c", ONE_LINE, output=None)
        for command in COMMANDS:
            there("/venv/bin/sparsekiln", *command)
