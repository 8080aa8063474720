"""What gpu_workloads.py has measured, as tables: for a terminal, and for a document."""

import math

import publish

OURS = "Sparsekiln"
FLOOR = "reads W"
_SHORT_NAMES = {
    "cuBLAS, dense": "dense", "cuSPARSE SpMM, BSR": "SpMM", "cuSPARSE sbsrmm": "sbsrmm", "PyTorch BSR": "torch",
    "PyTorch BSR, feature-major": "torch fm", "plain Triton": "triton", FLOOR: FLOOR,
}  # fmt: skip


def microseconds(contestant: dict | None, cache: str) -> float | None:
    """From graphs, otherwise from events; None if it has no time."""
    if not contestant or not contestant.get("ok"):
        return None
    ways = contestant.get(cache, {})
    best = ways.get("graph") or ways.get("events")
    return best["us"] if best else None


def ours(part: dict, cache: str) -> float | None:
    """In the contest; where it has no time there, as the command measured it."""
    us = microseconds(part.get("contestants", {}).get(OURS), cache)
    command = part.get("command", {})
    if us is None and command.get("ok") and command["timing"]["cold"] == (cache == "cold"):
        return 1e3 * command["run_ms"]
    return us


def _number(us: float | None) -> str:
    return "-" if us is None else f"{us:.4g}"


def _factor(peer: float | None, own: float | None) -> str:
    return "-" if peer is None or own is None else f"{peer / own:.2f}"


def reasons(parts: dict[str, dict]) -> list[str]:
    """Who has no time, and why: a line for each reason, with its workloads counted."""
    found: dict[tuple[str, str], list[str]] = {}
    for title, part in parts.items():
        if why := part.get("no_contest"):
            found.setdefault(("every peer", why), []).append(title)
        for name, contestant in part.get("contestants", {}).items():
            if not contestant.get("ok"):
                found.setdefault((name, contestant["why"]), []).append(title)
            for way, why in contestant.get("refused", {}).items() if isinstance(contestant.get("refused"), dict) else ():
                found.setdefault((f"{name}, from {way}", why), []).append(title)
    return [
        f"{name}: {why} ({titles[0] if len(titles) == 1 else f'{len(titles)} workloads'})" for (name, why), titles in found.items()
    ]


def text_table(titles: list[str], parts: dict[str, dict]) -> str:
    """Times in microseconds, from graphs where there are some; of peers: how many times as long as ours, cold."""
    width = max(map(len, titles))
    head = " ".join(f"{name:>8}" for name in ("cold", "warm", "events", "model", "bound", *_SHORT_NAMES.values()))
    lines = [f"{'microseconds; of peers, times ours':{width}} {head}"]
    for title in titles:
        part = parts.get(title)
        if part is None:
            lines.append(f"{title:{width}} not reached: call it again")
            continue
        if not part["ok"]:
            lines.append(f"{title:{width}} failed: {part['why']}")
            continue
        cold, contestants = ours(part, "cold"), part.get("contestants", {})
        events = contestants.get(OURS, {}).get("cold", {}).get("events", {}).get("us")
        cells = [cold, ours(part, "warm"), events, part.get("predicted_us"), part.get("floor_us")]
        peers = [_factor(microseconds(contestants.get(name), "cold"), cold) for name in _SHORT_NAMES]
        lines.append(f"{title:{width}} " + " ".join(f"{cell:>8}" for cell in [*map(_number, cells), *peers]))
    return "\n".join([*lines, *reasons(parts)])


def speed_up(parts: dict[str, dict]) -> list[str]:
    """A line for each peer: the geometric mean of how many times as long as ours it takes, and the worst."""
    lines = []
    for name in _SHORT_NAMES:
        if name == FLOOR:
            continue
        pairs = [(microseconds(part.get("contestants", {}).get(name), "cold"), ours(part, "cold")) for part in parts.values()]
        ratios = [peer / own for peer, own in pairs if peer and own]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(f"- {name} takes {mean:.2f} times as long (geometric mean of {len(ratios)}), {min(ratios):.2f} at worst")
    return lines


def markdown(document: dict) -> str:
    """For docs/gpu.md, from the JSON document of a run."""
    device, parts = document["device"], {title: part for title, part in document["parts"].items() if part["ok"]}
    names = list(_SHORT_NAMES)
    columns = ["workload", "cold, µs", "warm, µs", "model, µs", "roofline bound, µs", *(f"{name}, ×" for name in names)]
    text = [
        f"{device['name']}, driver {device['driver_version']}, commit {document['commit'][:12]}: {len(parts)} workloads. The "
        "columns of the others say how many times as long as ours they take, cold.", "", *speed_up(parts), "",
    ]  # fmt: skip

    def cells(title: str, part: dict) -> list[str]:
        cold = ours(part, "cold")
        times = [cold, ours(part, "warm"), part.get("predicted_us"), part.get("floor_us")]
        peers = [_factor(microseconds(part.get("contestants", {}).get(name), "cold"), cold) for name in names]
        return [title, *map(_number, times), *peers]

    text += publish.table(columns, (cells(*one) for one in parts.items()))
    missing = reasons(document["parts"])
    return "\n".join(text + (["", "Without a time:", "", *(f"- {line}" for line in missing)] if missing else []))
