"""Acknowledge a tolerance alert, which stays raised until a person has seen it: both ends of the wire."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from processor.config.values import Secret
from processor.core.errors import GForceError
from processor.core.stream.tenant import Tenant

from .asking import ask, said

ACKNOWLEDGE = "/tenants/acknowledge"


class Acknowledgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is sent."""

    tenant: str
    number: Annotated[int, Meta(ge=1)]


class AcknowledgementAnswer(msgspec.Struct, frozen=True):
    """What comes back."""

    tenant: str
    number: int
    done: bool
    """whether the alert will be cleared, with the next batch of its partition"""
    text: str


def judged(wanted: Acknowledgement, tenant: Tenant | None) -> tuple[AcknowledgementAnswer, int]:
    """What a processor says to this, and the status of the answer."""
    if tenant is None:
        return _no(wanted, f'this processor does not have tenant "{wanted.tenant}": ask the one that does'), 404
    open_alerts = {alert.number: alert for alert in (tenant.watch.alerts if tenant.watch else ())}
    found = open_alerts.get(wanted.number)
    if found is None:
        numbers = ", ".join(f"{alert.number} ({alert.kind})" for alert in open_alerts.values()) or "none"
        return _no(wanted, f'tenant "{wanted.tenant}" has no open alert {wanted.number}; open are: {numbers}'), 404
    if found.kind != "tolerance":
        return _no(wanted, f"alert {wanted.number} is of kind {found.kind}, which clears by itself"), 409
    text = f'alert {wanted.number} of tenant "{wanted.tenant}" is acknowledged: its test begins anew'
    return AcknowledgementAnswer(wanted.tenant, wanted.number, True, text), 202


def _no(wanted: Acknowledgement, text: str) -> AcknowledgementAnswer:
    return AcknowledgementAnswer(wanted.tenant, wanted.number, False, text)


def acknowledged(url: str, tenant: str, number: int, token: Secret | None = None) -> AcknowledgementAnswer:
    """Ask a running processor."""
    base = url.rstrip("/")
    body = msgspec.json.encode(Acknowledgement(tenant, number))
    status, content = ask(base + ACKNOWLEDGE, "POST", token, body)
    if status in (401, 403):
        raise GForceError(f"{base} refuses: {status} {said(content)}. Set http.token")
    try:
        return msgspec.json.decode(content, type=AcknowledgementAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise GForceError(
            f"{base} is no processor: {ACKNOWLEDGE} answered {status}. Give its address with --url"
        ) from None
