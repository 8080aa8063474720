"""What a wheel contains of other projects, as packaging/components.json lists it: a bill of materials in CycloneDX, and the
licence of all of it as one SPDX expression."""

import importlib.metadata
import json
import pathlib
import subprocess
import urllib.parse

_COMPONENTS = pathlib.Path(__file__).resolve().parent.parent / "components.json"


def components() -> list[dict]:
    return json.loads(_COMPONENTS.read_text())


def _debian_version(package: str) -> str | None:
    query = ["dpkg-query", "-W", "-f", "${Version}", package]
    try:
        return subprocess.run(query, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def _pypi_version(package: str, site_packages: list[str]) -> str | None:
    for found in importlib.metadata.distributions(name=package, path=site_packages):
        return found.version
    return None


def licence_expression() -> str:
    found = ["Apache-2.0"]
    for component in components():
        if component["licence"] not in found:
            found.append(component["licence"])
    return " AND ".join(found)


def bill(version: str, site_packages: list[str]) -> dict:
    """Versions are those of this machine's Debian packages, and of the Python packages in the folders given."""
    listed = []
    for component in components():
        kind, _, package = component["from"].partition(":")
        package, _, number = package.partition("@")
        if kind == "debian":
            number = _debian_version(package)
        elif kind == "pypi":
            number = _pypi_version(package, site_packages)
        purl = f"pkg:{'deb/debian' if kind == 'debian' else kind}/{package}"
        entry = {"type": "library", "bom-ref": component["name"], "name": component["name"]}
        if number:
            entry["version"] = number
            purl += "@" + urllib.parse.quote(number, safe="")
        entry["licenses"] = [{"expression": component["licence"]}]
        entry["purl"] = purl
        listed.append(entry)
    own = {"type": "library", "bom-ref": "sparsekiln", "name": "sparsekiln", "version": version,
           "licenses": [{"expression": "Apache-2.0"}], "purl": f"pkg:pypi/sparsekiln@{version}"}  # fmt: skip
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": own},
        "components": listed,
        "dependencies": [{"ref": "sparsekiln", "dependsOn": [entry["bom-ref"] for entry in listed]}],
    }
