"""The results of a run on a GPU: a JSON file that says what was measured, where and of which commit, and a log; those of all
programs in one archive to bring back.

Results are written as they come, so that a run that was interrupted continues where it stopped. Results of another program,
device, driver or request are put aside, never mixed.
"""

import argparse
import datetime
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile

_SMI_FIELDS = (
    "name", "driver_version", "compute_cap", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem",
    "clocks.applications.graphics", "power.limit", "temperature.gpu", "ecc.mode.current", "memory.total",
)  # fmt: skip
_CLOCKS = ("clocks.sm", "clocks.mem", "temperature.gpu")
_MOST_BYTES = 10_000_000  # of an archive
_KEPT_OF_LOG = 500_000  # bytes, where the archive is larger
_LOGS = (".log", ".claims")
_EARLIER = "-earlier"  # results that were put aside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of all programs that run on a GPU server."""
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=2, metavar="N", help="what is not done by then is left (2)")


def _query(fields: tuple[str, ...], pci_bus_id: str) -> list[str]:
    """What nvidia-smi answers for each field of one card; ValueError with its own words if it does not."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={pci_bus_id}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"nvidia-smi: {error}") from error
    values = [value.strip() for value in done.stdout.strip().split(",")]
    if done.returncode != 0 or len(values) != len(fields):
        raise ValueError(f"nvidia-smi: {(done.stderr.strip() or done.stdout.strip() or f'exit status {done.returncode}')}")
    return values


def _ask_smi(fields: tuple[str, ...], pci_bus_id: str) -> dict:
    """Field → value. A field without an answer is under "unanswered" with the reason: one field that this nvidia-smi does
    not know must not affect the others."""
    if not pci_bus_id:
        return {"unanswered": {field: "the driver does not say which card this is" for field in fields}}
    try:
        return dict(zip(fields, _query(fields, pci_bus_id)))
    except ValueError:
        pass
    answer, unanswered = {}, {}
    for field in fields:
        try:
            (answer[field],) = _query((field,), pci_bus_id)
        except ValueError as error:
            unanswered[field] = str(error)
    return {**answer, "unanswered": unanswered}


def doctor(tool: pathlib.Path) -> dict:
    """What `sparsekiln doctor` found: driver, devices, NVRTC, host. SystemExit if it does not answer."""
    try:
        done = subprocess.run([tool, "doctor", "--json"], capture_output=True, text=True, timeout=120)
        found = json.loads(done.stdout)
        found["cuda_driver"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        raise SystemExit(f"{tool} doctor --json does not answer: {error}") from error
    return found


def device(driver: dict) -> dict:
    """The GPU that `--target cuda` means here, its driver and its clocks. SystemExit if there is none.

    The command is asked (`driver` is doctor's answer), not nvidia-smi: the two number the cards differently, among other
    reasons because of CUDA_VISIBLE_DEVICES. Both know the card by its place on the PCI bus.
    """
    if not driver["devices"]:
        raise SystemExit(f"no NVIDIA GPU here: {driver.get('why') or 'the driver finds none'}")
    gpu = driver["devices"][0]
    version = driver.get("release") or f"CUDA {driver['cuda_version'] // 1000}.{driver['cuda_version'] % 1000 // 10}"
    found = {**gpu, "driver_version": version, **_ask_smi(_SMI_FIELDS, gpu["pci_bus_id"])}
    for field, why in found.get("unanswered", {}).items():
        print(f"not recorded, {field}: {why}", file=sys.stderr)
    return found


def clocks(pci_bus_id: str) -> dict:
    """MHz and degrees right now: asked after a measurement, they show whether the device was held back."""
    return _ask_smi(_CLOCKS, pci_bus_id)


def commit(build: pathlib.Path) -> str:
    """The commit that `build` was made from: as the portable build recorded it, otherwise the tree's."""
    note = build / "COMMIT"
    if note.is_file():
        return note.read_text().strip()
    root = pathlib.Path(__file__).resolve().parent.parent
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty", "--match="]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
    except OSError:
        return "unknown"


class Results:
    """The JSON file of one program's results, part by part."""

    def __init__(self, path: pathlib.Path, program: pathlib.Path, build: pathlib.Path, asked: dict | None = None):
        """`asked`: what is to be measured; results of other requests are not reused."""
        self.path = path
        self.log = path.with_suffix(".log")
        found = doctor((build / "tools" / "sparsekiln").resolve())
        gpu = device(found["cuda_driver"])
        identity = {
            "program": hashlib.sha256(program.read_bytes()).hexdigest(),
            "device": gpu["name"],
            "driver": gpu["driver_version"],
        }
        if asked:
            identity["asked"] = json.loads(json.dumps(asked))  # in the form in which it is read back
        self.document = {
            "identity": identity,
            "commit": commit(build),
            "device": gpu,
            "doctor": found,
            "host": f"{platform.machine()}, {os.cpu_count()} CPUs, {platform.release()}",
            "began": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "parts": {},
        }
        self.resumed = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._take_up(identity)

    def _take_up(self, identity: dict) -> None:
        try:
            earlier = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return
        if isinstance(earlier, dict) and earlier.get("identity") == identity:
            self.document |= {key: earlier[key] for key in ("began", "parts", "seed", "answers") if key in earlier}
            self.resumed = True
        else:
            self.path.replace(self.path.with_name(f"{self.path.stem}{_EARLIER}.json"))

    def has(self, part: str) -> bool:
        return part in self.document["parts"]

    def __getitem__(self, part: str):
        return self.document["parts"][part]

    def clocks(self) -> dict:
        return clocks(self.document["device"]["pci_bus_id"])

    def record(self, part: str, result) -> None:
        self.document["parts"][part] = result
        self.write()

    def write(self) -> None:
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.document, indent=1) + "\n")
        temporary.replace(self.path)

    def say(self, text: str) -> None:
        """Prints the line, and keeps it in the log."""
        print(text, flush=True)
        with self.log.open("a") as log:
            log.write(f"{text}\n")

    def conclude(self, titles: list[str], others: list[pathlib.Path] = ()) -> int:
        """Finishes with the parts of these titles counted; the exit status: 0 success, 1 one failed, 3 some were not reached."""
        reached = [title for title in titles if self.has(title)]
        failed = [title for title in reached if not self[title]["ok"]]
        left = len(titles) - len(reached)
        self.document.update(passed=len(reached) - len(failed), failed=len(failed), not_reached=left)
        last = f"{len(reached) - len(failed)} passed, {len(failed)} failed"
        self.finish(last + (f", {left} not reached: call it again" if left else ""), others)
        return 1 if failed else 3 if left else 0

    def finish(self, last: str, others: list[pathlib.Path] = ()) -> None:
        """Writes all, says `last` as the last line, and leaves one archive of these results and of those that other programs left
        in the folder for this device and commit: each with its log and the `others` that it named."""
        self.document["files"] = [self.log.name, *(one.name for one in others)]
        self.write()
        device = self.document["device"]["name"]
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"gpu-{device}-{self.document['commit'][:12]}").strip("-")
        archive = self.path.with_name(f"{name}.tar.gz")
        self.say(f"{self.path}: {device}, commit {self.document['commit']}; all of it is in {archive.name}")
        self.say(last)
        files = self._left_in_folder()
        bundle(archive, files)
        if archive.stat().st_size > _MOST_BYTES:
            bundle(archive, files, _KEPT_OF_LOG)
            print(f"of logs only the end is in {archive.name}, which was too large", file=sys.stderr)

    def _left_in_folder(self) -> list[pathlib.Path]:
        """Files of results for this device and commit, and what belongs to them."""
        found = []
        for file in sorted(self.path.parent.glob("*.json")):
            try:
                document = json.loads(file.read_text())
                same = document["commit"] == self.document["commit"] and document["identity"]["device"] == self.document["identity"]["device"]
                names = document["files"] if same else []
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if same and not file.stem.endswith(_EARLIER):
                found += [file, *(file.with_name(name) for name in names)]
        return found


def bundle(archive: pathlib.Path, files: list[pathlib.Path], kept: int | None = None) -> None:
    """A .tar.gz of the files; of logs at most the last `kept` bytes."""
    temporary = archive.with_name(archive.name + ".tmp")
    with tarfile.open(temporary, "w:gz") as tar:
        for file in files:
            if not file.exists():
                continue
            content = file.read_bytes()
            if file.suffix in _LOGS and kept is not None:
                content = content[-kept:]
            entry = tarfile.TarInfo(f"{archive.name.removesuffix('.tar.gz')}/{file.name}")
            entry.size, entry.mtime = len(content), int(file.stat().st_mtime)
            tar.addfile(entry, io.BytesIO(content))
    temporary.replace(archive)
