"""The settings of each tenant, from the journal; and the seeds, from outside the record."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from processor.config import Config, canonical, digest, tenant_settings
from processor.config.tenants import check_seed, derived_seed
from processor.config.values import Secret
from processor.core.alerts.monitor import MonitorSettings
from processor.core.errors import GForceError, InvalidInputError
from processor.core.events import Limits
from processor.core.settings import Settings
from processor.core.stream.step import StreamSettings
from processor.core.stream.tenant import TenantSettings

from .findings import NotAuditableError

CONFIGURATION_VERSION = 1
DEFAULTS_OF_LATER_LIMITS = {"max_choices": 0}
"""Limits that the first journals do not name, because there were none."""
NO_SEED = bytes(16)
"""Stands for a seed that is not known; nothing is drawn with it."""

Override = Callable[[str, TenantSettings], TenantSettings]


def seed_commitment(seed: bytes) -> str:
    """The commitment to a seed, as it is in the journal."""
    return blake2b(seed, key=b"gforce-seed", digest_size=32).hexdigest()


@dataclass(frozen=True)
class Secrets:
    """Seeds and configurations kept outside the record. All hexadecimal; a seed counts only if it was committed to."""

    masters: tuple[str, ...] = field(default=(), repr=False)
    """of the whole processor, from which each tenant's is derived"""
    shared: tuple[str, ...] = field(default=(), repr=False)
    """used as they are by any tenant"""
    tenants: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    config: Config | None = None
    """may know configurations that the journal at hand no longer holds"""

    def __bool__(self) -> bool:
        return bool(self.masters or self.shared or self.tenants)

    def __add__(self, other: Secrets) -> Secrets:
        names = {*self.tenants, *other.tenants}
        return Secrets(
            self.masters + other.masters,
            self.shared + other.shared,
            {name: self.tenants.get(name, ()) + other.tenants.get(name, ()) for name in names},
            self.config or other.config,
        )

    @classmethod
    def of_config(cls, config: Config, seedless: bool = False) -> Secrets:
        """``seedless``: its seed is a stand-in, because the file has none."""
        master, default = config.processing.seed, config.tenants.default.seed
        return cls(
            masters=(master.reveal(),) if master and not seedless else (),
            shared=(default.reveal(),) if default else (),
            tenants={name: (table.seed.reveal(),) for name, table in config.tenants.named.items() if table.seed},
            config=config,
        )

    @classmethod
    def of_file(cls, path: Path) -> Secrets:
        """TOML with ``seed`` (that of the processor) and ``[tenants]``; or nothing but one seed in hexadecimal."""
        try:
            text = path.read_text()
        except OSError as error:
            raise InvalidInputError(f"the seed file {path} cannot be read: {error.strerror}") from None
        if "=" not in text:
            return cls(masters=(_check_seed_text(text.strip(), path),))
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidInputError(f"the seed file {path} is not TOML: {error}") from None
        named = document.get("tenants", {})
        if not isinstance(named, dict) or not set(document) <= {"seed", "tenants"}:
            raise InvalidInputError(f'the seed file {path} may hold seed = "…" and [tenants] with name = "…" only')
        return cls(
            masters=_check_seeds(document.get("seed", []), path),
            tenants={name: _check_seeds(seeds, path) for name, seeds in named.items()},
        )

    def seed(self, tenant: str, committed: str) -> bytes | None:
        """The tenant's seed, if it is here: the one that was committed to."""
        candidates = [*self.tenants.get(tenant, ()), *self.shared]
        candidates += [derived_seed(Secret(master), tenant).reveal() for master in self.masters]
        return next((seed for text in candidates if seed_commitment(seed := bytes.fromhex(text)) == committed), None)

    def canonical(self, tenant: str, wanted: str) -> str | None:
        """The configuration of this digest, if it is the one the configuration file has for this tenant."""
        if self.config is None:
            return None
        try:
            found = tenant_settings(self.config, tenant)
        except GForceError:
            return None
        return canonical(found).decode() if digest(found) == wanted else None


def _check_seeds(seeds: Any, path: Path) -> tuple[str, ...]:
    return tuple(_check_seed_text(seed, path) for seed in (seeds if isinstance(seeds, list) else [seeds]))


def _check_seed_text(seed: Any, path: Path) -> str:
    if not isinstance(seed, str):
        raise InvalidInputError(f"the seed file {path} holds something that is not a seed in hexadecimal")
    check_seed(Secret(seed))
    return seed


