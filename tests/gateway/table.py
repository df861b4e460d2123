"""The table of clients, as the user's guide has it."""

from __future__ import annotations

from pathlib import Path

BEGIN = "<!-- Written by tests/gateway/run --write -->\n"
END = "<!-- end -->\n"


def markdown(rows: list, results: dict) -> str:
    lines = [
        "| client | finds the gateway by | believes its authority by | gets a placeholder from | a refusal prints | namespaced | flat |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        tiers = {tier: results.get((row.client, tier)) for tier in ("namespaced", "flat")}
        tried = [result for result in reversed(tiers.values()) if result]
        if not tried:
            continue
        one = next((result for result in tried if result.works), tried[0])
        ways = [name for name, is_so in (("variables", one.by_proxy), ("address", one.by_address)) if is_so]
        cells = [
            row.client,
            ", ".join(ways) or "address",
            believes(row, tiers),
            row.placeholder,
            one.refusal or "-",
            *("not tried" if result is None else "yes" if result.works else "no" for result in tiers.values()),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def believes(row, tiers: dict) -> str:
    if not row.is_ended:
        return "needs none"
    named = [f"`{name}`" for result in tiers.values() if result for name in result.authority]
    named = list(dict.fromkeys(named))
    by_file = [tier for tier, result in tiers.items() if result and result.works and not result.needs_authority]
    if by_file:
        where = "" if len(by_file) == 2 or not named else f" ({by_file[0]})"
        named.append(f"the machine's file{where}")
    return ", ".join(named) or ("nothing" if not any(r and r.works for r in tiers.values()) else "all variables together")


def read(guide: Path) -> str:
    text = guide.read_text() if guide.exists() else ""
    return text.partition(BEGIN)[2].partition(END)[0]


def write(guide: Path, text: str) -> None:
    before, begin, rest = guide.read_text().partition(BEGIN)
    assert begin, f"{guide} has no place for the table"
    guide.write_text(before + BEGIN + text + END + rest.partition(END)[2])
