"""Tables of results: one run for the terminal, and the comparison of launchers as Markdown and JSON."""

import json
from pathlib import Path

from .headers import CLASSES, TIERS
from .verdict import BROKEN, CONTAINED, ERROR, ESCAPED, OK, SKIP, VERDICTS

SIGNS = {ESCAPED: "E", CONTAINED: "·", SKIP: "–", ERROR: "!", OK: "·", BROKEN: "B"}
CONTROL = "none"


def totals(results):
    """Verdicts by tier; controls are a tier of their own."""
    counts = {}
    for result in results:
        tier = "control" if result["kind"] == "control" else result["tier"]
        row = counts.setdefault(tier, {})
        row[result["verdict"]] = row.get(result["verdict"], 0) + 1
    return {tier: counts[tier] for tier in (*TIERS, "control") if tier in counts}


def summary(results):
    parts = [
        f"{tier}: " + ", ".join(f"{count} {verdict.lower()}" for verdict, count in row.items())
        for tier, row in totals(results).items()
    ]
    return "; ".join(parts)


def by_class(results):
    """One run by class, for the terminal."""
    lines = [f"{'class':<8}" + "".join(f"{verdict:>10}" for verdict in VERDICTS)]
    for category in CLASSES:
        verdicts = [result["verdict"] for result in results if result["category"] == category]
        if verdicts:
            lines.append(f"{category:<8}" + "".join(f"{verdicts.count(verdict) or '.':>10}" for verdict in VERDICTS))
    return "\n".join(lines)


class Comparison:
    """All complete runs of a folder of results."""

    def __init__(self, folder, order):
        self.runs = {}
        for path in sorted(Path(folder).glob("*.json")):
            run = json.loads(path.read_text(encoding="utf-8"))
            if "launcher" in run and run.get("complete"):
                self.runs[run["launcher"], run["mode"]] = run
        names = {launcher for launcher, _ in self.runs}
        self.order = [name for name in order if name in names]

    def results(self, launcher, mode):
        return {result["id"]: result for result in self.runs[launcher, mode]["results"]}

    def launchers(self, mode):
        return [name for name in self.order if (name, mode) in self.runs]

    def counted(self, mode):
        """Attacks whose control escaped in this mode: only for these does a refusal prove anything."""
        if (CONTROL, mode) not in self.runs:
            return []
        control = self.runs[CONTROL, mode]["results"]
        # What attacks the launcher itself cannot be tried without one.
        return [result for result in control if result["verdict"] == ESCAPED]

    def escapes(self, launcher, mode, tier=None, category=None):
        """How many of the counted attacks got out, and of how many that ran."""
        results = self.results(launcher, mode)
        verdicts = []
        for attack in self.counted(mode):
            if tier in (None, attack["tier"]) and category in (None, attack["category"]):
                verdicts.append(results.get(attack["id"], {}).get("verdict"))
        return verdicts.count(ESCAPED), verdicts.count(ESCAPED) + verdicts.count(CONTAINED)

    def markdown(self):
        modes = [mode for mode in ("user", "root") if self.launchers(mode)]
        parts = [self.versions()]
        for mode in modes:
            parts.append(f"## As {'an ordinary user' if mode == 'user' else 'root'}")
            if not self.counted(mode):
                parts.append(f"No control in this mode: run `{CONTROL}` first.")
                continue
            parts += [self.overview(mode), self.classes(mode), self.attacks(mode), self.controls(mode)]
        return "\n\n".join(parts) + "\n"

    def versions(self):
        made = sorted({f"{run['date']}, Linux {run['kernel'].split('-')[0]}" for run in self.runs.values()})
        rows = [f"Run on {'; '.join(made)}.", "", "| launcher | version | command |", "|---|---|---|"]
        for name in self.order:
            run = next(run for (launcher, _), run in self.runs.items() if launcher == name)
            command = " ".join(run["argv"]).replace("|", "\\|").replace("\n", " ")
            rows.append(f"| {name} | {run['version']} | `{command}` |")
        return "\n".join(rows)

    def overview(self, mode):
        rows = [
            "| launcher | core | hardening | debatable | not run | ordinary work broken |",
            "|---|--:|--:|--:|--:|---|",
        ]
        for name in self.launchers(mode):
            cells = ["%d of %d" % self.escapes(name, mode, tier) for tier in TIERS]
            results = self.results(name, mode).values()
            failed = sum(result["verdict"] == ERROR for result in results)
            broken = [result["name"] for result in results if result["verdict"] == BROKEN]
            rows.append(f"| {name} | {' | '.join(cells)} | {failed} | {', '.join(broken) or 'none'} |")
        return "\n".join(["Attacks that got out, of those that ran and that get out of plain `bash` here:\n", *rows])

    def classes(self, mode):
        names = self.launchers(mode)
        rows = [f"| class | what it attacks | attacks | {' | '.join(names)} |", "|---|---|--:|" + "--:|" * len(names)]
        for category, what in CLASSES.items():
            count = sum(attack["category"] == category for attack in self.counted(mode))
            if count:
                cells = [str(self.escapes(name, mode, category=category)[0]) for name in names]
                rows.append(f"| {category} | {what} | {count} | {' | '.join(cells)} |")
        return "\n".join(["Attacks that got out, by class:\n", *rows])

    def attacks(self, mode):
        return "\n".join(
            [
                "Each attack (E escaped, · contained, – not applicable, ! could not be run):\n",
                *self.grid(mode, self.counted(mode)),
            ]
        )

    def controls(self, mode):
        control = [result for result in self.runs[CONTROL, mode]["results"] if result["kind"] == "control"]
        return "\n".join(["Ordinary work (· works, B broken):\n", *self.grid(mode, control)])

    def grid(self, mode, rows):
        names = self.launchers(mode)
        columns = {name: self.results(name, mode) for name in names}
        yield f"| | tier | {' | '.join(names)} |"
        yield "|---|---|" + ":-:|" * len(names)
        for row in rows:
            signs = [SIGNS.get(columns[name].get(row["id"], {}).get("verdict"), " ") for name in names]
            yield f"| {row['name']} | {row['tier']} | {' | '.join(signs)} |"

    def json(self):
        """The same for programs: by mode and launcher the totals, and by attack the verdicts."""
        modes = {}
        for mode in ("user", "root"):
            names = self.launchers(mode)
            columns = {name: self.results(name, mode) for name in names}
            modes[mode] = dict(
                launchers={
                    name: dict(
                        version=self.runs[name, mode]["version"],
                        **{tier: self.escapes(name, mode, tier) for tier in TIERS},
                    )
                    for name in names
                },
                attacks={
                    attack["name"]: {name: columns[name].get(attack["id"], {}).get("verdict") for name in names}
                    for attack in self.counted(mode)
                },
            )
        return modes
