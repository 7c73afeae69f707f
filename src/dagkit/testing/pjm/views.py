"""The forms in which pjstat prints what it knows, to the byte where one was recorded (facts: pjm 2 and 3)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dagkit.testing.pjm.limits import Row
from dagkit.testing.pjm.lines import Cells, Line, span, used_s
from dagkit.testing.pjm.site import Site

__all__ = ["brief", "limits_view", "listed", "records", "summary", "table", "wisteria"]

#: Columns of `pjstat -v` and their widths (facts: pjm 2.2).
VERBOSE: Final = {
    "JOB_ID": 11, "JOB_NAME": 11, "MD": 3, "ST": 4, "USER": 9, "GROUP": 9, "START_DATE": 16, "ELAPSE_TIM": 11,
    "ELAPSE_LIM": 22, "NODE_REQUIRE": 16, "VNODE": 7, "CORE": 5, "V_MEM": 13, "V_POL": 6, "E_POL": 6, "RANK": 10,
    "LST": 4, "EC": 4, "PC": 4, "SN": 3, "PRI": 4, "ACCEPT": 15, "RSC_GRP": 9, "REASON": 16,
}  # fmt: skip
_CHOSEN: Final = {**VERBOSE, "REASON": 31}
_BRIEF: Final = (
    "JOB_ID", "JOB_NAME", "MD", "ST", "USER", "START_DATE", "ELAPSE_LIM", "NODE_REQUIRE", "VNODE", "CORE", "V_MEM",
)  # fmt: skip
#: Words of `--summary` with the columns at which they end, and the states that they count.
_COUNTS: Final = {
    "ACCEPT": (9, ("ACC",)),
    "QUEUED": (16, ("QUE",)),
    "RUNING": (23, ("RNA", "RNP", "RUN", "RNE", "SPP", "SPD", "RSM")),
    "RUNOUT": (30, ("RNO",)),
    "HOLD": (36, ("HLD",)),
    "ERROR": (43, ("ERR",)),
    "REJECT": (50, ("RJT",)),
    "EXIT": (56, ("EXT",)),
    "CANCEL": (63, ("CCL",)),
}
_OLD_COUNTS: Final = {
    "ACCEPT": (8, ("ACC",)),
    "QUEUED": (15, ("QUE",)),
    "STGIN": (22, ()),
    "READY": (29, ()),
    "RUNING": (36, ("RNA", "RNP", "RUN", "RNE")),
    "RUNOUT": (43, ("RNO",)),
    "STGOUT": (50, ()),
    "HOLD": (57, ("HLD",)),
    "ERROR": (64, ("ERR",)),
}
_WISTERIA: Final = {"EXT": "END", "CCL": "CANCEL", "HLD": "HOLD", "ERR": "ERROR", "RUN": "RUNNING", "RNE": "RUNNING"}


def brief(found: Sequence[Line], cells: Cells, *, are_parts_named: bool) -> str:
    """The default view."""
    heads = list(_BRIEF)
    if are_parts_named:
        heads[-3:] = ["-", "-", "-"]
    rows = [heads, *([cells.of(name)(line) for name in _BRIEF] for line in found)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(heads))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


def table(found: Iterable[Line], cells: Cells, names: Sequence[str] | None, long_ids: str) -> str:
    """`-v`; with `names` that of `--choose`. What is too long is cut to its column, ids as the site does it."""
    widths = VERBOSE if names is None else {name: _CHOSEN.get(name, max(16, len(name) + 1)) for name in names}
    texts = [cells.of(name) for name in widths]
    last = len(widths) - 1
    rows = [[name.ljust(width) for name, width in widths.items()]]
    for line in found:
        row = []
        for place, (name, width) in enumerate(widths.items()):
            text = texts[place](line)
            if place != last and (name != "JOB_ID" or long_ids == "cut"):
                text = text[: width - 1]
            row.append(text.ljust(width) if len(text) < width or place == last else f"{text} ")
        rows.append(row)
    return "".join("".join(row) + "\n" for row in rows)


def listed(found: Iterable[Line], cells: Cells, names: Sequence[str]) -> str:
    """`--data`: cells are not quoted."""
    texts: list[Callable[[Line], str]] = [cells.of(name) for name in names]
    rows = [",".join(["", *[text(line) for text in texts]]) for line in found]
    return "\n".join([",".join(["H", *names]), *rows]) + "\n"


def summary(found: Sequence[Line], *, is_old: bool = False) -> str:
    """`--summary`: jobs, and on the line `s` their parts."""
    counts = _OLD_COUNTS if is_old else _COUNTS
    end = max(column for column, _ in counts.values()) + (8 if is_old else 7)
    jobs = Counter(line.st for line in found if line.is_parent or line.kind == "NM")
    parts = Counter(line.st for line in found if not line.is_parent and line.kind != "NM")

    def row(mark: str, texts: dict[str, str], total: str) -> str:
        text = mark
        for name, (column, _) in counts.items():
            text += texts[name].rjust(column - len(text))
        return text + total.rjust(end - len(text)) + "\n"

    def numbers(mark: str, by_state: Counter[str]) -> str:
        texts = {name: str(sum(by_state[state] for state in states)) for name, (_, states) in counts.items()}
        return row(mark, texts, str(sum(by_state.values())))

    head = row("", {name: name for name in counts}, "TOTAL")
    return head + numbers("", jobs) + (numbers(" s", parts) if not is_old else "")


def records(found: Iterable[Line], cells: Cells, now: float) -> str:
    """`-s`, `-S`: a block for each, with dates that have a year."""
    return "\n".join(_record(line, cells, now) for line in found)


def _record(line: Line, cells: Cells, now: float) -> str:
    used = used_s(line, now)
    rows = {
        "JOB ID": cells.of("JOB_ID")(line),
        "JOB NAME": line.name,
        "STATE": line.st,
        "NODE NUM (REQUIRE)": cells.of("NODE_REQUIRE")(line),
        "ELAPSE TIME (LIMIT)": f"{span(line.elapse_s, 2)} ({line.elapse_s})",
        "ELAPSE TIME (USE)": f"{span(used, 2)} ({int(used)})",
        "JOB START DATE": _start(line),
        "ACCEPT DATE": _date(line.accepted_at),
        "RESOURCE GROUP": line.rscgrp,
    }
    if line.is_over:
        rows["EXIT CODE"] = "-" if line.ec is None else str(line.ec)
        rows |= {"SIGNAL NO": str(line.sn), "PJM CODE": str(line.pc), "REASON": line.reason}
    return "".join(f" {name:<28}: {value}\n" for name, value in rows.items())


def _start(line: Line) -> str:
    mark = "<" if line.is_backfilled else ""
    if line.start_at is not None:
        return _date(line.start_at) + mark
    return "-" if line.predicted_at is None else f"({_date(line.predicted_at)}){mark}"


def _date(at: float) -> str:
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(at))


def limits_view(site: Site, found: Iterable[Row]) -> str:
    """`--limit`."""
    text, title = f"System Resource Information:\nRSCUNIT: {site.rscunit}\n", ""
    for row in found:
        head = f"{row.section}: {row.value}".rstrip()
        if head != title:
            title = head
            text += f"{head}\n LIMIT-NAME                    LIMIT  ALLOC\n"
        text += f" {row.name:<24}{'unlimited' if row.most is None else row.most:>11}{row.alloc:>7}\n"
    return text


def wisteria(found: Sequence[Line], cells: Cells) -> str:
    """pjstat of another site, which has a script of its own in its place."""
    text = "Wisteria/BDEC-01 scheduled stop time: 2023/03/31(Fri) 09:00:00 (Remain: 28days 21:34:40)\n\n"
    if not found:
        return f"{text}No unfinished job found.\n"
    text += "JOB_ID JOB_NAME STATUS PROJECT RSCGROUP START_DATE ELAPSE TOKEN NODEGPU\n"
    for line in found:
        state = _WISTERIA.get(line.st, "QUEUED")
        start, used = cells.of("START_DATE")(line), cells.of("ELAPSE_TIM")(line)[2:]
        where = f"{line.grp}{line.rscgrp}" if len(line.rscgrp) > 12 else f"{line.grp} {line.rscgrp}"
        text += f"{cells.of('JOB_ID')(line)} {line.name} {state} {where} {start}  {used} - {line.node} -\n"
    return text
