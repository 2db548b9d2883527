"""From a tenant's table to what decides for it: settings, times, seed, and the digest of them all."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, cast

import msgspec

from processor.core.alerts.alerts import MonitorSettings
from processor.core.errors import GForceError, InvalidSettingsError, nearest, one_of
from processor.core.events import canonical_label
from processor.core.learner.draws import MAX_SEED, MIN_SEED
from processor.core.settings import Balance, ObjectiveName, Policy, PolicyName, Settings

from .sections import Config, ShadowName, TenantTable
from .values import Secret

NEW_SEED = "make one with `gforce doctor --new-seed` or `openssl rand -hex 32`"
NO_SEED = (
    f"processing.seed is missing: {NEW_SEED}, keep it secret and never change it, "
    "because decisions are drawn with it and an audit needs it"
)
_DROP, _LABEL = "drop", "label:"


class UnknownTenantError(GForceError, LookupError):
    """The configuration neither names this tenant nor accepts unknown ones."""


class TenantConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force for one tenant. Times are in milliseconds."""

    settings: Settings
    seed: Secret
    """In hexadecimal."""
    expiry: int
    on_expiry: str | None
    """The label an expired decision counts as; None drops it."""
    parking: int
    duplicate_horizon: int
    watch: MonitorSettings | None
    """When to alert; None where nothing is watched."""
    windows: tuple[int, ...]
    """Of the gauges, in buckets. Nothing that is recorded depends on them, so they are not part of the digest."""

    @property
    def seed_bytes(self) -> bytes:
        return bytes.fromhex(self.seed.reveal())


def tenant_settings(config: Config, tenant: str) -> TenantConfig:
    """What is in force for a tenant, named or not. Raises ``UnknownTenantError``."""
    table = config.tenants.named.get(tenant)
    if table is None and not config.tenants.accept_unknown:
        raise UnknownTenantError("the tenant is not in the configuration: name it there or set tenants.accept_unknown")
    table = table or config.tenants.default
    if table.seed is None and config.processing.seed is None:
        raise InvalidSettingsError(NO_SEED)
    seed = table.seed or derived_seed(cast(Secret, config.processing.seed), tenant)
    return of_table(table, seed)


def of_table(table: TenantTable, seed: Secret) -> TenantConfig:
    """Check a table as a whole and bring it into the learner's form. Raises ``InvalidSettingsError``."""
    check_seed(seed)
    settings = _settings(table)
    return TenantConfig(
        settings=settings,
        seed=seed,
        expiry=int(table.expiry),
        on_expiry=_expiry_label(table.on_expiry, settings.labels),
        parking=int(table.parking),
        duplicate_horizon=int(table.duplicate_horizon),
        watch=_watch(table),
        windows=_windows(table, settings),
    )


def derived_seed(master: Secret, tenant: str) -> Secret:
    """A seed for each tenant, so that nobody can foresee one tenant's draws from another's."""
    return Secret(blake2b(tenant.encode(), key=bytes.fromhex(master.reveal()), digest_size=32).hexdigest())


def check_seed(seed: Secret) -> None:
    """Refuse what is not hexadecimal or of a wrong length, without quoting it."""
    text = seed.reveal()
    try:
        length = len(bytes.fromhex(text))
    except ValueError:
        raise InvalidSettingsError(f"the seed is not hexadecimal: {NEW_SEED}") from None
    if not MIN_SEED <= length <= MAX_SEED:
        raise InvalidSettingsError(f"the seed has {length} bytes: use {MIN_SEED} to {MAX_SEED}; {NEW_SEED}")


def canonical(tenant: TenantConfig) -> bytes:
    """The one JSON of a tenant's configuration: sorted, compact, the seed only as a commitment.

    From the standard library and not msgspec: Python promises the shortest spelling of a float, for ever.
    """
    document: dict[str, Any] = {
        "version": 1,
        "settings": msgspec.to_builtins(tenant.settings),
        "seed_commitment": blake2b(tenant.seed_bytes, key=b"gforce-seed", digest_size=32).hexdigest(),
        "expiry": tenant.expiry,
        "on_expiry": tenant.on_expiry,
        "parking": tenant.parking,
        "duplicate_horizon": tenant.duplicate_horizon,
        "watch": msgspec.to_builtins(tenant.watch),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(tenant: TenantConfig) -> str:
    """16 hexadecimal digits: the ``config`` field of a decision."""
    return blake2b(canonical(tenant), digest_size=8).hexdigest()


def _settings(table: TenantTable) -> Settings:
    balance = _balance(table)
    policy = Policy(policy=table.policy, objective=table.objective, eta=table.eta, balance=balance)
    shadows = [_shadow(name, policy) for name in table.shadows]
    return Settings(
        labels=tuple(map(canonical_label, table.labels)),
        positive=canonical_label(table.positive),
        groups=tuple(map(canonical_label, table.groups)),
        policy=policy,
        # A shadow of the policy in force would always agree with it.
        shadows=tuple(shadow for shadow in shadows if shadow.name != policy.name),
        prior=table.prior,
        feedback=table.feedback,
        explore=table.explore,
        bucket=int(table.bucket),
        keep=table.keep,
        window=None if table.window == "lifetime" else table.window,
    )


def _balance(table: TenantTable) -> tuple[Balance, ...]:
    steps = [Balance(fairness=table.lambda_, regret=table.lambda_regret)]
    for step in table.schedule:
        last = steps[-1]
        fairness = last.fairness if step.lambda_ is None else step.lambda_
        regret = last.regret if step.lambda_regret is None else step.lambda_regret
        steps.append(Balance(fairness=fairness, regret=regret, from_labels=step.from_labels))
    return tuple(steps)


def _shadow(name: ShadowName, policy: Policy) -> Policy:
    kind, _, objective = name.partition("/")
    return Policy(
        policy=cast(PolicyName, kind),
        objective=cast(ObjectiveName, objective or "gap"),
        eta=policy.eta,
        balance=policy.balance,
    )


def _watch(table: TenantTable) -> MonitorSettings | None:
    if not table.watch or table.feedback != "all":
        return None  # labels that come for some decisions only say nothing about the others
    return MonitorSettings(tolerance=table.tolerance, alpha=table.alpha, false_alarm_pairs=table.false_alarm_pairs)


def _windows(table: TenantTable, settings: Settings) -> tuple[int, ...]:
    """In buckets; by default one bucket and seven, where so many are kept."""
    if table.windows is None:
        return tuple(size for size in (1, 7) if size <= settings.keep)
    sizes = []
    for window in table.windows:
        size, rest = divmod(int(window), settings.bucket)
        if rest or not 1 <= size <= settings.keep:
            raise InvalidSettingsError(
                f"a window of {int(window)} ms does not fit: use multiples of bucket ({settings.bucket} ms), "
                f"at most keep ({settings.keep}) of them"
            )
        sizes.append(size)
    return tuple(sorted(set(sizes)))


def _expiry_label(text: str, labels: tuple[str, ...]) -> str | None:
    if text == _DROP:
        return None
    label = text.removeprefix(_LABEL)
    if not text.startswith(_LABEL) or label not in labels:
        forms = (_DROP, *(_LABEL + name for name in labels))
        raise InvalidSettingsError(f'on_expiry is "{text}": use {one_of(forms)}.{nearest(text, forms)}')
    return label
