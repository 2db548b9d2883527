"""What can be wrong with what a caller hands to the learner.

Every message names the thing, the value and the remedy, so that it can be shown to a person as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class GForceError(Exception):
    """The root of every error this project raises on purpose."""


class InvalidInputError(GForceError, ValueError):
    """A value from outside (a request, a label, an argument) cannot be used."""


class InvalidSettingsError(GForceError, ValueError):
    """The settings of a learner contradict themselves or the data."""


class IncompatibleStateError(GForceError, ValueError):
    """Two states, or a state and its settings, do not belong together."""


class ForeignRecordError(IncompatibleStateError):
    """A record in one of our topics that none of our versions wrote."""


def one_of(known: Iterable[str]) -> str:
    """Name the accepted values, for the end of a message.

    >>> one_of(["deny", "grant"])
    'one of "deny", "grant"'
    """
    return "one of " + ", ".join(f'"{name}"' for name in known)


def nearest(wrong: str, known: Iterable[str]) -> str:
    """Suggest what the caller may have meant.

    >>> nearest("grnat", ["deny", "grant"])
    ' Did you mean "grant"?'
    >>> nearest("x", ["deny", "grant"])
    ''
    """
    close = get_close_matches(wrong, list(known), n=1)
    return f' Did you mean "{close[0]}"?' if close else ""
