"""The file of claims that the processes of the kernel suite write (tests/kernels/claims.h), read by the program that starts them."""

import dataclasses
import fcntl
import json
import pathlib

COMPILE = "compile "  # before the name of a part that is only compiled


@dataclasses.dataclass
class Case:
    """A test case of the suite: one part, or, for a table, many."""

    parts: int = 0  # 0: not yet known
    ended: dict[str, dict] = dataclasses.field(default_factory=dict)  # name of a part → its line

    @property
    def failed(self) -> list[dict]:
        return [line for line in self.ended.values() if not line["ok"]]

    @property
    def passed(self) -> int:
        return len(self.ended) - len(self.failed)

    @property
    def not_reached(self) -> int:
        return max(self.parts, 1) - len(self.ended)

    def document(self) -> dict:
        return {
            "ok": not self.failed and not self.not_reached,
            "passed": self.passed,
            "failed": len(self.failed),
            "not_reached": self.not_reached,
            "seconds": round(sum(line.get("seconds", 0) for line in self.ended.values()), 2),
            "cpu_seconds": round(sum(line.get("cpu_seconds", 0) for line in self.ended.values()), 2),
            "failures": {f"{line['end']}: {line.get('what', '')}": line["failure"] for line in self.failed},
        }


class Claims:
    """Reads what was added since it last looked, and adds lines of its own."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.cases: dict[str, Case] = {}
        self.open: dict[str, dict] = {}  # name → the line that began it
        self.not_compiled: dict[str, dict] = {}  # name → the line of a compile that ended its process
        self.compiled = 0
        self.compile_seconds = 0.0  # of the processor
        self.fresh_failures: list[dict] = []  # since the caller emptied it
        self._read = 0

    def take_up(self) -> None:
        """Keeps from an earlier run what it has passed, and, while anything is left, what failed: a fault that occurs every
        time must not take the time of parts that were never reached. Everything else is to be done again."""
        if self.path.exists():
            self.look()
            kept = [json.dumps({"planned": name, "parts": case.parts}) for name, case in self.cases.items()]
            keeps_failures = self.totals[2] > 0
            ended = [line for case in self.cases.values() for line in case.ended.values()]
            kept += [json.dumps(line) for line in ended if line["ok"] or keeps_failures]
            kept += [json.dumps(line) for line in self.not_compiled.values() if keeps_failures]
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text("".join(f"{line}\n" for line in kept))
            temporary.replace(self.path)
        self.__init__(self.path)

    def look(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            added = file.read()
        added = added[: added.rfind(b"\n") + 1]  # the last line may not be complete yet
        self._read += len(added)
        for text in added.decode(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # two halves, of a process that was killed
                continue
            self._take(line)

    def _take(self, line: dict) -> None:
        if "planned" in line:
            case = self.cases.setdefault(line["planned"], Case())
            case.parts = max(case.parts, line["parts"])
        elif "begin" in line:
            self.open[line["begin"]] = line
        elif "end" in line:
            began = self.open.get(line["end"], {})
            if began.get("worker") == line.get("worker"):  # else another process is still at it
                self.open.pop(line["end"], None)
            if line["end"].startswith(COMPILE):
                if not line["ok"]:
                    self.not_compiled[line["end"]] = line
                self.compiled += 1
                self.compile_seconds += line.get("cpu_seconds", 0)
                return
            line.setdefault("what", began.get("what", ""))
            ended = self.cases.setdefault(line["end"].rpartition(" #")[0] or line["end"], Case()).ended
            if line["end"] not in ended or ended[line["end"]]["ok"]:  # what has failed once stays failed
                ended[line["end"]] = line
            if not line["ok"]:
                self.fresh_failures.append(line)

    def of_worker(self, process: int) -> list[dict]:
        """What it has begun and not ended."""
        return [line for line in self.open.values() if line["worker"] == process]

    def fail(self, begun: dict, failure: str) -> None:
        """Ends a part whose process cannot; a part that could not be compiled is not run either."""
        name = begun["begin"]
        ends = [name] if not name.startswith(COMPILE) else [name, name.removeprefix(COMPILE)]
        with self.path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for end in ends:
                line = {"end": end, "ok": False, "what": begun["what"], "failure": failure, "worker": begun["worker"]}
                file.write(json.dumps(line).encode() + b"\n")
        self.look()

    @property
    def totals(self) -> tuple[int, int, int]:
        """Passed, failed, not reached."""
        every = self.cases.values()
        return sum(case.passed for case in every), sum(len(case.failed) for case in every), sum(case.not_reached for case in every)
