"""The learner: pure functions on integers. No I/O, no clock, no randomness, no logging.

axes, counters, state, codec     what is remembered, and its bytes
estimates, problems, solver      what follows from it: weights, the four objectives, the minimiser
policies, rule, draws            who is asked, and the decision
learner, settings                the same for one learner, as an object
metrics, bounds, attainable,
diagnosis                        what a person wants to know about it
exact                            the arithmetic that is the same on every machine
"""

from .axes import Axes
from .codec import decode_state, encode_state
from .counters import ABSENT, Counters
from .errors import GForceError, IncompatibleState, InvalidInput, InvalidSettings
from .learner import Decision, Learner, Request
from .metrics import Fairness, fairness
from .policies import rule_of
from .rule import Rule
from .settings import Balance, Policy, Prior, Settings
from .state import State
from .together import IN_FORCE

__all__ = [
    "ABSENT",
    "IN_FORCE",
    "Axes",
    "Balance",
    "Counters",
    "Decision",
    "Fairness",
    "GForceError",
    "IncompatibleState",
    "InvalidInput",
    "InvalidSettings",
    "Learner",
    "Policy",
    "Prior",
    "Request",
    "Rule",
    "Settings",
    "State",
    "decode_state",
    "encode_state",
    "fairness",
    "rule_of",
]
