"""The policies that are compared, and their names in tables and pictures."""

from __future__ import annotations

from processor.core import Policy

GAP = Policy(objective="gap")
PAPER = Policy(objective="paper")
BOUND = Policy(objective="bound")
MIXTURE = Policy(objective="mixture")
GROUPAWARE = Policy(policy="groupaware")
MW = Policy(policy="mw")

ALL = (GAP, MIXTURE, BOUND, PAPER, GROUPAWARE, MW)

TITLES = {
    GAP.name: "G-FORCE (gap)",
    PAPER.name: "G-FORCE (as printed)",
    BOUND.name: "G-FORCE (bound)",
    MIXTURE.name: "G-FORCE (mixture)",
    GROUPAWARE.name: "GroupAware",
    MW.name: "MW",
}

SHORT = {
    GAP.name: "gap",
    PAPER.name: "paper",
    BOUND.name: "bound",
    MIXTURE.name: "mixture",
    GROUPAWARE.name: "GroupAware",
    MW.name: "MW",
}
"""For tables: G-FORCE goes by its objective."""

COLOURS = {
    GAP.name: "#0b6e4f",
    MIXTURE.name: "#3a86c8",
    BOUND.name: "#7fb069",
    PAPER.name: "#e0a030",
    GROUPAWARE.name: "#c1440e",
    MW.name: "#7a6f9b",
}


def objective_of(policy: Policy) -> str | None:
    """The objective, where the policy has one."""
    return policy.objective if policy.policy == "gforce" else None
