"""``gforce experiment``: the paper's experiments and ours, each with a table, pictures and figures as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .report import checked_folder, checked_json

app = typer.Typer(
    name="experiment",
    help="Reproduce the paper and go beyond it. Every experiment prints a table, writes pictures (PNG and SVG) "
    "and, with --json FILE, its figures.",
    no_args_is_help=True,
)

Runs = Annotated[int, typer.Option(min=1, help="Independent repetitions.")]
Rounds = Annotated[int, typer.Option(min=200, help="Cases decided in each repetition.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same figures.")]
Folder = Annotated[Path, typer.Option("--figures", help="Folder for the pictures.", callback=checked_folder)]
Json = Annotated[
    Path | None, typer.Option(help="Write the figures to this file; - is standard output.", callback=checked_json)
]
FIGURES = Path("figures")


@app.command()
def synthetic(
    runs: Runs = 100,
    rounds: Rounds = 10_000,
    seed: Seed = 1,
    p_a: Annotated[float, typer.Option(min=0.01, max=0.99, help="Share of group A.")] = 0.9,
    mu_a: Annotated[float, typer.Option(min=0.01, max=0.99, help="Base rate of group A.")] = 0.7,
    mu_b: Annotated[
        list[float] | None,
        typer.Option(min=0.01, max=0.99, help="Base rate of group B; may be repeated. \\[default: the paper's five]"),
    ] = None,
    figures: Folder = FIGURES,
    json: Json = None,
) -> None:
    """The two appendix tables of the paper: four experts, each perfect on one group and label."""
    from . import synthetic as module

    module.experiment(runs, rounds, seed, p_a, mu_a, tuple(mu_b or module.MU_B), figures, json)


@app.command()
def pareto(
    runs: Runs = 50,
    rounds: Rounds = 10_000,
    seed: Seed = 1,
    mu_b: Annotated[float, typer.Option(min=0.01, max=0.99, help="Base rate of group B.")] = 0.3,
    figures: Folder = FIGURES,
    json: Json = None,
) -> None:
    """What fairness costs: a sweep of λ from accuracy alone to fairness alone."""
    from . import pareto as module

    module.experiment(runs, rounds, seed, mu_b, figures, json)


@app.command()
def real(
    data_dir: Annotated[
        Path, typer.Option(help="Folder with adult.data, adult.test, german.data, compas-two-years.csv.")
    ],
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="adult, compas or german; may be repeated. \\[default: all three]"),
    ] = None,
    splits: Annotated[
        int | None, typer.Option(min=1, help="Fresh random splits. \\[default: adult 4, compas 20, german 40]")
    ] = None,
    seed: Seed = 1,
    figures: Folder = FIGURES,
    json: Json = None,
) -> None:
    """Adult, COMPAS and German with five trained experts."""
    from . import real as module

    module.experiment(tuple(dataset or ("adult", "compas", "german")), data_dir, splits, seed, figures, json)


@app.command()
def delay(
    runs: Runs = 100,
    rounds: Rounds = 10_000,
    seed: Seed = 1,
    mu_b: Annotated[float, typer.Option(min=0.01, max=0.99, help="Base rate of group B.")] = 0.3,
    distribution: Annotated[
        list[str] | None,
        typer.Option(
            help="none, fixed:3000, uniform:0-2000 or geometric:500, each with ,lost:0.1 for labels that never "
            "come; may be repeated. \\[default: five of them]"
        ),
    ] = None,
    figures: Folder = FIGURES,
    json: Json = None,
) -> None:
    """Labels that come late, or never."""
    from . import delay as module

    module.experiment(runs, rounds, seed, mu_b, tuple(distribution or module.DELAYS), figures, json)


@app.command()
def stress(
    runs: Runs = 50,
    rounds: Annotated[
        int, typer.Option(min=5_000, help="Cases decided in each repetition; from the middle on some things change.")
    ] = 10_000,
    seed: Seed = 1,
    figures: Folder = FIGURES,
    json: Json = None,
) -> None:
    """More groups and labels, experts that abstain, join or change, and labels of positive decisions only."""
    from . import stress as module

    module.experiment(runs, rounds, seed, figures, json)


@app.command()
def watch(
    runs: Annotated[int, typer.Option(min=4, help="Simulated streams at the tolerance boundary.")] = 2_000,
    learner_runs: Annotated[int, typer.Option(min=1, help="Runs of the real learner.")] = 150,
    seed: Seed = 1,
    figures: Folder = FIGURES,
    json: Json = None,
) -> None:
    """The alerts: false alarms, pairs to detect and to clear, and the learner's first rounds."""
    from . import watch as module

    module.experiment(runs, learner_runs, seed, figures, json)
