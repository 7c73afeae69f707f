"""The Keeling curve: how fast does CO2 rise at Mauna Loa, and which model would have foreseen it?

A real pipeline on 44 years of weekly measurements (examples/data). Run it with `make demo`, or

    python examples/keeling.py

It shows the graph, runs about fifty tasks in worker processes, and leaves a report, a chart and the drawing of the
finished run in build/keeling. Run it again with `--resume <id>` and everything that has succeeded is kept.
"""

import argparse
import csv
import datetime
import math
from pathlib import Path

from dagkit import shell, task, workflow
from dagkit.notebook import graph

DATA = Path(__file__).parent / "data" / "mauna-loa-co2.csv"


# --- the tasks: plain functions, which run in worker processes -----------------------------------------------------


@task
def load(path):
    """Rows of (decimal year, ppm or None)."""
    with open(path, newline="") as file:
        return [[decimal_year(row["date"]), float(row["ppm"]) if row["ppm"] else None] for row in csv.DictReader(file)]


@task(outputs=2)
def clean(rows):
    """The weeks with a measurement, and what there is to know about the others."""
    kept = [row for row in rows if row[1] is not None]
    print(f"{len(rows)} weeks, {len(rows) - len(kept)} without a measurement")
    return kept, {"weeks": len(rows), "missing": len(rows) - len(kept), "first": kept[0][0], "last": kept[-1][0]}


@task
def fit_period(rows, start, end):
    """Trend and season of one period, by least squares: ppm = a + b t + two harmonics of the year."""
    period = [row for row in rows if start <= row[0] < end]
    model = least_squares(period, degree=1, harmonics=2)
    season = [seasonal(model, week / 52) for week in range(52)]
    return {"start": start, "growth": model["trend"][1], "swing": max(season) - min(season), "weeks": len(period)}


@task
def compare(periods):
    """Is the rise getting faster? A straight line through the growth of the periods says by how much a year."""
    growth = [[period["start"], period["growth"]] for period in periods]
    line = least_squares(growth, degree=1, harmonics=0)
    return {"acceleration": line["trend"][1], "growth": growth, "swing": [period["swing"] for period in periods]}


@task
def acceleration_report(trend):
    return f"The rise accelerates: {trend['acceleration'] * 10:+.2f} ppm a year more every decade."


@task
def steady_report(trend):
    return f"The rise is steady: growth changes by {trend['acceleration']:+.4f} ppm a year per year."


@task
def backtest(rows, cutoff, degree, harmonics):
    """Fit what was known at the cutoff, forecast the five years after it, and measure the error."""
    model = least_squares([row for row in rows if row[0] < cutoff], degree, harmonics)
    ahead = [row for row in rows if cutoff <= row[0] < cutoff + 5]
    error = math.sqrt(sum((value - predict(model, year)) ** 2 for year, value in ahead) / len(ahead))
    return {"cutoff": cutoff, "degree": degree, "harmonics": harmonics, "error": error}


@task
def choose(tests):
    """The model with the smallest error over all cutoffs."""
    errors = {}
    for test in tests:
        errors.setdefault((test["degree"], test["harmonics"]), []).append(test["error"])
    (degree, harmonics), found = min(errors.items(), key=lambda item: sum(item[1]))
    return {"degree": degree, "harmonics": harmonics, "error": sum(found) / len(found)}


@task
def forecast(rows, best, years):
    """Means of the years to come: the trend without the season, at the middle of each year."""
    model = least_squares(rows, best["degree"], best["harmonics"])
    return [[year + 0.5, predict({**model, "season": []}, year + 0.5)] for year in years]