def settings_digest(text: str) -> str:
    """The digest under which the journal keeps a configuration."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class RecordedStreamSettings(StreamSettings):
    """Stream settings with their text in the journal."""

    recorded: str = ""

    @property
    def text(self) -> str:
        return self.recorded


@dataclass
class RecordedSettings:
    """The settings in force at the current batch of the journal; those of a tenant are parsed once."""

    secrets: Secrets
    override: Override | None = None
    stream_text: str = ""
    limits: Limits = field(default_factory=Limits)
    configs: dict[str, str] = field(default_factory=dict)
    """canonical configurations by digest"""
    assigned: dict[str, str] = field(default_factory=dict)
    """tenants, each with the digest of its settings"""
    seedless: set[str] = field(default_factory=set)
    """tenants whose seed is not known"""
    _rules: dict[tuple[str, str], TenantSettings] = field(default_factory=dict)
    _stream_settings: RecordedStreamSettings | None = None

    def set_stream_settings(self, text: str) -> None:
        """Take over the stream settings of the journal. Raises NotAuditableError for those of a later version."""
        try:
            document = json.loads(text)
            self.limits = msgspec.convert({**DEFAULTS_OF_LATER_LIMITS, **document["limits"]}, Limits)
            slot, max_future = int(document["slot"]), int(document["max_future"])
            sweep = msgspec.convert(document.get("sweep"), int | None)
            if unknown := document.keys() - {"limits", "max_future", "slot", "sweep"}:
                raise ValueError(f"they hold {', '.join(sorted(unknown))}, which a later version knows")
        except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise NotAuditableError(f"the journal's terms cannot be read by this version: {error}") from None
        self.stream_text, self._rules = text, {}
        self._stream_settings = RecordedStreamSettings(
            self.limits, self.settings_for, max_future, slot, sweep, recorded=text
        )

    def stream_settings(self) -> StreamSettings:
        if self._stream_settings is None:
            raise NotAuditableError(
                "the journal at hand does not hold the terms (limits, width of slots) it was made under: they are in "
                "the first record of the lineage. Record the journal from its beginning."
            )
        return self._stream_settings

    def has_all_seeds(self) -> bool:
        """Whether the settings of every tenant so far are parsed, with its seed."""
        return not self.seedless and all(pair in self._rules for pair in self.assigned.items())

    def known_words(self) -> set[str]:
        """Labels and groups that the configurations name."""
        known = [rules.settings for tenant in self.assigned if (rules := self.settings_for(tenant))]
        return {word for settings in known for word in (*settings.labels, *settings.groups)}

    def settings_for(self, tenant: str) -> TenantSettings | None:
        """As ``StreamSettings.settings_for``: None for a tenant that was not accepted."""
        assigned = self.assigned.get(tenant)
        if assigned is None:
            return None
        known = self._rules.get((tenant, assigned))
        if known is None:
            known = self._rules[tenant, assigned] = self._read_settings(tenant, assigned)
        return known

    def _read_settings(self, tenant: str, assigned: str) -> TenantSettings:
        text = self.configs.get(assigned)
        if text is None or settings_digest(text) != assigned:
            text = self.secrets.canonical(tenant, assigned) or text
        if text is None:
            raise NotAuditableError(
                f'the configuration {assigned} of tenant "{tenant}" is missing: it is in the journal where it first '
                "came into force. Record the journal from its beginning, or give the configuration with --config."
            )
        rules = self._parse(tenant, assigned, text)
        return self.override(tenant, rules) if self.override else rules

    def _parse(self, tenant: str, assigned: str, text: str) -> TenantSettings:
        """The inverse of ``config.canonical``."""
        try:
            document = json.loads(text)
            version = document["version"]
            if version != CONFIGURATION_VERSION:
                raise NotAuditableError(
                    f'the configuration of tenant "{tenant}" is of version {version} and this version of gforce reads '
                    f"{CONFIGURATION_VERSION}: use a later one"
                )
            seed = self.secrets.seed(tenant, document["seed_commitment"])
            (self.seedless.discard if seed else self.seedless.add)(tenant)
            return TenantSettings(
                settings=msgspec.convert(document["settings"], Settings),
                seed=seed or NO_SEED,
                digest=assigned,
                canonical=text,
                expiry=document["expiry"],
                on_expiry=document["on_expiry"],
                parking=document["parking"],
                horizon=document["duplicate_horizon"],
                watch=msgspec.convert(document.get("watch"), MonitorSettings | None),
                max_groups=self.limits.max_groups,
                max_experts=self.limits.max_experts,
                max_choices=self.limits.max_choices,
            )
        except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise NotAuditableError(
                f'the configuration {assigned} of tenant "{tenant}" cannot be read: {error}'
            ) from None
