"""The command check."""

from __future__ import annotations

from unjoined.cli.inputs import Tables, check_paths
from unjoined.cli.options import AsJson, TableOptions, command
from unjoined.cli.show import (
    console,
    noted,
    print_json,
    show_labels,
    show_strength,
)
from unjoined.metrics import identification_strength


@command(
    "unjoined check --outcomes north=sales_n.csv --outcomes south=sales_s.csv \\\n"
    "    --treatments north=mail_n.csv --treatments south=mail_s.csv \\\n"
    "    --outcome bought --treatment mailed",
    "unjoined check --config unjoined.toml",
)
def check(options: TableOptions, as_json: AsJson = False) -> None:
    """Check the tables, and say whether they can identify uplift."""
    tables = Tables.of_options(options)
    tables.require("check needs {}.")
    check_paths(tables.paths, [])
    with noted():
        data = tables.read()
    strength = identification_strength(**data)
    out = console(quiet=as_json)
    show_labels(out, data)
    out.print(f"Features: {', '.join(data.feature_names or [])}.")
    for column in data.left_out:
        out.print(f"Left out: {column}.")
    show_strength(out, strength)
    if as_json:
        pairs = strength.to_dict()
        print_json(
            {
                "tables": [
                    {"kind": c.kind, "population": c.population, "rows": c.n_rows}
                    | {"label_mean": c.label_mean}
                    for c in data.summary()
                ],
                "features": data.feature_names,
                "f_statistic": strength.f_statistic,
                "mean_gap": strength.mean_gap,
                "rms_gap": strength.rms_gap,
                "weak": strength.is_weak,
                "pairs": [
                    dict(zip(pairs, row, strict=True)) for row in zip(*pairs.values(), strict=True)
                ],
            }
        )