@task
def chart(rows, ahead, path):
    """An SVG of the measurements and the forecast; returns its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(rows, ahead))
    return str(path)


@task
def write_report(facts, trend, findings, best, ahead, chart_file, path):
    """The report in Markdown; returns its path."""
    (finding,) = [text for text in findings if text]
    lines = [
        "# CO2 at Mauna Loa",
        "",
        f"{facts['weeks']} weeks, {facts['missing']} of them without a measurement. {finding}",
        "",
        "| from | growth, ppm a year | seasonal swing, ppm |",
        "| --- | --- | --- |",
        *(f"| {int(year)} | {g:.2f} | {s:.1f} |" for (year, g), s in zip(trend["growth"], trend["swing"], strict=True)),
        "",
        f"Best in the backtests: degree {best['degree']} with {best['harmonics']} harmonics, "
        f"{best['error']:.2f} ppm off over five years on average.",
        "",
        "| year | forecast of its mean, ppm |",
        "| --- | --- |",
        *(f"| {int(year)} | {value:.1f} |" for year, value in ahead),
        "",
        f"![measurements and forecast]({Path(chart_file).name})",
        "",
    ]
    Path(path).write_text("\n".join(lines))
    return str(path)


# --- the workflow ---------------------------------------------------------------------------------------------------


@workflow(default_queue="local")
def keeling(path, out):
    rows, facts = clean(load(path))

    starts = range(1958, 2002, 4)
    periods = (
        fit_period.options(name="fit-{start}").partial(rows).map(start=starts, end=[start + 4 for start in starts])
    )
    trend = compare(periods)
    faster = acceleration_report.options(when=trend["acceleration"] > 0.005)(trend)
    steady = steady_report.options(when=trend["acceleration"] <= 0.005)(trend)

    tests = backtest.partial(rows).product(cutoff=[1985, 1990, 1995], degree=[1, 2, 3], harmonics=[0, 1, 2])
    best = choose(tests)
    ahead = forecast(rows, best, years=list(range(2002, 2012)))

    picture = chart(rows, ahead, f"{out}/chart.svg")
    report = write_report(facts, trend, [faster, steady], best, ahead, picture, f"{out}/report.md")
    packed = shell("gzip -9kf report.md chart.svg && cat *.gz | wc -c > $JOBQ_OUTPUT_FILE", name="pack", cwd=out)(
        after=report
    )
    return {"report": report, "best": best, "packed_bytes": packed}


# --- arithmetic -----------------------------------------------------------------------------------------------------


def decimal_year(text):
    day = datetime.date.fromisoformat(text)
    return day.year + (day.timetuple().tm_yday - 0.5) / (366 if day.year % 4 == 0 else 365)


def terms(t, degree, harmonics):
    angles = [2 * math.pi * k * t for k in range(1, harmonics + 1)]
    return [t**power for power in range(degree + 1)] + [
        wave(angle) for angle in angles for wave in (math.sin, math.cos)
    ]


def least_squares(rows, degree, harmonics):
    """Coefficients of a polynomial in time (years since the middle of the rows) and harmonics of the year."""
    origin = sum(year for year, _ in rows) // len(rows)
    size = degree + 1 + 2 * harmonics
    matrix = [[0.0] * (size + 1) for _ in range(size)]
    for year, value in rows:
        x = terms(year - origin, degree, harmonics)
        for i, left in enumerate(x):
            line = matrix[i]
            for j, right in enumerate(x):
                line[j] += left * right
            line[size] += left * value
    solution = solve(matrix)
    return {"origin": origin, "trend": solution[: degree + 1], "season": solution[degree + 1 :]}


def solve(matrix):
    """Gauss with pivoting; the last column is the right-hand side."""
    size = len(matrix)
    for i in range(size):
        pivot = max(range(i, size), key=lambda row: abs(matrix[row][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for row in range(i + 1, size):
            factor = matrix[row][i] / matrix[i][i]
            matrix[row] = [a - factor * b for a, b in zip(matrix[row], matrix[i], strict=True)]
    solution = [0.0] * size
    for i in reversed(range(size)):
        known = sum(matrix[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (matrix[i][size] - known) / matrix[i][i]
    return solution


def predict(model, year):
    x = terms(year - model["origin"], len(model["trend"]) - 1, len(model["season"]) // 2)
    return sum(a * b for a, b in zip(x, model["trend"] + model["season"], strict=True))


def seasonal(model, t):
    return sum(a * b for a, b in zip(terms(t, 0, len(model["season"]) // 2)[1:], model["season"], strict=True))


def draw(rows, ahead):
    width, height, first, last, low, high = 720, 360, 1955, 2015, 305, 400

    def across(year):
        return 40 + (year - first) / (last - first) * (width - 60)

    def down(ppm):
        return height - 30 - (ppm - low) / (high - low) * (height - 50)

    def points(series):
        return " ".join(f"{across(year):.1f},{down(ppm):.1f}" for year, ppm in series)

    def line(series, style):
        return f'<polyline points="{points(series)}" fill="none" {style}/>'

    years = "".join(
        f'<text x="{across(year):.0f}" y="{height - 10}" text-anchor="middle">{year}</text>'
        for year in range(1960, 2011, 10)
    )
    values = "".join(
        f'<text x="34" y="{down(ppm) + 4:.0f}" text-anchor="end">{ppm}</text>' for ppm in range(320, 401, 20)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">'
        f'<rect width="{width}" height="{height}" fill="#fff"/><g fill="#6b7785">{years}{values}</g>'
        + line(rows, 'stroke="#0072b2" stroke-width="1"')
        + line(ahead, 'stroke="#d55e00" stroke-width="2" stroke-dasharray="5 3"')
        + "</svg>\n"
    )


# --- what `make demo` shows -----------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="build/keeling", help="where the report goes (default: %(default)s)")
    parser.add_argument("--resume", metavar="ID", help="go on with an earlier run")
    args = parser.parse_args()
    out = Path(args.out).resolve()
    out.mkdir(parents=True, exist_ok=True)

    flow = keeling(str(DATA.resolve()), str(out))
    print(flow)
    print()

    run = flow.run(id=args.resume, resume=args.resume is not None)
    result = run.result()

    print()
    print(Path(result["report"]).read_text())
    (out / "graph.svg").write_text(graph.svg(run, {row.name: row.state for row in run.tasks()}))
    print(run)
    print()
    print(f"Run {run.id}: {run.counts.completed} tasks completed, {run.counts.skipped} skipped by their condition")
    print(f"In {args.out}: report.md, chart.svg, graph.svg (the finished run)")


if __name__ == "__main__":
    main()
